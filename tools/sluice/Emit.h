//===- tools/sluice/Emit.h - What `compile --emit` can write -------------===//
#ifndef SLUICE_TOOLS_SLUICE_EMIT_H
#define SLUICE_TOOLS_SLUICE_EMIT_H

#include "compiler/Compilation.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

namespace sluice {

/// One row of the table in Emit.cpp.
struct EmitInfo {
  llvm::StringRef name;
  llvm::StringRef extension;
  /// Null for the plan file, which is binary and writes itself.
  void (*write)(const Compilation &compilation, llvm::raw_ostream &out);
  /// Why this format cannot hold the compilation, empty if it can; null where
  /// it can hold any.
  std::string (*refuse)(const Compilation &compilation) = nullptr;
};

llvm::ArrayRef<EmitInfo> allEmits();
const EmitInfo *findEmit(llvm::StringRef name);

/// For --help.
llvm::StringRef emitDescription();

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_EMIT_H
