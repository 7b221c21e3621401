//===- compiler/schedules/DualPipeV.cpp - DualPipe cut in half ------------===//
//
// Two chunks per rank in a V in place of DualPipe's two copies (sail-sg and
// DeepSeek-AI, "DualPipeV"): the bubble of a DualPipe on 2p ranks, parameters
// once, p + 1/2 microbatches in flight.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/DualPipes.h"

namespace sluice {

void schedules::dualPipeVRules(const ScheduleProblem &problem, RuleSink sink) {
  uint64_t least = 2 * uint64_t(problem.ranks);
  if (problem.microbatches < least)
    sink(true, RuleKey::Microbatches,
         "schedule dualpipev needs at least 2p = " + number(least) +
             " microbatches, not " + number(problem.microbatches),
         "set pipeline.microbatches to " + number(least));
}

std::vector<RankProgram> schedules::dualPipeV(const ScheduleProblem &problem,
                                              llvm::ArrayRef<uint32_t>) {
  return eachRank(problem, [&](Id rank) {
    return dualPhases(rank, problem.ranks, problem.microbatches);
  });
}

} // namespace sluice
