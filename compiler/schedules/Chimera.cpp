//===- compiler/schedules/Chimera.cpp - 1F1B in both directions -----------===//
//
// Li and Hoefler, arXiv 2107.06925: two copies of the stages, the second
// mirrored. Units of p microbatches, p/2 in each direction, follow each other.
// With F = B a rank at position q of a direction runs forward j of unit u in
// slot 2pu + q + 2j and its backward in slot 2pu + 2p-1-q + 2j. The positions
// of a rank in both directions, q and p-1-q, differ in parity, so no slot is
// taken twice: within a unit, as q + 2j < p-1-q + p, and between units, as
// slots of one parity are then a sequence without a gap. One unit takes
// 3p - 2 slots for 2p of work: a bubble of p - 2. In flight: p/2 + 1 … p.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

#include <algorithm>
#include <utility>

namespace sluice {

void schedules::chimeraRules(const ScheduleProblem &problem, RuleSink sink) {
  evenRanks("chimera", problem, sink);
}

std::vector<RankProgram> schedules::chimera(const ScheduleProblem &problem,
                                            llvm::ArrayRef<uint32_t>) {
  uint32_t p = problem.ranks, half = p / 2;
  return eachRank(problem, [&](Id rank) {
    std::vector<std::pair<uint64_t, Step>> slots;
    uint64_t near = std::min(rank, p - 1 - rank);
    for (uint32_t lane = 0; lane < 2; ++lane) {
      uint64_t position = lane == 0 ? near : p - 1 - near;
      for (uint32_t k = 0; k < (problem.microbatches + 1) / 2; ++k) {
        uint64_t start = uint64_t(2) * p * (k / half) + 2 * (k % half);
        slots.push_back({start + position, {Op::Forward, lane}});
        slots.push_back({start + 2 * p - 1 - position, {Op::Backward, lane}});
      }
    }
    return programInSlots(std::move(slots));
  });
}

} // namespace sluice
