//===- tools/sluice/Files.h - Inputs told by their content, safe outputs -===//
#ifndef SLUICE_TOOLS_SLUICE_FILES_H
#define SLUICE_TOOLS_SLUICE_FILES_H

#include "ir/Status.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace sluice {

enum class InputKind { Spec, Plan, Ir, Csv };

/// A file, or standard input for "-".
struct Input {
  std::string name;
  InputKind kind = InputKind::Spec;
  std::string text; ///< empty for a plan in a file, which is read by its name
};

/// Reads `name` and tells its kind by its content.
Status readInput(const std::string &name, Input &input);

/// Writes what `write` prints: to standard output if `path` is empty or "-",
/// else
/// aside, synced and renamed to `path`.
Status writeOutput(const std::string &path,
                   llvm::function_ref<void(llvm::raw_ostream &)> write);

/// Prints a failure to standard error; returns its exit code.
int fail(const Status &status);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_FILES_H
