//===- compiler/passes/WarmupSearch.h - `warmup: auto` -------------------===//
#ifndef SLUICE_COMPILER_PASSES_WARMUPSEARCH_H
#define SLUICE_COMPILER_PASSES_WARMUPSEARCH_H

#include "compiler/Compilation.h"

namespace sluice {

/// The smallest counts that reach the best objective that a search finds,
/// within the memory limit: see WarmupSearch.cpp. Needs a schedule whose counts
/// may be chosen, and stages. At most ten times an order, its graph and its
/// simulation; where hardly any counts fit, up to three times that.
WarmupCounts searchWarmup(Compilation &compilation);

/// The schedule's own counts; where a last group of microbatches is short and
/// they would make the ranks wait for each other, as many more on each rank as
/// end that, with a note.
WarmupCounts standardWarmup(Compilation &compilation);

/// `counts` with the same number more on each rank, as few as end that the
/// ranks wait for each other. Logarithmic in orders.
std::vector<uint32_t> warmupThatRuns(Compilation &compilation,
                                     llvm::ArrayRef<uint32_t> counts);

/// What each rank computes with these counts, along the pipeline. Linear.
Orders ordersWith(const ScheduleChoice &choice, const StageGraph &stages,
                  llvm::ArrayRef<uint32_t> counts);

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_WARMUPSEARCH_H
