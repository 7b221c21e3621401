//===- tools/sluice/Files.h - Inputs told by their content, safe outputs -===//
#ifndef SLUICE_TOOLS_SLUICE_FILES_H
#define SLUICE_TOOLS_SLUICE_FILES_H

#include "ir/Status.h"

#include "llvm/ADT/ArrayRef.h"
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

/// Reads `name` and tells its kind by its content; a file that is neither a
/// plan nor IR text and is named *.csv is a CSV whatever it holds.
Status readInput(const std::string &name, Input &input);

/// Writes what `write` prints: to standard output if `path` is empty or "-",
/// else
/// aside, synced and renamed to `path`.
Status writeOutput(const std::string &path,
                   llvm::function_ref<void(llvm::raw_ostream &)> write);

/// A file that a command reads or writes.
struct NamedPath {
  std::string path;  ///< "-": standard input, or (empty too) standard output
  std::string shown; ///< of an input "the input", of an output "--save=x"
};

/// Before anything is written: refuses an output that is one of the inputs or
/// another output, whatever the paths look like, then tries whether each can be
/// written.
Status checkPaths(llvm::ArrayRef<NamedPath> inputs,
                  llvm::ArrayRef<NamedPath> outputs);

/// Prints a failure to standard error; returns its exit code.
int fail(const Status &status);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_FILES_H
