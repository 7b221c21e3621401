#include "tools/sluice/Files.h"

#include "ir/AsideFile.h"
#include "ir/Ops.h"
#include "ir/PlanFile.h"
#include "ir/text/Text.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"

namespace sluice {

/// Whether a text begins with a cell of a schedule CSV: `0F0` or `(0F0;…`.
static bool looksLikeCsv(llvm::StringRef text) {
  llvm::StringRef cell =
      text.take_until([](char c) { return c == ',' || c == '\n'; }).trim();
  cell.consume_front("(");
  size_t digits = cell.find_if_not(llvm::isDigit);
  return digits != 0 && digits != llvm::StringRef::npos &&
         llvm::isUpper(cell[digits]);
}

static InputKind kindOf(llvm::StringRef text) {
  if (isPlanFile(text))
    return InputKind::Plan;
  if (isIrText(text))
    return InputKind::Ir;
  return looksLikeCsv(text) ? InputKind::Csv : InputKind::Spec;
}

/// Whether the file `name` begins as a plan does; false if it cannot be read.
static bool beginsAsPlan(const std::string &name) {
  auto beginning = llvm::MemoryBuffer::getFileSlice(name, 64, 0);
  return name != "-" && beginning && isPlanFile((*beginning)->getBuffer());
}

Status readInput(const std::string &name, Input &input) {
  input.name = name;
  if (beginsAsPlan(name)) {
    input.kind = InputKind::Plan;
    return Status();
  }
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(
      name, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return Status::input("cannot open '" + escaped(name) +
                         "': " + buffer.getError().message());
  input.text = (*buffer)->getBuffer().str();
  input.kind = kindOf(input.text);
  return Status();
}

Status writeOutput(const std::string &path,
                   llvm::function_ref<void(llvm::raw_ostream &)> write) {
  if (path.empty() || path == "-") {
    write(llvm::outs());
    llvm::outs().flush();
    if (std::error_code error = llvm::outs().error()) {
      llvm::outs().clear_error();
      return Status::environment("cannot write standard output: " +
                                 error.message());
    }
    return Status();
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  write(out);
  return writeFileAside(path, text);
}

int fail(const Status &status) {
  llvm::errs() << "error: " << status.message() << '\n';
  return static_cast<int>(status.fault());
}

} // namespace sluice
