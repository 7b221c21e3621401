//===- Naive.cpp - One microbatch at a time ------------------------------===//
//
// Each rank runs a forward and its backward before it begins the next
// microbatch, so at any time one rank computes: makespan p·m·(F+B) with equal
// stages.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

namespace sluice {

RankProgram schedules::Naive(const ScheduleProblem &problem, Id, uint32_t) {
  return pairedProgram(problem.microbatches, 0);
}

} // namespace sluice
