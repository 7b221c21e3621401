//===- tools/sluice/ParseFlags.h - LLVM's parser, our sentences ----------===//
#ifndef SLUICE_TOOLS_SLUICE_PARSEFLAGS_H
#define SLUICE_TOOLS_SLUICE_PARSEFLAGS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/raw_ostream.h"

namespace sluice {

/// Parses "program command flags…" into the options of LLVM's library that are
/// alive. What it finds wrong goes to `errors`, as `error: lower-case sentence`
/// lines. Ends the process for --help.
bool parseFlags(llvm::ArrayRef<const char *> arguments,
                llvm::raw_ostream &errors);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_PARSEFLAGS_H
