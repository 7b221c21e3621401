#include "compiler/MemoryAdvice.h"

#include "compiler/passes/PassManager.h"
#include "compiler/simulate/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>

namespace sluice {

static std::string exactly(Bytes bytes) {
  if (bytes < 1024)
    return std::to_string(bytes) + " bytes";
  return formatBytes(bytes) + " (" + std::to_string(bytes) + " bytes)";
}

/// The rank that needs most, and what is compared with the limit.
static std::pair<Id, Bytes> largestRank(const Plan &plan) {
  Id largest = 0;
  for (Id rank = 1; rank < plan.ranks.size(); ++rank)
    if (plan.ranks[rank].arenaBytes > plan.ranks[largest].arenaBytes)
      largest = rank;
  return {largest, plan.ranks[largest].arenaBytes + plan.memoryAllowance};
}

/// Bytes of the largest rank if `spec` is compiled; none if it cannot be.
static std::optional<Bytes> bytesNeeded(const Spec &spec) {
  Diagnostics ignored;
  Compilation trial(ignored);
  trial.spec = spec;
  if (!runPipeline(pipelineBefore("verify-plan"), trial))
    return std::nullopt;
  return largestRank(*trial.plan).second;
}

namespace {
/// Tries changes of a spec and notes those that fit.
class Advice {
public:
  Advice(const Spec &original, Bytes memoryLimit, Diagnostic &sink)
      : spec(original), limit(memoryLimit), diagnostic(sink) {}

  void tryChange(const std::string &what,
                 llvm::function_ref<void(PipelineSpec &)> change) {
    if (std::optional<Bytes> needed = fits(change))
      diagnostic.note("would fit: " + what + " (" + formatBytes(*needed) +
                      " on the largest rank)");
  }
  void trySchedules();
  void tryWarmup(llvm::ArrayRef<uint32_t> counts);
  void trySmaller(const std::string &key,
                  Located<uint32_t> PipelineSpec::*field);
  void tryMoreRanks();

private:
  /// Bytes of the largest rank after the change, if they are within the limit.
  std::optional<Bytes>
  fits(llvm::function_ref<void(PipelineSpec &)> change) const {
    Spec changed = spec;
    change(changed.pipeline);
    std::optional<Bytes> needed = bytesNeeded(changed);
    return needed && *needed <= limit ? needed : std::nullopt;
  }

