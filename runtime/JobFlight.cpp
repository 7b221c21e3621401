//===- runtime/JobFlight.cpp - What the ranks of a job did last -----------===//
#include "runtime/Clock.h"
#include "runtime/JobState.h"

#include <algorithm>

namespace sluice::runtime {

/// With all that the list says of an operation: other processes have no list.
static TimelineSpan spanOf(const RankPlan &list, Id rank,
                           const FlightEntry &entry, int64_t offset,
                           int64_t now) {
  const PlanOp &op = list.ops[entry.op];
  const bool open = entry.end == 0;
  const int64_t end = std::max(entry.start, open ? now : entry.end);
  return {entry.start + offset,
          end + offset,
          rank,
          op.stage,
          op.microbatch,
          op.op,
          op.stream,
          static_cast<Id>(entry.step),
          open};
}

void reportFlight(const Plan &plan, JobState &job) {
  if (!job.options.flight)
    return;
  const int64_t offset = job.liaison ? job.liaison->clockOffset() : 0;
  const int64_t now = nowNanoseconds();
  for (Id rank = job.firstHere; rank < job.firstHere + job.countHere; ++rank) {
    const RankPlan &list = plan.ranks[globalRank(plan, rank).rank];
    std::vector<TimelineSpan> &spans = job.ranks[rank].report.flight;
    spans.clear();
    for (const FlightEntry &entry : job.progress[rank].flight.last())
      if (entry.op < list.ops.size()) // else it is just being written
        spans.push_back(spanOf(list, rank, entry, offset, now));
  }
}

void collectFlight(const Plan &plan, JobState &job, JobResult &result) {
  if (!job.options.flight)
    return;
  Timeline &timeline = result.flight.emplace();
  timeline.title = plan.model + ", " + plan.schedule + ", the last operations";
  timeline.unit = TimeUnit::Seconds;
  timeline.ranks = static_cast<uint32_t>(job.ranks.size());
  const std::lock_guard lock(job.mutex); // reports may still come
  for (const RankState &rank : job.ranks)
    timeline.spans.insert(timeline.spans.end(), rank.report.flight.begin(),
                          rank.report.flight.end());
  toTicks(timeline);
}

void passFlight(const Plan &plan, JobState &job,
                const Liaison::Verdict &verdict, JobResult &result) {
  if (!job.options.flight)
    return;
  reportFlight(plan, job);
  if (!verdict.speaks) {
    job.liaison->tellReport(job.ranks[job.firstHere].report, verdict.speaker);
    return;
  }
  job.liaison->awaitReports();
  collectFlight(plan, job, result);
}

} // namespace sluice::runtime
