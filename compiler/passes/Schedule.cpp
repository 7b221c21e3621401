//===- Schedule.cpp - The passes `warmup`, `schedule`, `verify-schedule` -===//
//
// warmup: needs a spec and a graph, sets the counts that the schedule's rule is
// given: its own, or the spec's list. schedule: makes the order of each rank
// from them. verify-schedule: proves it complete and free of cycles; fails only
// where a spec's own numbers do.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"
#include "compiler/schedules/ListScheduler.h"
#include "ir/verify/Verify.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace sluice {

std::vector<Id> placeStages(PlacementKind kind, uint32_t stages,
                            uint32_t ranks) {
  std::vector<Id> rankOfStage(stages);
  for (Id stage = 0; stage < stages; ++stage)
    switch (kind) {
    case PlacementKind::Linear:
      rankOfStage[stage] = stage * uint64_t(ranks) / stages;
      break;
    }
  return rankOfStage;
}

/// The spec's schedule; null after reporting an unknown name.
static const ScheduleInfo *scheduleOf(Compilation &c) {
  const Located<std::string> &name = c.spec->pipeline.schedule;
  if (const ScheduleInfo *info = findSchedule(name.value))
    return info;
  std::string known = llvm::join(
      llvm::map_range(allSchedules(),
                      [](const ScheduleInfo &info) { return info.text; }),
      ", ");
  Diagnostic &diagnostic = c.diagnostics.error(
      name.where, "there is no schedule '" + name.value + "'");
  std::string lower = llvm::StringRef(name.value).lower();
  for (const ScheduleInfo &info : allSchedules())
    if (llvm::StringRef(info.text).edit_distance(lower) <= 1)
      diagnostic.note("did you mean '" + std::string(info.text) + "'?");
  diagnostic.note("known schedules: " + known);
  return nullptr;
}

/// What the schedule demands of other keys.
static bool checkKeys(Compilation &c, const ScheduleInfo &info) {
  const PipelineSpec &pipeline = c.spec->pipeline;
  std::string text(info.text);
  bool ok = true;
  if (pipeline.virtualStages.value != 1) {
    c.diagnostics
        .error(pipeline.virtualStages.where,
               "schedule " + text + " has 1 virtual stage per rank, not " +
                   std::to_string(pipeline.virtualStages.value))
        .note("set pipeline.virtual_stages to 1");
    ok = false;
  }
  std::string placement(placementName(info.placement));
  if (pipeline.placement.given && pipeline.placement.value != placement) {
    c.diagnostics
        .error(pipeline.placement.where,
               "schedule " + text + " needs placement " + placement + ", not " +
                   pipeline.placement.value)
        .note("leave pipeline.placement out: it follows the schedule");
    ok = false;
  }
  return ok;
}

/// Checks a list of the spec: one count per rank, at most m, none larger than
/// the rank's before it (rank r would wait for a gradient that its successor
/// only makes after more forwards than rank r has sent).
static bool checkWarmupList(Compilation &c, llvm::ArrayRef<uint32_t> counts) {
  const PipelineSpec &pipeline = c.spec->pipeline;
  SourceLocation where = pipeline.warmup.where;
  auto number = [](uint64_t n) { return std::to_string(n); };
  if (counts.size() != pipeline.ranks.value) {
    c.diagnostics.error(where, "warmup has " + number(counts.size()) +
                                   " counts, but there are " +
                                   number(pipeline.ranks) + " ranks");
    return false;
  }
  bool ok = true;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] > pipeline.microbatches.value) {
      c.diagnostics.error(where, "warmup of rank " + number(rank) + " is " +
                                     number(counts[rank]) + ", more than the " +
                                     number(pipeline.microbatches) +
                                     " microbatches");
      ok = false;
    }
    if (rank > 0 && counts[rank] > counts[rank - 1]) {
      c.diagnostics
          .error(where, "warmup of rank " + number(rank) + " is " +
                            number(counts[rank]) + ", more than the " +
                            number(counts[rank - 1]) + " of rank " +
                            number(rank - 1))
          .note("rank " + number(rank - 1) +
                " would wait for a gradient that rank " + number(rank) +
                " makes only after a forward that rank " + number(rank - 1) +
                " has not sent");
      ok = false;
    }
  }
  return ok;
}

bool passes::ChooseWarmup(Compilation &c) {
  const ScheduleInfo *info = scheduleOf(c);
  if (!info || !checkKeys(c, *info))
    return false;
  const PipelineSpec &pipeline = c.spec->pipeline;
  const auto *list = std::get_if<std::vector<uint32_t>>(&pipeline.warmup.value);
  c.warmup.emplace();
  if (list && !info->adjustableWarmup)
    c.diagnostics.warning(pipeline.warmup.where,
                          "pipeline.warmup has no effect with schedule " +
                              pipeline.schedule.value);
  if (list && info->adjustableWarmup) {
    if (!checkWarmupList(c, *list))
      return false;
    c.warmup->perRank = *list;
    return true;
  }
  if (!info->warmup)
    return true;
  ScheduleProblem problem{pipeline.ranks, pipeline.microbatches};
  for (Id rank = 0; rank < problem.ranks; ++rank)
    c.warmup->perRank.push_back(info->warmup(problem, rank));
  return true;
}

bool passes::ScheduleOps(Compilation &c) {
  const ScheduleInfo *info = scheduleOf(c);
  if (!info)
    return false;
  const PipelineSpec &pipeline = c.spec->pipeline;
  ScheduleProblem problem{pipeline.ranks, pipeline.microbatches};
  std::vector<RankProgram> programs;
  for (Id rank = 0; rank < problem.ranks; ++rank)
    programs.push_back(
        info->program(problem, rank,
                      c.warmup->perRank.empty() ? 0 : c.warmup->perRank[rank]));
  auto stages = static_cast<uint32_t>(c.graph->stages.size());
  c.schedule = listSchedule(
      *c.graph, placeStages(info->placement, stages, problem.ranks), programs);
  c.schedule->name = info->text;
  c.schedule->warmup = c.warmup->perRank;
  return true;
}

bool passes::VerifyScheduleGate(Compilation &c) {
  verify::Result result = verify::verifySchedule(*c.graph, *c.schedule);
  for (const verify::Finding &finding : result.errors)
    c.diagnostics.error(c.spec ? c.spec->pipeline.schedule.where
                               : SourceLocation{},
                        std::string(verify::findingKindName(finding.kind)) +
                            ": " + finding.message);
  return result.ok();
}

} // namespace sluice
