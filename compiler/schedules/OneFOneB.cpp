//===- OneFOneB.cpp - A backward as soon as there is one -----------------===//
//
// PipeDream-flush, Narayanan et al., arXiv 2006.09503: after its warmup a rank
// alternates forward and backward. The bubble is GPipe's, (p-1)(F+B) with equal
// stages, but rank r holds at most min(m, p-r) microbatches in flight.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

namespace sluice {

RankProgram schedules::OneFOneB(const ScheduleProblem &problem, Id,
                                uint32_t warmup) {
  return pairedProgram(problem.microbatches, warmup);
}

} // namespace sluice
