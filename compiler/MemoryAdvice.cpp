//===- compiler/MemoryAdvice.cpp - Changes of a spec that would fit -------===//
//
// A change is settings of keys of `pipeline` in the spec's own words, applied
// by the reader of specs: what is found here and what a user then writes is the
// same. A ladder is a list of changes, each of which saves more than the one
// before.
//
//===----------------------------------------------------------------------===//
#include "compiler/MemoryAdvice.h"

#include "compiler/MemoryLimit.h"
#include "ir/Words.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <algorithm>
#include <tuple>

namespace sluice {

namespace {

using Settings = std::vector<Override>;
using Ladder = std::vector<Settings>;

/// The cheapest stages that are enough.
const Settings kRecomputeAuto = {{"recompute", "auto"}};
/// All stages.
const Settings kOffload = {{"offload", "activations"}};

/// `settings` with those of `more`, which come instead of the same keys.
Settings joined(Settings settings, const Settings &more) {
  for (const Override &each : more) {
    llvm::erase_if(settings,
                   [&](const Override &old) { return old.key == each.key; });
    settings.push_back(each);
  }
  return settings;
}

uint64_t devicesOf(const PipelineSpec &pipeline) {
  return uint64_t(pipeline.ranks) * pipeline.tensorParallel *
         pipeline.contextParallel * pipeline.dataParallel;
}

uint64_t sequencesOf(const PipelineSpec &pipeline) {
  return uint64_t(pipeline.microbatches) * pipeline.microbatchSize *
         pipeline.dataParallel;
}

/// Ladders of what a spec can be given.
class Ladders {
public:
  explicit Ladders(const Spec &original)
      : spec(original), pipeline(original.pipeline),
        transformer(original.model.transformer.has_value()) {}

  Ladder recompute() const;
  Ladder offload() const;
  Ladder sequenceParallel() const;
  Ladder zero() const;
  Ladder expertParallel() const;
  Ladder tensorParallel() const;
  Ladder ranks() const;
  Ladder oneSequence() const;
  Ladder copies() const;
  Ladder tradedTensorParallel() const;
  Ladder tradedRanks() const { return traded("ranks", pipeline.ranks); }

private:
  Ladder traded(const char *key, uint64_t now) const;
  /// 2, 4 and 8 times a count.
  static Ladder multiples(const char *key, uint64_t now) {
    Ladder ladder;
    for (uint64_t factor : {2, 4, 8})
      ladder.push_back({{key, number(now * factor)}});
    return ladder;
  }

  const Spec &spec;
  const PipelineSpec &pipeline;
  bool transformer;
};

Ladder Ladders::recompute() const {
  const auto *all = std::get_if<RecomputePolicy>(&*pipeline.recompute);
  Ladder ladder;
  for (auto policy : {RecomputePolicy::Selective, RecomputePolicy::Full})
    if (all && policy > *all)
      ladder.push_back(
          {{"recompute", std::string(recomputePolicyName(policy))}});
  return ladder;
}

bool offloadsAll(const PipelineSpec &pipeline) {
  const auto *all = std::get_if<bool>(&*pipeline.offload);
  return all && *all;
}

/// Where the spec says how fast copies to host memory are.
Ladder Ladders::offload() const {
  if (!spec.cluster.hostLink.given || offloadsAll(pipeline))
    return {};
  return {kOffload};
}

Ladder Ladders::sequenceParallel() const {
  if (!transformer || pipeline.tensorParallel.value == 1 ||
      pipeline.sequenceParallel.value)
    return {};
  return {{{"sequence_parallel", "true"}}};
}

Ladder Ladders::zero() const {
  Ladder ladder;
  uint64_t copies = uint64_t(pipeline.dataParallel) * pipeline.contextParallel;
  for (uint64_t level = pipeline.zero + 1; copies > 1 && level <= 3; ++level)
    ladder.push_back({{"zero", number(level)}});
  return ladder;
}

Ladder Ladders::expertParallel() const {
  if (!transformer || !spec.model.transformer->experts.given)
    return {};
  return multiples("expert_parallel", pipeline.expertParallel);
}

/// Explicit layers have the times and sizes of one device.
Ladder Ladders::tensorParallel() const {
  Ladder ladder;
  if (!transformer)
    return ladder;
  for (const Settings &more :
       multiples("tensor_parallel", pipeline.tensorParallel)) {
    ladder.push_back(more);
    if (!pipeline.sequenceParallel.value)
      ladder.push_back(joined(more, {{"sequence_parallel", "true"}}));
  }
  return ladder;
}

/// With the spec's own layout, or where it does not fit so many stages, one of
/// the compiler's.
Ladder Ladders::ranks() const {
  Ladder ladder;
  for (const Settings &more : multiples("ranks", pipeline.ranks)) {
    ladder.push_back(more);
    if (!std::holds_alternative<LayoutAuto>(*pipeline.layout))
      ladder.push_back(joined(more, {{"layout", "auto"}}));
  }
  return ladder;
}

Ladder Ladders::oneSequence() const {
  if (!transformer || pipeline.microbatchSize.value == 1)
    return {};
  return {{{"microbatch_size", "1"}}};
}

/// Fewer copies of more devices each: as many devices, and sequences, as now.
Ladder Ladders::traded(const char *key, uint64_t now) const {
  Ladder ladder;
  uint64_t copies = pipeline.dataParallel, count = pipeline.microbatches;
  for (uint64_t factor : {2, 4, 8})
    if (copies % factor == 0)
      ladder.push_back({{key, number(now * factor)},
                        {"data_parallel", number(copies / factor)},
                        {"microbatches", number(count * factor)}});
  return ladder;
}

Ladder Ladders::tradedTensorParallel() const {
  return transformer ? traded("tensor_parallel", pipeline.tensorParallel)
                     : Ladder();
}

/// More copies, which divide the optimizer.
Ladder Ladders::copies() const {
  Ladder ladder = multiples("data_parallel", pipeline.dataParallel);
  for (Settings &settings : ladder)
    if (pipeline.zero.value == 0)
      settings.push_back({"zero", "1"});
  return ladder;
}

/// Tries changes of a spec and notes those that fit.
class Advice {
public:
  Advice(const Spec &original, Bytes memoryLimit)
      : spec(original), limit(memoryLimit), ladders(original) {}

