//===- compiler/passes/Schedule.cpp - From a schedule's name to its order -===//
//
// choose-schedule: needs a spec, finds the row of its schedule (or reads the
// orders that it gives) and places the stages; fails where the schedule does
// not allow the spec's other keys. warmup: sets the counts that the schedule's
// rule is given: its own, the spec's list, or the result of a search. order:
// runs the rule. schedule: finds the orders in the graph. verify-schedule:
// proves them complete and free of cycles; fails only where a spec's own
// orders, counts or placement do, and points at those.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"
#include "compiler/passes/WarmupSearch.h"
#include "ir/verify/Verify.h"

#include "llvm/ADT/STLExtras.h"

namespace sluice {

bool passes::ChooseSchedule(Compilation &c) {
  c.choice = chooseSchedule(*c.spec, c.diagnostics);
  return c.choice.has_value();
}

/// Checks a list of the spec: one count per rank, at most all its forwards;
/// where a rank has one chunk, none larger than the rank's before it (rank r
/// would wait for a gradient that its successor only makes after more forwards
/// than rank r has sent).
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
  uint32_t chunks = c.choice->sizes.chunks;
  uint64_t most = uint64_t(pipeline.microbatches.value) * chunks;
  std::string ofWhat = chunks == 1 ? " microbatches" : " forwards of a rank";
  std::vector<Id> order = c.choice->placement.ranksInOrder();
  for (size_t at = 0; at < counts.size(); ++at) {
    Id rank = order[at], before = at == 0 ? kNone : order[at - 1];
    if (counts[rank] > most) {
      c.diagnostics.error(where, "warmup of rank " + number(rank) + " is " +
                                     number(counts[rank]) + ", more than the " +
                                     number(most) + ofWhat);
      ok = false;
    }
    if (chunks == 1 && before != kNone && counts[rank] > counts[before]) {
      c.diagnostics
          .error(where, "warmup of rank " + number(rank) + " is " +
                            number(counts[rank]) + ", more than the " +
                            number(counts[before]) + " of rank " +
                            number(before))
          .note("rank " + number(before) +
                " would wait for a gradient that rank " + number(rank) +
                " makes only after a forward that rank " + number(before) +
                " has not sent");
      ok = false;
    }
  }
  return ok;
}

/// The schedules whose counts a spec may give.
static std::string adjustableSchedules() {
  std::string names;
  for (const ScheduleInfo &info : allSchedules())
    if (info.adjustableWarmup)
      names += (names.empty() ? "" : ", ") + std::string(info.text);
  return names;
}

bool passes::ChooseWarmup(Compilation &c) {
  const ScheduleInfo *info = c.choice->info;
  c.warmup.emplace();
  if (!info)
    return true;
  const PipelineSpec &pipeline = c.spec->pipeline;
  const auto *list = std::get_if<std::vector<uint32_t>>(&pipeline.warmup.value);
  bool isAuto = std::holds_alternative<WarmupAuto>(pipeline.warmup.value);
  if ((list || isAuto) && !info->adjustableWarmup)
    c.diagnostics
        .warning(pipeline.warmup.where,
                 "pipeline.warmup has no effect with schedule " +
                     pipeline.schedule.value)
        .note("schedules that take warmup counts: " + adjustableSchedules());
  if (list && info->adjustableWarmup) {
    if (!checkWarmupList(c, *list))
      return false;
    c.warmup->perRank = *list;
    return true;
  }
  bool isLimited = pipeline.memoryLimit.given || c.spec->cluster.device;
  if (isAuto && info->adjustableWarmup && isLimited &&
      llvm::any_of(c.stages->stages,
                   [](const Stage &of) { return of.offload; })) {
    c.diagnostics
        .error(pipeline.warmup.where,
               "warmup: auto within a memory limit counts all bytes that are "
               "in flight, but pipeline.offload moves some away")
        .note("standard, or a list of one count per rank, goes with offload");
    return false;
  }
  if (isAuto && info->adjustableWarmup) {
    c.warmup = searchWarmup(c);
    return true;
  }
  if (!info->warmup)
    return true;
  c.warmup = standardWarmup(c);
  return true;
}

