//===- runtime/JobResult.cpp - What a job leaves behind ------------------===//
#include "ir/Diagnostics.h"
#include "runtime/JobState.h"
#include "runtime/Tensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>

namespace sluice::runtime {

uint64_t keptSteps(const JobState &job) {
  return std::min(job.options.steps - job.firstStep, kMaxKeptSteps);
}

void allocateSteps(JobState &job, Id rank) {
  RankState &state = job.ranks[rank];
  const uint64_t kept = keptSteps(job);
  state.stepEnds.assign(kept + 1, 0); // and the step before
  if (state.lossShare != 0)
    state.losses.assign(kept, 0);
}

void allocateResults(JobState &job, Id rank) {
  RankState &state = job.ranks[rank];
  if (job.options.recordLastStep)
    state.times.assign(state.executor->operations(), OpTime());
  state.costs.assign(state.executor->stageCount(), {});
}

void keepStepEnd(JobState &job, Id rank, const StepEnd &end) {
  RankState &state = job.ranks[rank];
  if (!state.stepEnds.empty())
    state.stepEnds[end.step % state.stepEnds.size()] = end.end;
  if (!end.hasLoss || state.losses.empty())
    return;
  if (!state.hasLoss) // read by who tells of an earlier step meanwhile
    state.hasLoss = true;
  state.losses[end.step % state.losses.size()] = end.loss;
}

RankReport reportOf(const JobState &job, Id rank) {
  const RankState &state = job.ranks[rank];
  RankReport report;
  report.arenaBytes = state.backend->arenaBytes();
  report.hostArenaBytes = state.backend->hostArenaBytes();
  for (uint32_t i = 0; i < state.executor->stageCount(); ++i)
    report.stages.push_back(state.executor->stageId(i));
  report.costs = state.costs;
  report.times = state.times;
  if (job.liaison)
    for (OpTime &time : report.times)
      if (time.start != 0 || time.end != 0)
        time = {time.start + job.liaison->clockOffset(),
                time.end + job.liaison->clockOffset()};
  return report;
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

static void addSpans(const Plan &plan, Id rank, std::span<const OpTime> times,
                     Timeline &timeline) {
  const std::vector<PlanOp> &ops = plan.ranks[rank].ops;
  const size_t first = timeline.spans.size();
  for (uint32_t i = 0; i < std::min(ops.size(), times.size()); ++i)
    timeline.spans.push_back({times[i].start, times[i].end, rank, ops[i].stage,
                              ops[i].microbatch, ops[i].op, ops[i].stream});
  std::sort(timeline.spans.begin() + static_cast<ptrdiff_t>(first),
            timeline.spans.end(),
            [](const TimelineSpan &a, const TimelineSpan &b) {
              return std::tie(a.start, a.end, a.stream, a.op, a.microbatch) <
                     std::tie(b.start, b.end, b.stream, b.op, b.microbatch);
            });
}

void toTicks(Timeline &timeline) {
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
    addSpans(plan, rank, job.ranks[rank].report.times, timeline);
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
    result.arenaBytes.push_back(rank.report.arenaBytes);
    result.hostArenaBytes.push_back(rank.report.hostArenaBytes);
  }
  for (Id first = 0; first < plan.ranks.size(); ++first) {
    const RankReport &report = job.ranks[first].report;
    for (size_t i = 0; i < report.stages.size(); ++i)
      if (report.stages[i] < plan.stages.size() && i < report.costs.size())
        result.costs[report.stages[i]] = means(report.costs[i]);
  }
  if (job.options.recordLastStep && job.options.steps != job.firstStep)
    collectTimeline(plan, job, result.lastStep.emplace());
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Status tensorsHere(const JobState &job, std::vector<HeldTensor> &tensors) {
  std::vector<sluice_tensor> ofStage;
  for (Id rank = job.firstHere; rank < job.firstHere + job.countHere; ++rank) {
    const Executor &executor = *job.ranks[rank].executor;
    for (uint32_t i = 0; i < executor.stageCount(); ++i) {
      ofStage.clear();
      if (Status s = addTensors(*job.options.module, executor.instance(i),
                                executor.stageId(i), ofStage);
          !s.ok())
        return s;
      for (const sluice_tensor &tensor : ofStage)
        tensors.push_back({.name = tensor.name,
                           .position = tensor.position,
                           .bytes = tensor.bytes,
                           .rank = rank,
                           .index = 0,
                           .data = tensor.data});
    }
  }
  return {};
}

static bool isCopy(const HeldTensor &a, const HeldTensor &b) {
  return a.position == b.position && a.name == b.name;
}

static Status copiesDiffer(const HeldTensor &tensor) {
  return Status::environment("the copies of tensor " + escaped(tensor.name) +
                             " differ");
}

/// Whether both lie in this process and are equal, or one does not.
static bool equalHere(const HeldTensor &a, const HeldTensor &b) {
  return a.bytes == b.bytes &&
         (!a.data || !b.data || std::memcmp(a.data, b.data, a.bytes) == 0);
}

/// Gets the bytes of a tensor: where they lie, or in `buffer`.
static Status bytesOf(const JobState &job, const HeldTensor &tensor,
                      std::string &buffer, const void *&data) {
  data = tensor.data;
  if (data)
    return {};
  Status status = job.liaison->fetch(tensor, buffer);
  data = buffer.data();
  return status;
}

/// Hands on a tensor that several stages or replicas hold, in equal copies.
static Status visitCopies(const JobState &job,
                          std::span<const HeldTensor> copies,
                          WeightsSink &sink) {
  std::string buffer;
  std::string other;
  const void *data = nullptr;
  const void *otherData = nullptr;
  const HeldTensor &first = copies[0];
  if (Status s = bytesOf(job, first, buffer, data); !s.ok())
    return s;
  for (const HeldTensor &copy : copies.subspan(1)) {
    if (first.data && copy.data)
      continue; // compared before
    if (Status s = bytesOf(job, copy, other, otherData); !s.ok())
      return s;
    if (std::memcmp(data, otherData, first.bytes) != 0)
      return copiesDiffer(first);
  }
  sluice_tensor tensor = {};
  tensor.name = first.name.c_str();
  tensor.data = const_cast<void *>(data); // a sink only reads it
  tensor.bytes = first.bytes;
  tensor.position = first.position;
  return sink.tensor(tensor);
}

/// The end of the copies that begin at `first`.
static size_t copiesEnd(std::span<const HeldTensor> tensors, size_t first) {
  size_t end = first + 1;
  while (end < tensors.size() && isCopy(tensors[first], tensors[end]))
    ++end;
  return end;
}

Status visitWeights(const JobState &job, WeightsSink &sink) {
  std::vector<HeldTensor> tensors;
  if (Status s = tensorsHere(job, tensors); !s.ok())
    return s;
  if (job.liaison) {
    const std::vector<HeldTensor> others = job.liaison->offered();
    tensors.insert(tensors.end(), others.begin(), others.end());
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const HeldTensor &a, const HeldTensor &b) {
                     return a.position != b.position ? a.position < b.position
                                                     : a.name < b.name;
                   });
  uint64_t count = 0;
  for (size_t i = 0, end; i < tensors.size(); i = end, ++count) {
    end = copiesEnd(tensors, i);
    for (size_t copy = i + 1; copy < end; ++copy)
      if (!equalHere(tensors[i], tensors[copy]))
        return copiesDiffer(tensors[i]);
  }
  if (Status s = sink.begin(count); !s.ok())
    return s;
  for (size_t i = 0, end; i < tensors.size(); i = end) {
    end = copiesEnd(tensors, i);
    if (Status s =
            visitCopies(job, std::span(tensors).subspan(i, end - i), sink);
        !s.ok())
      return s;
  }
  return sink.end();
}

} // namespace sluice::runtime
