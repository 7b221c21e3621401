//===- compiler/MemoryAdvice.h - What to do about a plan over its limit --===//
#ifndef SLUICE_COMPILER_MEMORYADVICE_H
#define SLUICE_COMPILER_MEMORYADVICE_H

#include "compiler/Compilation.h"
#include "compiler/Trial.h"
#include "compiler/spec/Parser.h"

#include <vector>

namespace sluice {

/// Keys of `pipeline` with values, as changePipeline takes them, which together
/// make a spec fit, and what it then comes to.
struct Suggestion {
  std::vector<Override> settings;
  Needs needs;
  uint64_t devices;   ///< of all ranks and copies
  uint64_t sequences; ///< of a step
};

/// Changes with which `spec` needs at most `limit` bytes on each rank, each
/// found by compiling it: of one key, of few that belong together, and, where
/// none of these fits, of as many as it takes. Those with the spec's own
/// devices and sequences come first, then those with its devices, each by the
/// time that a sequence takes a device. Some tens of compilations long.
std::vector<Suggestion> findChanges(const Spec &spec, Bytes limit);

/// Adds to the last error, which says that the plan of `compilation` needs more
/// than its memory limit (reportOverLimit), the changes of findChanges and what
/// limit would do. Needs a spec and a plan.
void adviseOnLimit(Compilation &compilation);

} // namespace sluice

#endif // SLUICE_COMPILER_MEMORYADVICE_H
