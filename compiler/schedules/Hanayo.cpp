//===- Hanayo.cpp - Waves over a V of many turns -------------------------===//
//
// Liu et al., arXiv 2308.15762: v/2 waves, each down the ranks and up again, so
// v is even and a rank holds v stages of a zigzag. The paper gives the order by
// pictures; here it is found by the rule they follow: a backward that is ready
// goes first, then the forward that is nearest to the end. A microbatch begins
// while rank 0 holds less than p whole ones; none holds more than 1.5 p.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/UnitTime.h"

namespace sluice {

void schedules::hanayoRules(const ScheduleProblem &problem, RuleSink sink) {
  uint32_t v = problem.chunks;
  if (v % 2 != 0)
    sink(true, RuleKey::VirtualStages,
         "schedule hanayo needs an even number of virtual stages per rank (two "
         "a wave), not " +
             std::to_string(v),
         "set pipeline.virtual_stages to " +
             (v > 1 ? std::to_string(v - 1) + " or " : "") +
             std::to_string(v + 1));
}

std::vector<RankProgram> schedules::Hanayo(const ScheduleProblem &problem,
                                           llvm::ArrayRef<uint32_t>) {
  return eagerWave(problem);
}

} // namespace sluice
