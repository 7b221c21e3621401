//===- compiler/passes/RecomputeSearch.h - Which stages recompute --------===//
#ifndef SLUICE_COMPILER_PASSES_RECOMPUTESEARCH_H
#define SLUICE_COMPILER_PASSES_RECOMPUTESEARCH_H

#include "compiler/spec/Spec.h"
#include "ir/Stage.h"

#include <vector>

namespace sluice {

/// A policy for each of `stages` stages of `spec`, whose schedule is legal,
/// with which every rank is within the memory limit and the objective is least;
/// where nothing fits, one that is over it for want of more to make again. All
/// none without a limit.
///
/// Prices policies by compiling them. With one stage a rank, what a rank holds
/// depends on its own stage alone and the objective never falls where an R
/// takes longer, so raising just the ranks that do not fit, step by step, finds
/// the least in at most three compilations. With more stages a rank, so many
/// combinations as `tries` allows are all compiled; where there are more, the
/// same steps take the stage that costs least, and those that turn out not to
/// be needed are taken back: one compilation a stage besides.
std::vector<RecomputePolicy> searchRecompute(const Spec &spec, uint32_t stages,
                                             uint32_t tries = 256);

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_RECOMPUTESEARCH_H
