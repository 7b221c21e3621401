//===- compiler/schedules/ZeroBubbleV.cpp - Zero bubble in 1F1B's memory --===//
//
// Qi et al., arXiv 2401.10241: two chunks per rank in a V, so that a microbatch
// turns round on the last rank and its loss is on rank 0. With F = I = W and
// m >= 2p no rank waits once it has begun, at p microbatches in flight.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

namespace sluice {

static constexpr Step kForward0{Op::Forward, 0}, kForward1{Op::Forward, 1},
    kInput0{Op::BackwardInput, 0}, kInput1{Op::BackwardInput, 1},
    kWeight0{Op::BackwardWeight, 0}, kWeight1{Op::BackwardWeight, 1};

/// Numbers are made for m >= 2p; below that the steps that have no operation
/// left do nothing.
std::vector<RankProgram> schedules::zeroBubbleV(const ScheduleProblem &problem,
                                                llvm::ArrayRef<uint32_t>) {
  uint32_t p = problem.ranks, m = problem.microbatches;
  return eachRank(problem, [&](Id rank) {
    return RankProgram{
        {2 * (p - rank) - 1, {kForward0}},
        {rank, {kForward1, kForward0}},
        {p - rank, {kForward1, kInput1, kWeight1}},
        {m > p ? m - p : 0,
         {kForward0, kInput0, kWeight0, kForward1, kInput1, kWeight1}},
        {rank, {kInput0, kInput1}},
        {p - rank, {kInput0, kWeight0}},
        {rank, {kWeight1}},
        {rank, {kWeight0}}};
  });
}

} // namespace sluice
