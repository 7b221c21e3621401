#include "compiler/simulate/Compare.h"

#include "compiler/Compilation.h"
#include "compiler/MemoryLimit.h"
#include "compiler/Trial.h"
#include "compiler/passes/PassManager.h"
#include "compiler/simulate/Report.h"
#include "compiler/spec/Sections.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <bit>

namespace sluice {
namespace {

/// The spec of `own` with another schedule. Keys that it refuses follow the
/// schedule.
Spec withSchedule(const Compilation &own, const std::string &name) {
  Spec changed = *own.spec;
  Located<uint32_t> &chunksGiven = changed.pipeline.virtualStages;
  constexpr uint32_t kUsualChunks = 2; // where any number goes
  uint32_t needed = findSchedule(name)->chunks;
  if (!chunksGiven.given)
    chunksGiven.value = needed != 0 ? needed : kUsualChunks;
  setSchedule(changed.pipeline, name);
  changed.pipeline.warmup = PipelineSpec().warmup;
  uint32_t chunks = needed != 0 ? needed : chunksGiven.value;
  if (!scheduleIsLegal(changed)) {
    chunksGiven.value = chunks;
    changed.pipeline.placement = {};
    changed.pipeline.backward = PipelineSpec().backward;
  }
  uint64_t stages = uint64_t(changed.pipeline.ranks) * chunks;
  Layout &layout = changed.pipeline.layout.value;
  if (auto *counts = std::get_if<std::vector<uint32_t>>(&layout))
    if (counts->size() != stages)
      layout = LayoutAuto{};
  return changed;
}

/// The first error and what it says would be accepted.
std::string firstError(const Diagnostics &diagnostics) {
  for (const Diagnostic &each : diagnostics.all())
    if (each.severity == Severity::Error)
      return each.message +
             (each.notes.empty() ? "" : "; " + each.notes.front().message);
  return "";
}

/// Finds the largest of one count of a spec with which it fits a limit.
class Search {
public:
  Search(const Spec &original, Bytes memoryLimit,
         Located<uint32_t> PipelineSpec::*counted)
      : spec(original), limit(memoryLimit), field(counted) {}

  Largest upTo(uint32_t ceiling);

private:
  bool legal(uint32_t count) { return scheduleIsLegal(with(count)); }
  bool fits(uint32_t count) {
    std::optional<Needs> needed = needsOf(with(count));
    return needed && needed->largestRank <= limit;
  }
  const Spec &with(uint32_t count) {
    (spec.pipeline.*field).value = count;
    return spec;
  }

