//===- ZeroBubbleH2.cpp - No rank waits, at twice the memory -------------===//
//
// Qi et al., arXiv 2401.10241: enough forwards in the warmup that no rank waits
// for its first backward, and the first 2r W of rank r are put off to the end.
// Span bubble (p-1)(F+I-2W) for W <= min(F, I) and F + I >= 2W; at most 2p-1
// microbatches in flight.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/ZeroBubble.h"

namespace sluice {

std::vector<RankProgram>
schedules::zeroBubbleH2(const ScheduleProblem &problem,
                        llvm::ArrayRef<uint32_t> warmup) {
  return eachRank(problem, [&](Id rank) {
    return delayedWeights(problem.microbatches, warmup[rank], 2 * rank);
  });
}

} // namespace sluice
