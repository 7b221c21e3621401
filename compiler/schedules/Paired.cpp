//===- compiler/schedules/Paired.cpp - Forwards, pairs, backwards ---------===//
//
// One program for all schedules that differ in their count and placement only:
// `warmup` forwards, then a forward and a backward in turn, then the backwards
// that are left. Without a count it is `naive`: each rank runs a forward and
// its backward before it begins the next microbatch, so at any time one rank
// computes, and the makespan is p·m·(F+B) with equal stages.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

namespace sluice {

std::vector<RankProgram> schedules::paired(const ScheduleProblem &problem,
                                           llvm::ArrayRef<uint32_t> warmup) {
  uint32_t forwards = problem.microbatches * problem.chunks;
  return eachRank(problem, [&](Id rank) {
    return pairedProgram(forwards, warmup.empty() ? 0 : warmup[rank]);
  });
}

} // namespace sluice