  Spec spec;
  Bytes limit;
  Located<uint32_t> PipelineSpec::*field;
};

/// Doubles the spec's own count, which is legal, as far as it fits; then
/// halves the rest.
Largest Search::upTo(uint32_t ceiling) {
  uint32_t now = (spec.pipeline.*field).value, low = 0, high = now;
  while (fits(high)) {
    low = high;
    if (low >= ceiling)
      return {low, true};
    high = std::min(ceiling, low * 2);
    while (high > low && !legal(high))
      --high;
    if (high == low)
      return {low, true};
  }
  return {largestThatFits(
              low, high, [&](uint32_t count) { return legal(count); },
              [&](uint32_t count) { return fits(count); }),
          false};
}

void findLargest(const Compilation &c, ComparedSchedule &row) {
  Bytes limit = c.plan->memoryLimit;
  if (limit == 0 || !row.hasBytes)
    return;
  const PipelineSpec &pipeline = c.spec->pipeline;
  uint32_t now = pipeline.microbatches;
  uint64_t opsOfOne = std::max<uint64_t>(1, operationCount(*c.plan) / now);
  uint64_t most = std::max<uint64_t>(uint64_t(now) * 2,
                                     std::bit_floor(kSearchedOps / opsOfOne));
  auto ceiling = static_cast<uint32_t>(std::min(most, kMaxMicrobatches));
  if (c.choice->info) // a spec's own orders are of its own microbatches
    row.microbatches =
        Search(*c.spec, limit, &PipelineSpec::microbatches).upTo(ceiling);
  if (c.spec->model.transformer)
    row.microbatchSize =
        Search(*c.spec, limit, &PipelineSpec::microbatchSize).upTo(1u << 20);
}

void measure(const Compilation &c, ComparedSchedule &row) {
  Network network = c.network();
  Report report = buildReport({.model = c.model->name,
                               .graph = *c.graph,
                               .schedule = *c.schedule,
                               .timing = *c.timing,
                               .network = network,
                               .plan = &*c.plan,
                               .objective = c.spec->pipeline.objective});
  row.planned = true;
  row.makespan = report.makespan;
  row.span = report.span;
  row.bubbleFraction = report.bubbleFraction;
  for (const RankReport &rank : report.perRank) {
    row.peakActivation = std::max(row.peakActivation, rank.peakActivation);
    row.hasBytes |= rank.memory.bytes != 0;
  }
  row.bytes = neediestRank(*c.plan).second;
}

/// Adds the row of a compilation that ended well if `ok`.
void add(const Compilation &c, const std::string &name, bool ok,
         Comparison &comparison) {
  ComparedSchedule &row = comparison.schedules.emplace_back();
  row.name = name;
  if (const ScheduleInfo *info = findSchedule(name))
    row.trains = info->backward != BackwardRule::None;
  if (!ok)
    row.reason = firstError(c.diagnostics);
  if (!ok && !c.overLimit)
    return;
  comparison.memoryLimit = c.plan->memoryLimit;
  measure(c, row);
  if (c.overLimit)
    row.reason = "over the limit by " +
                 std::to_string(row.bytes - c.plan->memoryLimit) + " bytes";
  findLargest(c, row);
}

void addCompiled(const Compilation &own, const std::string &name,
                 Comparison &comparison) {
  Diagnostics diagnostics;
  Compilation c(diagnostics);
  c.spec = withSchedule(own, name);
  bool ok = runPipeline(fullPipeline(), c);
  add(c, name, ok, comparison);
}

/// Marks those that none that fits is better than.
void markBest(Comparison &comparison, Ticks ComparedSchedule::*time,
              bool ComparedSchedule::*mark) {
  Ticks best = kMaxTicks;
  for (const ComparedSchedule &each : comparison.schedules)
    if (each.fits() && each.trains)
      best = std::min(best, each.*time);
  for (ComparedSchedule &each : comparison.schedules)
    each.*mark = each.fits() && each.trains && each.*time == best;
}

} // namespace

bool Comparison::anyFits() const {
  return llvm::any_of(schedules,
                      [](const ComparedSchedule &each) { return each.fits(); });
}

Comparison compareSchedules(const Compilation &own,
                            llvm::ArrayRef<std::string> names) {
  const Spec &spec = *own.spec;
  Comparison comparison;
  comparison.model = own.model ? own.model->name : spec.model.name.value;
  comparison.ranks = spec.pipeline.ranks;
  comparison.microbatches = spec.pipeline.microbatches;
  comparison.objective = spec.pipeline.objective;
  comparison.timeUnit = spec.model.timeUnit;
  bool ok = own.plan && !own.diagnostics.hasErrors();
  add(own, spec.pipeline.schedule, ok, comparison);
  comparison.schedules.front().own = true;
  for (const std::string &name : names)
    if (llvm::none_of(comparison.schedules, [&](const ComparedSchedule &each) {
          return each.name == name;
        }))
      addCompiled(own, name, comparison);
  markBest(comparison, &ComparedSchedule::makespan,
           &ComparedSchedule::bestMakespan);
  markBest(comparison, &ComparedSchedule::span, &ComparedSchedule::bestSpan);
  return comparison;
}

} // namespace sluice
