//===- compiler/schedules/VMin.cpp - A third of the activations of 1F1B ---===//
//
// Qi et al., arXiv 2405.15362: the V whose lifespans are shortest; ⌊(p+4)/3⌋
// microbatches in flight. With F = I = W the bubble is 2p - 2.5 at most, 2p -
// 3.5 where p is divisible by 3.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/UnitTime.h"

namespace sluice {

std::vector<RankProgram> schedules::vMin(const ScheduleProblem &problem,
                                         llvm::ArrayRef<uint32_t>) {
  uint32_t p = problem.ranks, k = p % 3 == 0 ? 2 : 0;
  return repeatedPattern(problem, 2 * ((p + 4) / 3), [&](Id i) -> PatternSlots {
    return {{i, 2 * p - i - 1, 2 * p + k + i, 4 * p + k - i - 1},
            k + i + p / 3};
  });
}

} // namespace sluice