/// Counts in the order in which the pipeline passes the ranks.
static std::vector<uint32_t> alongPipeline(llvm::ArrayRef<uint32_t> perRank,
                                           const Placement &placement) {
  std::vector<uint32_t> counts;
  if (!perRank.empty())
    for (Id rank : placement.ranksInOrder())
      counts.push_back(perRank[rank]);
  return counts;
}

bool passes::OrderOps(Compilation &c) {
  const ScheduleChoice &choice = *c.choice;
  if (choice.orders) {
    c.orders = choice.orders;
    addRecomputes(*c.orders, c.stages->stages);
    return true;
  }
  c.orders = ordersWith(choice, *c.stages,
                        alongPipeline(c.warmup->perRank, choice.placement));
  c.orders->name = choice.info->text;
  c.orders->warmup = c.warmup->perRank;
  return true;
}

bool passes::ScheduleOps(Compilation &c) {
  c.schedule = findInGraph(*c.graph, *c.orders);
  return true;
}

static std::string listText(llvm::ArrayRef<uint32_t> list) {
  std::string text;
  for (uint32_t each : list)
    text += (text.empty() ? "[" : ", ") + std::to_string(each);
  return text + "]";
}

/// Whether each run of p stages takes the ranks in the same order.
static bool isLoop(const Placement &placement) {
  std::vector<Id> order = placement.ranksInOrder();
  for (Id stage = 0; stage < placement.stages(); ++stage)
    if (placement.rankOf(stage, 0) != order[stage % order.size()])
      return false;
  return true;
}

namespace {
/// What to say where the ranks wait for each other.
struct Blame {
  SourceLocation where;
  std::string note; ///< may be empty
};
} // namespace

/// Blames the key of a spec that a named schedule cannot be run with: the
/// counts that it gives, else its placement.
static Blame blameFor(Compilation &c) {
  const PipelineSpec &pipeline = c.spec->pipeline;
  Blame blame{pipeline.schedule.where, ""};
  if (!c.choice || !c.choice->info || !c.choice->info->adjustableWarmup ||
      !c.stages || !c.warmup)
    return blame;
  std::string counts = listText(warmupThatRuns(c, c.warmup->perRank));
  const Placement &placement = c.choice->placement;
  if (std::holds_alternative<std::vector<uint32_t>>(pipeline.warmup.value))
    return {pipeline.warmup.where,
            "these run, the fewest with the same number more on each rank: " +
                counts};
  if (!pipeline.placement.given || isLoop(placement))
    return blame;
  std::vector<Id> loop, order = placement.ranksInOrder();
  for (Id stage = 0; stage < placement.stages(); ++stage)
    loop.push_back(order[stage % order.size()]);
  return {pipeline.placement.where,
          "with the standard counts a list runs whose every " +
              std::to_string(order.size()) +
              " stages take the ranks in the same order, as in " +
              listText(loop) + "; this one runs with warmup: " + counts};
}

bool passes::VerifyScheduleGate(Compilation &c) {
  verify::Result result = verify::verifySchedule(*c.graph, *c.schedule);
  for (const verify::Finding &finding : result.errors) {
    bool waits = finding.kind == verify::FindingKind::Deadlock;
    Blame blame;
    if (c.spec)
      blame = waits ? blameFor(c) : Blame{c.spec->pipeline.schedule.where, ""};
    Diagnostic &told = c.diagnostics.error(
        blame.where, std::string(verify::findingKindName(finding.kind)) + ": " +
                         finding.message);
    if (!blame.note.empty())
      told.note(blame.note);
  }
  return result.ok();
}

} // namespace sluice
