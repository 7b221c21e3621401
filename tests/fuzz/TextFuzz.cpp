//===- tests/fuzz/TextFuzz.cpp - Fuzzes the reader of text forms ----------===//
//
// libFuzzer's entry point. What is accepted must print to a text that is
// accepted again and prints the same, and can be proved right or wrong.
//
//===----------------------------------------------------------------------===//
#include "ir/text/Text.h"
#include "ir/verify/Verify.h"

#include <cstdlib>

using namespace sluice;

static std::string print(const IrText &ir) {
  std::string text;
  llvm::raw_string_ostream out(text);
  printIr(ir, out);
  return text;
}

static void require(bool holds) {
  if (!holds)
    std::abort();
}

/// What a proof says must be sound in itself.
static void checkResult(const verify::Result &result,
                        verify::Progress progress) {
  using verify::Progress;
  require(!result.holdsUnder(Progress::Rank) ||
          result.holdsUnder(Progress::Pair));
  require(!result.holdsUnder(Progress::Pair) ||
          result.holdsUnder(Progress::Edge));
  require(!result.ok() || result.holdsUnder(progress));
}

static void checkProofs(const IrText &ir) {
  if (ir.schedule)
    checkResult(verify::verifySchedule(*ir.graph, *ir.schedule),
                verify::Progress::Rank);
  for (verify::Progress progress : verify::kProgressModels)
    for (bool buffers : {true, false}) {
      if (!ir.plan)
        return;
      verify::Result result = verify::verifyPlan(
          *ir.plan, {.progress = progress, .buffers = buffers});
      checkResult(result, progress);
      for (const verify::Finding &finding : result.errors)
        require(!verify::describe(*ir.plan, finding).empty());
    }
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
  checkProofs(*ir);
  std::string printed = print(*ir);
  Diagnostics again;
  std::optional<IrText> reread = parseIr(printed, "printed.ir", again);
  if (!reread || print(*reread) != printed)
    std::abort();
  return 0;
}