  const Spec &spec;
  Bytes limit;
  Diagnostic &diagnostic;
};
} // namespace

void Advice::trySchedules() {
  for (const ScheduleInfo &info : allSchedules())
    if (info.text != spec.pipeline.schedule.value)
      tryChange("pipeline.schedule: " + std::string(info.text) +
                    " instead of " + spec.pipeline.schedule.value,
                [&](PipelineSpec &pipeline) {
                  pipeline.schedule.value = std::string(info.text);
                });
}

void Advice::trySmaller(const std::string &key,
                        Located<uint32_t> PipelineSpec::*field) {
  uint32_t now = (spec.pipeline.*field).value;
  if (now > 1)
    tryChange(
        key + ": " + std::to_string(now / 2) + " instead of " +
            std::to_string(now) + " (a smaller batch)",
        [&](PipelineSpec &pipeline) { (pipeline.*field).value = now / 2; });
}

/// The largest cap on the warmup counts that fits: bytes only grow with it.
void Advice::tryWarmup(llvm::ArrayRef<uint32_t> counts) {
  auto capped = [&](uint32_t cap) {
    std::vector<uint32_t> lower(counts);
    for (uint32_t &count : lower)
      count = std::min(count, cap);
    return lower;
  };
  auto with = [](std::vector<uint32_t> list) {
    return [list](PipelineSpec &pipeline) {
      pipeline.warmup.value = Warmup(list);
      pipeline.warmup.given = true;
    };
  };
  uint32_t high = *llvm::max_element(counts); // does not fit
  uint32_t low = 0;                           // may fit
  while (low + 1 < high) {
    uint32_t middle = low + (high - low) / 2;
    (fits(with(capped(middle))) ? low : high) = middle;
  }
  if (low < *llvm::max_element(counts))
    tryChange("pipeline.warmup: [" +
                  llvm::join(llvm::map_range(capped(low),
                                             [](uint32_t count) {
                                               return std::to_string(count);
                                             }),
                             ", ") +
                  "]",
              with(capped(low)));
}

void Advice::tryMoreRanks() {
  uint32_t now = spec.pipeline.ranks.value;
  tryChange("pipeline.ranks: " + std::to_string(now * 2) + " instead of " +
                std::to_string(now),
            [&](PipelineSpec &pipeline) { pipeline.ranks.value = now * 2; });
}

/// The place of what sets the limit.
static SourceLocation limitLocation(const Spec &spec) {
  if (spec.pipeline.memoryLimit.given)
    return spec.pipeline.memoryLimit.where;
  return spec.cluster.device ? spec.cluster.device->memory.where
                             : spec.pipeline.where;
}

static void noteContributors(Diagnostic &diagnostic, const MemoryPeak &peak) {
  for (const MemoryContributor &part : peak.contributors) {
    std::string text =
        exactly(part.bytes) + " " + std::string(info(part.kind).text);
    if (part.stage != kNone)
      text += " of stage " + std::to_string(part.stage);
    if (part.buffers > 1)
      text += ", " + std::to_string(part.buffers) + " buffers";
    diagnostic.note(std::move(text));
  }
}

void reportOverLimit(Compilation &compilation) {
  const Spec &spec = *compilation.spec;
  const Plan &plan = *compilation.plan;
  auto [rank, needed] = largestRank(plan);
  size_t others = std::count_if(
      plan.ranks.begin(), plan.ranks.end(), [&](const RankPlan &list) {
        return list.arenaBytes + plan.memoryAllowance > plan.memoryLimit;
      });
  MemoryPeak peak = findMemoryPeak(plan.ranks[rank]);
  std::string message = "rank " + std::to_string(rank) + " needs " +
                        exactly(needed) + ", " +
                        std::to_string(needed - plan.memoryLimit) +
                        " bytes over the limit of " + exactly(plan.memoryLimit);
  if (others > 1)
    message += "; " + std::to_string(others) + " ranks are over it";
  Diagnostic &diagnostic =
      compilation.diagnostics.error(limitLocation(spec), std::move(message));
  if (peak.position != kNone) {
    const PlanOp &op = plan.ranks[rank].ops[peak.position];
    diagnostic.note("the peak is at " + opName(op.op, op.stage, op.microbatch) +
                        " with " + exactly(peak.bytes) + " in use, most of it:",
                    plan.stages[op.stage].location);
  }
  noteContributors(diagnostic, peak);
  if (plan.memoryAllowance)
    diagnostic.note(exactly(plan.memoryAllowance) +
                    " allowed for the device's context");

  Advice advice(spec, plan.memoryLimit, diagnostic);
  advice.trySchedules();
  const ScheduleInfo *schedule = findSchedule(spec.pipeline.schedule.value);
  if (schedule && schedule->adjustableWarmup)
    advice.tryWarmup(compilation.warmup->perRank);
  if (spec.model.transformer)
    advice.trySmaller("pipeline.microbatch_size",
                      &PipelineSpec::microbatchSize);
  advice.trySmaller("pipeline.microbatches", &PipelineSpec::microbatches);
  advice.tryMoreRanks();
  Bytes device = spec.cluster.device ? spec.cluster.device->memory.value : 0;
  if (device == 0 || needed <= device)
    diagnostic.note("would fit: pipeline.memory_limit: " +
                    std::to_string(needed));
  else if (device <= plan.memoryAllowance)
    diagnostic.note("the device's memory is less than what its context is "
                    "allowed; sizes take units, as in 80GiB");
}

} // namespace sluice
