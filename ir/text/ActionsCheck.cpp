#include "ir/text/ActionsCheck.h"
#include "ir/Words.h"

#include <algorithm>
#include <set>
#include <utility>

namespace sluice {

namespace {

/// How many of the numbers that `take` is given stand in a row from 0.
class Prefix {
public:
  /// No more than `most` are given.
  explicit Prefix(size_t most) : seen(most + 1, false) {}
  void take(Id value) {
    if (value < seen.size())
      seen[value] = true;
  }
  uint32_t length() const {
    return static_cast<uint32_t>(std::find(seen.begin(), seen.end(), false) -
                                 seen.begin());
  }

private:
  std::vector<bool> seen;
};

class ActionCheck : public ActionStages, private ActionFaults {
public:
  ActionCheck(const Actions &of, std::span<const ActionLine> at,
              Diagnostics &sink)
      : ActionFaults{of, at, Faults(sink)}, diagnostics(sink) {}

  bool check();
  void finish() { faults.finish(); }

private:
  void count();
  void checkNumbers();
  bool isFilled();
  void placeStages();
  void checkPlace(Id rank, const Action &action);
  void checkMessages();
  void checkAsides();
  void checkAside(Id rank, const Aside &aside);
  void checkReductionWait(Id rank, const Aside &wait);

