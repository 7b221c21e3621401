//===- compiler/schedules/BreadthFirst.cpp - Chunk by chunk ---------------===//
//
// Looped BFS, Lamy-Poirier, arXiv 2211.05953: GPipe over v stages per rank,
// bubble (p-1)(F+B)/v, all microbatches in flight. Backwards are in order of
// microbatch (PyTorch runs them from the last to the first).
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

namespace sluice {

uint32_t schedules::breadthFirstWarmup(const ScheduleProblem &problem, Id) {
  return problem.microbatches * problem.chunks;
}

} // namespace sluice
