//===- compiler/schedules/VHalf.cpp - Half the activations of 1F1B --------===//
//
// Qi et al., arXiv 2405.15362: chunks in a V whose forwards and backwards
// follow each other at such distances that ⌊(p+2)/2⌋ microbatches in flight
// suffice. With F = I = W the bubble is 1.5p - 3.5 at most, even p >= 4.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/UnitTime.h"

namespace sluice {

std::vector<RankProgram> schedules::vHalf(const ScheduleProblem &problem,
                                          llvm::ArrayRef<uint32_t>) {
  uint32_t p = problem.ranks, k = p % 2 == 0 ? 3 : 0;
  return repeatedPattern(problem, 2 * ((p + 2) / 2), [&](Id i) -> PatternSlots {
    return {{2 * i, 3 * p - i - 2, 3 * p + k + 2 * i - 1, 6 * p + k - i - 2},
            p + k + 2 * i + 1};
  });
}

} // namespace sluice
