//===- compiler/schedules/Interleaved.cpp - 1F1B over a rank's chunks -----===//
//
// Narayanan et al., arXiv 2104.04473: with v stages per rank, s on rank s mod
// p, the bubble is (p-1)(F+B)/v. A chunk runs a group of N microbatches before
// the next chunk does; N = p is the paper's, Megatron allows p <= N <= m. Where
// m is no multiple of N the last group is shorter.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

#include <algorithm>

namespace sluice {

uint32_t schedules::interleavedWarmup(const ScheduleProblem &problem, Id rank) {
  uint64_t all = uint64_t(problem.microbatches) * problem.chunks;
  uint64_t group = std::min(problem.groupSize, problem.microbatches);
  uint64_t count = problem.chunks == 1
                       ? problem.ranks - 1 - rank
                       : 2 * uint64_t(problem.ranks - 1 - rank) +
                             (problem.chunks - 1) * group;
  return static_cast<uint32_t>(std::min(all, count));
}

void schedules::interleavedRules(const ScheduleProblem &problem,
                                 RuleSink sink) {
  uint32_t p = problem.ranks, m = problem.microbatches, n = problem.groupSize;
  if (problem.chunks > 1 && n < p && n < m)
    return sink(true, RuleKey::GroupSize,
                "a group of " + number(n) + " microbatches is fewer than the " +
                    number(p) + " ranks: chunk 1 would wait for rank " +
                    number(p - 1) + " to pass on what rank 0 has not sent",
                "set pipeline.group_size to " + number(p) + " or more");
  uint32_t rest = m % n;
  if (problem.chunks > 1 && rest != 0 && rest < p)
    shortGroup(problem, "group", rest,
               "it drains the pipeline between chunks, and Megatron refuses it",
               sink);
}

} // namespace sluice
