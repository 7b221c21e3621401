//===- compiler/passes/WarmupSearch.h - `warmup: auto`
//---------------------===//
#ifndef SLUICE_COMPILER_PASSES_WARMUPSEARCH_H
#define SLUICE_COMPILER_PASSES_WARMUPSEARCH_H

#include "compiler/Compilation.h"

namespace sluice {

/// The smallest counts that reach the best objective of the schedule's family,
/// within the memory limit: see WarmupSearch.cpp. Needs a schedule whose counts
/// may be chosen, and stages.
WarmupCounts searchWarmup(Compilation &compilation);

/// The schedule's own counts; where a last group of microbatches is short and
/// they would make the ranks wait for each other, as many more on each rank as
/// end that, with a note.
WarmupCounts standardWarmup(Compilation &compilation);

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_WARMUPSEARCH_H
