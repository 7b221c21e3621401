//===- compiler/schedules/DualPipe.cpp - Two pipelines face to face -------===//
//
// DeepSeek-AI, arXiv 2412.19437: two copies of the stages, the second mirrored,
// half of the microbatches each; a forward of one runs together with a backward
// of the other. Bubble (p/2-1)(F&B + B - 3W) with equal stages; p+1
// microbatches in flight.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/DualPipes.h"

#include <algorithm>

namespace sluice {

void schedules::dualPipeRules(const ScheduleProblem &problem, RuleSink sink) {
  uint32_t p = problem.ranks, m = problem.microbatches;
  evenRanks("dualpipe", problem, sink);
  if (m % 2 != 0 || m < 2 * uint64_t(p))
    sink(true, RuleKey::Microbatches,
         "schedule dualpipe needs an even number of microbatches, at least 2p "
         "= " +
             number(2 * uint64_t(p)) + ", not " + number(m),
         "set pipeline.microbatches to " +
             number(std::max(2 * uint64_t(p), m + uint64_t(m % 2))));
}

std::vector<RankProgram> schedules::dualPipe(const ScheduleProblem &problem,
                                             llvm::ArrayRef<uint32_t>) {
  return eachRank(problem, [&](Id rank) {
    return dualPhases(std::min(rank, problem.ranks - 1 - rank),
                      problem.ranks / 2, problem.microbatches / 2);
  });
}

} // namespace sluice