  Diagnostics &diagnostics;
  std::vector<const Action *> firstOfStage; ///< that says so
  std::set<Id> toldStages;
  /// Rank and stage of the REDUCE_GRADs.
  std::set<std::pair<Id, Id>> reductions;
};

} // namespace

void ActionCheck::count() {
  Prefix stagesSeen(actions.list.size()), microbatchesSeen(stagesSeen);
  for (const Action &action : actions.list) {
    if (isCompute(action.op))
      stagesSeen.take(action.stage);
    if (action.op == Op::Forward)
      microbatchesSeen.take(action.microbatch);
    trains |= isCompute(action.op) && action.op != Op::Forward;
  }
  stages = stagesSeen.length();
  microbatches = microbatchesSeen.length();
}

/// Each number once: it may stand in many places.
void ActionCheck::checkNumbers() {
  std::set<Id> badStages, badMicrobatches;
  each([&](Id rank, const Action &action) {
    if (action.stage >= stages && badStages.insert(action.stage).second)
      fail(rank, action,
           " is of stage " + number(action.stage) +
               (isCompute(action.op)
                    ? ", but nothing is of stage " + number(stages)
                    : ", which nothing computes"));
    if (action.microbatch >= microbatches &&
        badMicrobatches.insert(action.microbatch).second)
      fail(rank, action,
           " is of microbatch " + number(action.microbatch) +
               ", but no forward is of microbatch " + number(microbatches));
  });
  for (Id rank = 0; rank < actions.ranks(); ++rank)
    for (const Aside &aside : actions.asidesOf(rank))
      if (!sendOf(aside) && aside.stage >= stages &&
          badStages.insert(aside.stage).second)
        fail(rank, aside,
             " is of stage " + number(aside.stage) +
                 ", which nothing computes");
}

/// Whether there are about as many operations as stages and microbatches ask
/// for, before tables of that size are made. A small list may lack some.
bool ActionCheck::isFilled() {
  constexpr uint64_t kAlwaysMade = uint64_t(1) << 20;
  uint64_t cells = uint64_t(stages) * microbatches;
  if (cells <= kAlwaysMade || cells <= actions.list.size())
    return true;
  diagnostics.error({lines[0].where.file, 0, 0},
                    number(stages) + " stages and " + number(microbatches) +
                        " microbatches need " + number(cells) +
                        " forwards, the file has " +
                        number(actions.list.size()) + " operations");
  return false;
}

/// A stage is where most of its computations are, first of all.
void ActionCheck::placeStages() {
  rankOfStage.assign(stages, kNone);
  firstOfStage.assign(stages, nullptr);
  std::vector<uint32_t> most(stages, 0), here(stages, 0);
  for (Id rank = 0; rank < actions.ranks(); ++rank) {
    std::span<const Action> row = actions.rank(rank);
    for (const Action &action : row)
      here[action.stage] += isCompute(action.op);
    for (const Action &action : row) {
      if (!isCompute(action.op))
        continue;
      uint32_t count = std::exchange(here[action.stage], 0);
      if (count <= most[action.stage])
        continue;
      most[action.stage] = count;
      rankOfStage[action.stage] = rank;
      firstOfStage[action.stage] = &action;
    }
  }
  each([&](Id rank, const Action &action) { checkPlace(rank, action); });
}

void ActionCheck::checkPlace(Id rank, const Action &action) {
  Id stage = action.stage, of = rankOfStage[stage];
  if (of == rank || (isCompute(action.op) && !toldStages.insert(stage).second))
    return;
  if (fail(rank, action,
           " is on rank " + number(rank) +
               (isMessage(action.op) ? ", but rank " + number(of) +
                                           " computes stage " + number(stage)
                                     : ", stage " + number(stage) +
                                           " otherwise on rank " + number(of))))
    diagnostics.lastError().note("stage " + number(stage) + " stands here",
                                 at(of, *firstOfStage[stage]));
}

void ActionCheck::checkMessages() {
  each([&](Id rank, const Action &action) {
    if (!isMessage(action.op))
      return;
    Id peer = peerOf(action.op, action.stage);
    if (peer == kNone)
      fail(rank, action,
           " has no stage at its other end: there are " + number(stages) +
               " stages");
    else if (rankOfStage[peer] == rank)
      fail(rank, action,
           " goes nowhere: stage " + number(peer) + " is on rank " +
               number(rank) + " too");
  });
}

void ActionCheck::checkAsides() {
  for (Id rank = 0; rank < actions.ranks(); ++rank)
    for (const Aside &aside : actions.asidesOf(rank))
      checkAside(rank, aside);
}

/// What moves parameters and gradients stands on the rank of its stage.
void ActionCheck::checkAside(Id rank, const Aside &aside) {
  if (sendOf(aside))
    return; // noteSendWaits
  if (rankOfStage[aside.stage] != rank)
    fail(rank, aside,
         " is on rank " + number(rank) + ", but rank " +
             number(rankOfStage[aside.stage]) + " computes stage " +
             number(aside.stage));
  else if (aside.kind == AsideKind::ReduceGrad)
    reductions.emplace(rank, aside.stage);
  else if (aside.kind == AsideKind::WaitReduceGrad &&
           !reductions.contains({rank, aside.stage}))
    checkReductionWait(rank, aside);
}

void ActionCheck::checkReductionWait(Id rank, const Aside &wait) {
  if (!faults.admits(at(rank, wait)))
    return;
  std::span<const Aside> row = actions.asidesOf(rank);
  bool isBehind = std::any_of(row.begin(), row.end(), [&](const Aside &other) {
    return other.kind == AsideKind::ReduceGrad && other.stage == wait.stage;
  });
  faults.tell(at(rank, wait), nameOf(wait) + " waits for " +
                                  number(wait.stage) +
                                  "REDUCE_GRAD, which stands " +
                                  (isBehind ? "behind it" : "nowhere"));
}

bool ActionCheck::check() {
  unsigned before = diagnostics.errorCount();
  if (actions.list.empty())
    diagnostics.error({lines.empty() ? 0 : lines[0].where.file, 0, 0},
                      "the schedule names no operation");
  auto good = [&] { return diagnostics.errorCount() == before; };
  if (!good())
    return false;
  count();
  checkNumbers();
  if (!good() || !isFilled())
    return false;
  placeStages();
  if (good())
    checkMessages();
  if (good())
    checkAsides();
  return good();
}

std::optional<ActionStages> stagesOfActions(const Actions &actions,
                                            std::span<const ActionLine> lines,
                                            Diagnostics &diagnostics) {
  ActionCheck check(actions, lines, diagnostics);
  bool isGood = check.check();
  check.finish();
  return isGood ? std::optional<ActionStages>(std::move(check)) : std::nullopt;
}

} // namespace sluice
