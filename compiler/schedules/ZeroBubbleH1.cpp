//===- ZeroBubbleH1.cpp - 1F1B whose weight gradients fill the bubble ----===//
//
// Qi et al., arXiv 2401.10241: the backward is split; warmup is 1F1B's, and the
// first r W of rank r are put off to the end, where the rank would wait. Bubble
// (p-1)(F+I-W) for W <= F and W <= I, p microbatches in flight.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/ZeroBubble.h"

namespace sluice {

std::vector<RankProgram>
schedules::zeroBubbleH1(const ScheduleProblem &problem,
                        llvm::ArrayRef<uint32_t> warmup) {
  return eachRank(problem, [&](Id rank) {
    return delayedWeights(problem.microbatches, warmup[rank], rank);
  });
}

} // namespace sluice
