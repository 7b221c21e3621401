//===- runtime/JobResult.cpp - What a job leaves behind ------------------===//
#include "runtime/JobState.h"
#include "runtime/Tensors.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace sluice::runtime {

uint64_t keptSteps(const JobState &job) {
  return std::min(job.options.steps - job.firstStep, kMaxKeptSteps);
}

void allocateResults(JobState &job, Id rank) {
  RankState &state = job.ranks[rank];
  const uint64_t kept = keptSteps(job);
  state.stepEnds.assign(kept + 1, 0); // and the step before
  if (state.lossShare != 0)
    state.losses.assign(kept, 0);
  if (job.options.recordLastStep)
    state.times.assign(state.executor->operations(), OpTime());
  state.costs.assign(state.executor->stageCount(), {});
}

/// When the last rank ended `step`.
static int64_t stepEnd(const JobState &job, uint64_t step) {
  int64_t end = std::numeric_limits<int64_t>::min();
  for (const RankState &rank : job.ranks)
    end = std::max(end, rank.stepEnds[step % rank.stepEnds.size()]);
  return end;
}

double stepSeconds(const JobState &job, uint64_t step) {
  const int64_t before =
      step == job.firstStep ? job.startTime : stepEnd(job, step - 1);
  return 1e-9 * static_cast<double>(stepEnd(job, step) - before);
}

std::optional<double> lossOf(const JobState &job, uint64_t step) {
  double sum = 0;
  bool has = false;
  for (const RankState &rank : job.ranks)
    if (rank.hasLoss) {
      sum += rank.lossShare * rank.losses[step % rank.losses.size()];
      has = true;
    }
  return has ? std::optional(sum) : std::nullopt;
}

static void collectSteps(const JobState &job, JobResult &result) {
  const uint64_t kept = keptSteps(job);
  result.firstStep = job.options.steps - kept;
  for (uint64_t s = result.firstStep; s < job.options.steps; ++s)
    result.stepSeconds.push_back(stepSeconds(job, s));
  for (uint64_t s = result.firstStep; s < job.options.steps; ++s)
    if (std::optional<double> loss = lossOf(job, s))
      result.losses.push_back(*loss);
}

static void addSpans(const Plan &plan, Id rank, const OpTime *times,
                     Timeline &timeline) {
  const std::vector<PlanOp> &ops = plan.ranks[rank].ops;
  const size_t first = timeline.spans.size();
  for (uint32_t i = 0; i < ops.size(); ++i)
    timeline.spans.push_back({times[i].start, times[i].end, rank, ops[i].stage,
                              ops[i].microbatch, ops[i].op, ops[i].stream});
  std::sort(timeline.spans.begin() + static_cast<ptrdiff_t>(first),
            timeline.spans.end(),
            [](const TimelineSpan &a, const TimelineSpan &b) {
              return std::tie(a.start, a.end, a.stream, a.op, a.microbatch) <
                     std::tie(b.start, b.end, b.stream, b.op, b.microbatch);
            });
}

/// Nanoseconds of a clock to ticks since the first start.
static void toTicks(Timeline &timeline) {
  if (timeline.spans.empty())
    return;
  const Ticks origin =
      std::min_element(timeline.spans.begin(), timeline.spans.end(),
                       [](const TimelineSpan &a, const TimelineSpan &b) {
                         return a.start < b.start;
                       })
          ->start;
  const Ticks scale = ticksPer(TimeUnit::Seconds) / 1'000'000'000;
  for (TimelineSpan &span : timeline.spans) {
    span.start = (span.start - origin) * scale;
    span.end = (span.end - origin) * scale;
  }
}

static void collectTimeline(const Plan &plan, const JobState &job,
                            Timeline &timeline) {
  timeline.title = plan.model + ", " + plan.schedule + ", step " +
                   std::to_string(job.options.steps - 1) + ", measured";
  timeline.unit = TimeUnit::Seconds;
  timeline.ranks = static_cast<uint32_t>(plan.ranks.size());
  for (Id rank = 0; rank < plan.ranks.size(); ++rank)
    addSpans(plan, rank, job.ranks[rank].times.data(), timeline);
  toTicks(timeline);
}

static StageCosts means(const StageCostSums &sums) {
  return {.forward = sums.forward.meanSeconds(),
          .recompute = sums.recompute.meanSeconds(),
          .backwardInput = sums.backwardInput.meanSeconds(),
          .backwardWeight = sums.backwardWeight.meanSeconds(),
          .optimizerStep = sums.optimizerStep.meanSeconds()};
}

void collectResults(const Plan &plan, const JobState &job, JobResult &result) {
  result = JobResult();
  collectSteps(job, result);
  result.costs.resize(plan.stages.size());
  for (const RankState &rank : job.ranks) {
    result.arenaBytes.push_back(rank.backend->arenaBytes());
    result.hostArenaBytes.push_back(rank.backend->hostArenaBytes());
  }
  for (Id first = 0; first < plan.ranks.size(); ++first) {
    const RankState &rank = job.ranks[first];
    for (uint32_t i = 0; i < rank.executor->stageCount(); ++i) {
      const Id stage = rank.executor->stageId(i);
      result.costs[stage] = means(rank.costs[i]);
    }
  }
  if (job.options.recordLastStep && job.options.steps != job.firstStep)
    collectTimeline(plan, job, result.lastStep.emplace());
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Status visitWeights(const JobState &job, WeightsSink &sink) {
  std::vector<sluice_tensor> tensors;
  for (const RankState &rank : job.ranks)
    for (uint32_t i = 0; i < rank.executor->stageCount(); ++i)
      if (Status s = addTensors(*job.options.module, rank.executor->instance(i),
                                rank.executor->stageId(i), tensors);
          !s.ok())
        return s;
  if (Status s = mergeTensors(tensors); !s.ok())
    return s;
  if (Status s = sink.begin(tensors.size()); !s.ok())
    return s;
  for (const sluice_tensor &tensor : tensors)
    if (Status s = sink.tensor(tensor); !s.ok())
      return s;
  return sink.end();
}

} // namespace sluice::runtime
