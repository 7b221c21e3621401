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

/// The spec of `own` with another schedule. Keys that it refuses, or that have
/// no effect with it, are left out.
Spec withSchedule(const Compilation &own, const std::string &name) {
  Spec changed = *own.spec;
  PipelineSpec &pipeline = changed.pipeline;
  const ScheduleInfo &info = *findSchedule(name);
  Located<uint32_t> &chunksGiven = pipeline.virtualStages;
  if (!chunksGiven.given)
    chunksGiven.value = info.usualChunks();
  setSchedule(pipeline, name);
  if (!info.adjustableWarmup ||
      !std::holds_alternative<WarmupAuto>(pipeline.warmup.value))
    pipeline.warmup = PipelineSpec().warmup;
  if (info.lanes != Lanes::Groups)
    pipeline.groupSize = {};
  if (!scheduleIsLegal(changed)) {
    chunksGiven.value = info.chunks != 0 ? info.chunks : chunksGiven.value;
    pipeline.placement = {};
    pipeline.backward = PipelineSpec().backward;
  }
  uint32_t chunks = info.chunks != 0 ? info.chunks : chunksGiven.value;
  uint64_t stages = uint64_t(pipeline.ranks) * chunks;
  if (std::optional<size_t> given = stagesOf(pipeline.layout);
      given && *given != stages)
    pipeline.layout = PipelineSpec().layout;
  return changed;
}

/// Which keys of `own` that a schedule may refuse `changed` has too.
std::vector<std::string> keysKept(const PipelineSpec &own,
                                  const PipelineSpec &changed) {
  std::vector<std::string> names;
  auto add = [&](const char *name, bool given, bool kept) {
    if (given && kept)
      names.emplace_back(name);
  };
  add("virtual_stages", own.virtualStages.given,
      own.virtualStages.value == changed.virtualStages.value);
  add("placement", own.placement.given, changed.placement.given);
  add("group_size", own.groupSize.given, changed.groupSize.given);
  add("layout", own.layout.given, changed.layout.given);
  add("warmup", own.warmup.given, changed.warmup.given);
  add("backward", own.backward.given, changed.backward.given);
  return names;
}

/// The first error and what it says would be accepted.
std::string firstError(const Diagnostics &diagnostics) {
  for (const Diagnostic &each : diagnostics.all())
    if (each.severity == Severity::Error)
      return each.message +
             (each.notes.empty() ? "" : "; " + each.notes.front().message);
  return "";
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
        largestWithin(*c.spec, limit, &PipelineSpec::microbatches, ceiling);
  if (c.spec->model.transformer)
    row.microbatchSize =
        largestWithin(*c.spec, limit, &PipelineSpec::microbatchSize, 1u << 20);
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
  row.copies = copyTime(*c.plan);
  row.makespan = report.makespan + row.copies;
  row.span = report.span + row.copies;
  row.bubbleFraction = report.bubbleFraction;
  for (const RankReport &rank : report.perRank) {
    row.peakActivation = std::max(row.peakActivation, rank.peakActivation);
    row.hasBytes |= rank.memory.bytes != 0;
  }
  row.bytes = neediestRank(*c.plan).second;
}

/// Adds the row of a compilation that ended well if `ok`, of a change of `own`.
void add(const Compilation &c, const PipelineSpec &own, const std::string &name,
         bool ok, Comparison &comparison) {
  ComparedSchedule &row = comparison.schedules.emplace_back();
  row.name = name;
  row.keys = keysKept(own, c.spec->pipeline);
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
  add(c, own.spec->pipeline, name, ok, comparison);
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
  add(own, spec.pipeline, spec.pipeline.schedule, ok, comparison);
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
