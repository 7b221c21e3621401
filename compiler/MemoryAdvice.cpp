#include "compiler/MemoryAdvice.h"

#include "compiler/MemoryLimit.h"
#include "compiler/Trial.h"
#include "compiler/model/Parallel.h"

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

  /// Keeps the change if it fits.
  void tryChange(const std::string &what,
                 llvm::function_ref<void(PipelineSpec &)> change) {
    Spec changed = spec;
    change(changed.pipeline);
    std::optional<Needs> needs = needsOf(changed);
    if (needs && needs->largestRank <= limit)
      found.push_back({what, *needs});
  }
  /// Notes what fits, the fastest first.
  void tell(TimeUnit unit) {
    llvm::stable_sort(found, [](const auto &a, const auto &b) {
      return a.second.makespan < b.second.makespan;
    });
    for (const auto &[what, needs] : found)
      diagnostic.note("would fit: " + what + " (makespan " +
                      formatTime(needs.makespan, unit) + ", " +
                      formatBytes(needs.largestRank) + " on the largest rank)");
  }
  void trySchedules();
  void tryWarmup();
  void trySmaller(const std::string &key,
                  Located<uint32_t> PipelineSpec::*field);
  void tryMoreRanks();
  void trySavingLess();

private:
  const Spec &spec;
  Bytes limit;
  Diagnostic &diagnostic;
  std::vector<std::pair<std::string, Needs>> found;
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

/// The largest count that fits: the spec's own does not.
void Advice::trySmaller(const std::string &key,
                        Located<uint32_t> PipelineSpec::*field) {
  uint32_t now = (spec.pipeline.*field).value;
  uint32_t count = largestWithin(spec, limit, field, now).count;
  if (count != 0)
    tryChange(key + ": " + std::to_string(count) + " instead of " +
                  std::to_string(now) + " (a smaller batch)",
              [&](PipelineSpec &pipeline) { (pipeline.*field).value = count; });
}

void Advice::tryWarmup() {
  tryChange("pipeline.warmup: auto", [](PipelineSpec &pipeline) {
    pipeline.warmup.value = Warmup(WarmupAuto{});
    pipeline.warmup.given = true;
  });
}

void Advice::tryMoreRanks() {
  uint32_t now = spec.pipeline.ranks.value;
  tryChange("pipeline.ranks: " + std::to_string(now * 2) + " instead of " +
                std::to_string(now),
            [&](PipelineSpec &pipeline) { pipeline.ranks.value = now * 2; });
}

/// What makes a transformer's forward save less.
void Advice::trySavingLess() {
  struct Row {
    const char *what;
    bool sequence;
    RecomputePolicy policy;
  };
  constexpr Row kRows[] = {
      {"pipeline.recompute: selective", false, RecomputePolicy::Selective},
      {"pipeline.recompute: full", false, RecomputePolicy::Full},
      {"pipeline.sequence_parallel: true", true, RecomputePolicy::None},
      {"pipeline.sequence_parallel: true with pipeline.recompute: selective",
       true, RecomputePolicy::Selective},
  };
  bool whole = spec.pipeline.tensorParallel.value > 1 &&
               !spec.pipeline.sequenceParallel.value;
  for (const Row &row : kRows) {
    bool again = row.policy != RecomputePolicy::None;
    if ((row.sequence && !whole) || (again && recomputes(spec.pipeline)))
      continue;
    tryChange(row.what, [&](PipelineSpec &pipeline) {
      pipeline.sequenceParallel.value |= row.sequence;
      if (again)
        pipeline.recompute.value = row.policy;
    });
  }
}

void adviseOnLimit(Compilation &compilation) {
  const Spec &spec = *compilation.spec;
  const Plan &plan = *compilation.plan;
  Diagnostic &diagnostic = compilation.diagnostics.lastError();
  Advice advice(spec, plan.memoryLimit, diagnostic);
  advice.trySchedules();
  const ScheduleInfo *schedule = findSchedule(spec.pipeline.schedule.value);
  if (schedule && schedule->adjustableWarmup)
    advice.tryWarmup();
  if (spec.model.transformer) {
    advice.trySavingLess();
    advice.trySmaller("pipeline.microbatch_size",
                      &PipelineSpec::microbatchSize);
  }
  advice.trySmaller("pipeline.microbatches", &PipelineSpec::microbatches);
  advice.tryMoreRanks();
  advice.tell(plan.timeUnit);
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