  std::vector<Suggestion> find();

private:
  /// The changed spec and its needs; none if it is refused.
  std::optional<Suggestion> price(const Settings &settings) const;
  /// Keeps the change if it fits.
  bool offer(const Settings &settings);
  void offerAll(const Ladder &ladder) {
    for (const Settings &settings : ladder)
      offer(settings);
  }
  /// The first that fits.
  void offerFirst(const Ladder &ladder) {
    llvm::any_of(ladder,
                 [&](const Settings &settings) { return offer(settings); });
  }
  void offerSchedules();
  void offerSmaller(const char *key, Located<uint32_t> PipelineSpec::*field);
  void offerPair();
  void offerTogether();
  Settings needed(Settings settings) const;

  const Spec &spec;
  Bytes limit;
  Ladders ladders;
  std::vector<Suggestion> found;
};

std::optional<Suggestion> Advice::price(const Settings &settings) const {
  Spec changed = spec;
  Diagnostics ignored;
  if (!changePipeline(changed, settings, ignored))
    return std::nullopt;
  std::optional<Needs> needs = needsOf(changed);
  if (!needs)
    return std::nullopt;
  return Suggestion{settings, *needs, devicesOf(changed.pipeline),
                    sequencesOf(changed.pipeline)};
}

bool Advice::offer(const Settings &settings) {
  std::optional<Suggestion> priced = price(settings);
  bool fits = priced && priced->needs.largestRank <= limit;
  if (fits)
    found.push_back(std::move(*priced));
  return fits;
}

void Advice::offerSchedules() {
  for (const ScheduleInfo &info : allSchedules())
    if (info.text != spec.pipeline.schedule.value &&
        info.backward != BackwardRule::None)
      offer({{"schedule", std::string(info.text)}});
  const ScheduleInfo *own = findSchedule(spec.pipeline.schedule.value);
  if (own && own->adjustableWarmup)
    offer({{"warmup", "auto"}});
}

/// The largest count that fits: the spec's own does not.
void Advice::offerSmaller(const char *key,
                          Located<uint32_t> PipelineSpec::*field) {
  uint32_t now = (spec.pipeline.*field).value;
  if (uint32_t count = largestWithin(spec, limit, field, now).count)
    offer({{key, number(count)}});
}

/// Sequence parallelism divides what selective recomputation leaves.
void Advice::offerPair() {
  for (const Settings &sequence : ladders.sequenceParallel())
    for (const Settings &recompute : ladders.recompute())
      if (offer(joined(sequence, recompute)))
        return;
}

/// Of changes that together fit, those that it takes.
Settings Advice::needed(Settings settings) const {
  for (size_t i = 0; i < settings.size();) {
    Settings fewer = settings;
    fewer.erase(fewer.begin() + i);
    std::optional<Suggestion> priced = price(fewer);
    if (priced && priced->needs.largestRank <= limit)
      settings = std::move(fewer);
    else
      ++i;
  }
  return settings;
}

/// Where no change fits alone: steps that save, the ones with the same devices
/// first, until it fits.
void Advice::offerTogether() {
  Settings taken;
  std::optional<Suggestion> now = price(taken);
  for (const Ladder &ladder :
       {ladders.sequenceParallel(), ladders.oneSequence(), ladders.offload(),
        ladders.recompute(), ladders.zero(), ladders.expertParallel(),
        ladders.tensorParallel(), ladders.ranks(), ladders.copies()})
    for (const Settings &step : ladder) {
      std::optional<Suggestion> next = price(joined(taken, step));
      if (!now || !next || next->needs.largestRank >= now->needs.largestRank)
        continue;
      now = next;
      taken = next->settings;
      if (now->needs.largestRank > limit)
        continue;
      taken = needed(taken);
      offer(taken);
      if (llvm::any_of(taken, [](const Override &each) {
            return each.key == kRecomputeAuto.front().key;
          }))
        offer(joined(taken, kRecomputeAuto));
      return;
    }
}

std::vector<Suggestion> Advice::find() {
  offerSchedules();
  if (!std::holds_alternative<RecomputeAuto>(*spec.pipeline.recompute))
    offer(kRecomputeAuto);
  offerAll(ladders.recompute());
  offerFirst(ladders.offload());
  offerFirst(ladders.sequenceParallel());
  offerPair();
  offerFirst(ladders.zero());
  offerFirst(ladders.expertParallel());
  offerFirst(ladders.tradedTensorParallel());
  offerFirst(ladders.tradedRanks());
  offerFirst(ladders.tensorParallel());
  offerFirst(ladders.ranks());
  offerFirst(ladders.copies());
  if (spec.model.transformer)
    offerSmaller("microbatch_size", &PipelineSpec::microbatchSize);
  offerSmaller("microbatches", &PipelineSpec::microbatches);
  if (found.empty())
    offerTogether();
  auto order = [&](const Suggestion &of) {
    double devices = static_cast<double>(of.devices),
           sequences = static_cast<double>(of.sequences),
           makespan = static_cast<double>(of.needs.makespan);
    return std::tuple(of.devices != devicesOf(spec.pipeline),
                      of.sequences != sequencesOf(spec.pipeline),
                      makespan * devices / sequences);
  };
  llvm::stable_sort(found, [&](const Suggestion &a, const Suggestion &b) {
    return order(a) < order(b);
  });
  return std::move(found);
}

/// What `pipeline` has now for a key that counts or names.
std::string valueNow(const PipelineSpec &pipeline, std::string_view key) {
  struct Row {
    std::string_view key;
    Located<uint32_t> PipelineSpec::*field;
  };
  constexpr Row kRows[] = {{"ranks", &PipelineSpec::ranks},
                           {"microbatches", &PipelineSpec::microbatches},
                           {"microbatch_size", &PipelineSpec::microbatchSize},
                           {"tensor_parallel", &PipelineSpec::tensorParallel},
                           {"expert_parallel", &PipelineSpec::expertParallel},
                           {"data_parallel", &PipelineSpec::dataParallel},
                           {"zero", &PipelineSpec::zero}};
  for (const Row &row : kRows)
    if (row.key == key)
      return number((pipeline.*row.field).value);
  return key == "schedule" ? pipeline.schedule.value : "";
}

std::string textOf(const Suggestion &of, const PipelineSpec &pipeline,
                   TimeUnit unit) {
  std::string text;
  for (const Override &setting : of.settings) {
    text += (text.empty() ? "pipeline." : " with pipeline.") + setting.key +
            ": " + setting.value;
    std::string now = valueNow(pipeline, setting.key);
    text += now.empty() ? "" : " instead of " + now;
  }
  text += " (makespan " + formatTime(of.needs.makespan, unit) + ", " +
          formatBytes(of.needs.largestRank) + " on the largest rank";
  if (of.devices != devicesOf(pipeline))
    text += ", " + number(of.devices) + " devices";
  if (of.sequences != sequencesOf(pipeline))
    text += of.sequences < sequencesOf(pipeline) ? ", a smaller batch"
                                                 : ", a larger batch";
  return text + ")";
}

/// What the largest rank needs with pipeline.offload, if that fits and nothing
/// is missing but the speed of its copies.
std::optional<Bytes> fitsWithHostLink(const Spec &spec, Bytes limit) {
  Spec changed = spec;
  Diagnostics ignored;
  if (spec.cluster.hostLink.given ||
      !changePipeline(changed, kOffload, ignored))
    return std::nullopt;
  changed.cluster.hostLink.value.emplace();
  changed.cluster.hostLink.given = true;
  std::optional<Needs> needs = needsOf(changed);
  if (!needs || needs->largestRank > limit)
    return std::nullopt;
  return needs->largestRank;
}

} // namespace

std::vector<Suggestion> findChanges(const Spec &spec, Bytes limit) {
  return Advice(spec, limit).find();
}

void adviseOnLimit(Compilation &compilation) {
  const Spec &spec = *compilation.spec;
  const Plan &plan = *compilation.plan;
  Diagnostic &diagnostic = compilation.diagnostics.lastError();
  for (const Suggestion &each : findChanges(spec, plan.memoryLimit))
    diagnostic.note("would fit: " + textOf(each, spec.pipeline, plan.timeUnit));
  if (std::optional<Bytes> moved = fitsWithHostLink(spec, plan.memoryLimit))
    diagnostic.note("pipeline.offload: activations would fit (" +
                    formatBytes(*moved) +
                    " on the largest rank), but needs cluster.host_link, which "
                    "says how long its copies take");
  Bytes needed = neediestRank(plan).second;
  Bytes device = spec.cluster.device ? spec.cluster.device->memory.value : 0;
  if (device == 0 || needed <= device)
    diagnostic.note("would fit: pipeline.memory_limit: " + number(needed));
  else if (device <= plan.memoryAllowance)
    diagnostic.note("the device's memory is less than what its context is "
                    "allowed; sizes take units, as in 80GiB");
}

} // namespace sluice
