#include "compiler/MemoryAdvice.h"

#include "compiler/MemoryLimit.h"
#include "compiler/Trial.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>

namespace sluice {

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
    if (info.text != spec.pipeline.schedule.value &&
        info.backward != BackwardRule::None)
      tryChange(
          "pipeline.schedule: " + std::string(info.text) + " instead of " +
              spec.pipeline.schedule.value,
          [&](PipelineSpec &pipeline) { setSchedule(pipeline, info.text); });
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
  uint32_t most = *llvm::max_element(counts); // does not fit
  uint32_t low = largestThatFits(
      0, most, [](uint32_t) { return true; },
      [&](uint32_t cap) { return fits(with(capped(cap))).has_value(); });
  if (low < most)
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

void adviseOnLimit(Compilation &compilation) {
  const Spec &spec = *compilation.spec;
  const Plan &plan = *compilation.plan;
  Diagnostic &diagnostic = compilation.diagnostics.lastError();
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
  Bytes needed = neediestRank(plan).second;
  Bytes device = spec.cluster.device ? spec.cluster.device->memory.value : 0;
  if (device == 0 || needed <= device)
    diagnostic.note("would fit: pipeline.memory_limit: " +
                    std::to_string(needed));
  else if (device <= plan.memoryAllowance)
    diagnostic.note("the device's memory is less than what its context is "
                    "allowed; sizes take units, as in 80GiB");
}

} // namespace sluice
