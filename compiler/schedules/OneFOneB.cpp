//===- compiler/schedules/OneFOneB.cpp - Backwards as soon as can be ------===//
//
// PipeDream-flush, Narayanan et al., arXiv 2006.09503: after its warmup a rank
// alternates forward and backward. The bubble is GPipe's, (p-1)(F+B) with equal
// stages, but rank r holds at most min(m, p-r) microbatches in flight.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

#include <algorithm>

namespace sluice {

/// The first backward of rank r can only come back after the p-1-r ranks behind
/// it have had their forward.
uint32_t schedules::oneFOneBWarmup(const ScheduleProblem &problem, Id rank) {
  return std::min(problem.microbatches, problem.ranks - 1 - rank);
}

} // namespace sluice
