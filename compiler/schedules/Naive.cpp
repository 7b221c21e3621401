//===- Naive.cpp - One microbatch at a time ------------------------------===//
//
// Each rank runs a forward and its backward before it begins the next
// microbatch, so at any time one rank computes: makespan p·m·(F+B) with equal
// stages.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

namespace sluice {

std::vector<RankProgram> schedules::Naive(const ScheduleProblem &problem,
                                          llvm::ArrayRef<uint32_t>) {
  return eachRank(problem,
                  [&](Id) { return pairedProgram(problem.microbatches, 0); });
}

} // namespace sluice
