//===- compiler/schedules/GPipe.cpp - All forwards, then all backwards ----===//
//
// Huang et al., arXiv 1811.06965. Bubble (p-1)(F+B) with equal stages; every
// rank holds all m microbatches in flight.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

namespace sluice {

uint32_t schedules::gPipeWarmup(const ScheduleProblem &problem, Id) {
  return problem.microbatches;
}

} // namespace sluice
