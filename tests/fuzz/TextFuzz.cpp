//===- tests/fuzz/TextFuzz.cpp - Fuzzes the reader of text forms ----------===//
//
// libFuzzer's entry point. What is accepted must print to a text that is
// accepted again and prints the same.
//
//===----------------------------------------------------------------------===//
#include "ir/text/Text.h"

#include <cstdlib>

using namespace sluice;

static std::string print(const IrText &ir) {
  std::string text;
  llvm::raw_string_ostream out(text);
  printIr(ir, out);
  return text;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  Diagnostics diagnostics;
  std::optional<IrText> ir = parseIr(text, "input.ir", diagnostics);
  if (ir.has_value() == diagnostics.hasErrors())
    std::abort();
  if (!ir) {
    if (diagnostics.render().empty())
      std::abort();
    return 0;
  }
  std::string printed = print(*ir);
  Diagnostics again;
  std::optional<IrText> reread = parseIr(printed, "printed.ir", again);
  if (!reread || print(*reread) != printed)
    std::abort();
  return 0;
}
