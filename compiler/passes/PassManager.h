//===- compiler/passes/PassManager.h - Runs passes in a legal order ------===//
#ifndef SLUICE_COMPILER_PASSES_PASSMANAGER_H
#define SLUICE_COMPILER_PASSES_PASSMANAGER_H

#include "compiler/Compilation.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <vector>

namespace sluice {

/// What passes need and make; rows of Artifacts.def.
enum class Artifact : uint8_t {
#define SLUICE_ARTIFACT(Name, ...) Name,
#include "compiler/passes/Artifacts.def"
};

/// A set of artifacts, one bit each.
using Artifacts = uint32_t;

/// One row of Passes.def.
struct PassInfo {
  llvm::StringRef text;
  Artifacts needs;
  Artifacts makes;
  llvm::StringRef summary;
  bool (*run)(Compilation &compilation);
};

llvm::ArrayRef<PassInfo> allPasses();

/// The row of exactly this name; null if there is none.
const PassInfo *findPass(llvm::StringRef text);

/// "unknown pass 'x', the nearest is 'y'".
std::string unknownPass(llvm::StringRef text);

/// A list of passes that has been checked against an input.
using Pipeline = std::vector<const PassInfo *>;

/// Every pass from a spec to a verified plan.
Pipeline fullPipeline();

/// The passes of fullPipeline before the one of this name.
Pipeline pipelineBefore(llvm::StringRef text);

/// Reads "a,b,c". On failure says in `error` which name is unknown (with the
/// nearest known one), or which pass needs what neither the input nor an
/// earlier pass gives.
bool parsePipeline(llvm::StringRef text, Artifacts available,
                   Pipeline &pipeline, std::string &error);

/// Which artifacts `compilation` holds.
Artifacts artifactsOf(const Compilation &compilation);

struct PipelineOptions {
  /// Names of passes after which the IR is printed; "*" for all.
  std::vector<std::string> printAfter;
  bool timePasses = false;
  /// Where the two above print.
  llvm::raw_ostream *log = nullptr;
};

/// Runs the passes one after the other; stops at the first that fails (its
/// faults are in the diagnostics) and returns false.
bool runPipeline(const Pipeline &pipeline, Compilation &compilation,
                 const PipelineOptions &options = {});

/// Prints what `compilation` holds of graph, schedule and plan, the most
/// lowered one last.
void printIr(const Compilation &compilation, llvm::raw_ostream &out);

namespace passes {
#define SLUICE_PASS(Name, ...) bool Name(Compilation &compilation);
#include "compiler/passes/Passes.def"
} // namespace passes

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_PASSMANAGER_H
