//===- compiler/schedules/Eager.cpp - 1F1B whose forwards hide messages ---===//
//
// Of the kind that JAX-based pipelines use: twice the warmup of 1F1B, so that
// with a message time C up to half of F + B the bubble stays
// (p-1)(F+B+2C) instead of growing with m. Rank r holds min(m, 2(p-r)-1).
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

#include <algorithm>

namespace sluice {

uint32_t schedules::eagerWarmup(const ScheduleProblem &problem, Id rank) {
  return std::min(problem.microbatches, 2 * (problem.ranks - 1 - rank));
}

} // namespace sluice
