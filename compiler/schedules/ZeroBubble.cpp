//===- compiler/schedules/ZeroBubble.cpp - Weight gradients put off -------===//
//
// Qi et al., arXiv 2401.10241: the backward is split, and a rank puts off as
// many W as it has fewer warmup forwards than the first one, to the end, where
// it would wait. So all hold what the first rank does.
//
//   zb-h1  1F1B's warmup, so the first r W of rank r: bubble (p-1)(F+I-W) for
//          W <= F and W <= I, p microbatches in flight
//   zb-h2  twice that, so that no rank waits for its first backward, and 2r W:
//          span bubble (p-1)(F+I-2W) for W <= min(F, I) and F + I >= 2W, at
//          most 2p-1 in flight
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

#include <algorithm>

namespace sluice {

/// `warmup` forwards, then pairs of F and I of which the first `delayed` have
/// no W behind them, then I and W in turn, then the W that are left.
static RankProgram delayedWeights(uint32_t microbatches, uint32_t warmup,
                                  uint32_t delayed) {
  uint32_t pairs = microbatches - warmup;
  delayed = std::min(delayed, pairs);
  return {{warmup, {{Op::Forward}}},
          {delayed, {{Op::Forward}, {Op::BackwardInput}}},
          {pairs - delayed,
           {{Op::Forward}, {Op::BackwardInput}, {Op::BackwardWeight}}},
          {warmup, {{Op::BackwardInput}, {Op::BackwardWeight}}},
          {delayed, {{Op::BackwardWeight}}}};
}

std::vector<RankProgram>
schedules::zeroBubble(const ScheduleProblem &problem,
                      llvm::ArrayRef<uint32_t> warmup) {
  return eachRank(problem, [&](Id rank) {
    uint32_t most = std::max(warmup[0], warmup[rank]);
    return delayedWeights(problem.microbatches, warmup[rank],
                          most - warmup[rank]);
  });
}

} // namespace sluice
