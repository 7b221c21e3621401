#include "ir/verify/Cells.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace sluice::verify {
namespace {

/// What ends a step of a stage on a rank, each once and in this order; but
/// gradients of a tied stage go to every copy of the other.
enum Ending : uint8_t {
  Sent,
  Added,
  Reduced,
  Scattered,
  SentTied,
  Normed,
  Stepped,
  Gathered,
  NoEnding
};
constexpr std::array<Op, NoEnding> kEndings = {
    Op::SendGradients,          Op::AddGradients,       Op::AllReduceGradients,
    Op::ReduceScatterGradients, Op::SendTied,           Op::NormGradients,
    Op::OptimizerStep,          Op::AllGatherParameters};

constexpr Ending endingOf(Op op) {
  switch (op) {
  case Op::SendGradients:
    return Sent;
  case Op::AddGradients:
    return Added;
  case Op::AllReduceGradients:
    return Reduced;
  case Op::ReduceScatterGradients:
    return Scattered;
  case Op::SendTied:
    return SentTied;
  case Op::NormGradients:
    return Normed;
  case Op::OptimizerStep:
    return Stepped;
  case Op::AllGatherParameters:
    return Gathered;
  case Op::Forward:
  case Op::Backward:
  case Op::BackwardInput:
  case Op::BackwardWeight:
  case Op::Recompute:
  case Op::SendForward:
  case Op::RecvForward:
  case Op::SendBackward:
  case Op::RecvBackward:
  case Op::RecvGradients:
  case Op::RecvTied:
  case Op::Offload:
  case Op::Reload:
  case Op::ReduceScatterMicrobatch: // of each microbatch
  case Op::AllReduceNorms:          // of a rank, not of a stage
    return NoEnding;
  }
  return NoEnding;
}

constexpr auto kEndingOf = [] {
  std::array<Ending, kOpCount> endings{};
  for (unsigned op = 0; op < kOpCount; ++op)
    endings[op] = endingOf(static_cast<Op>(op));
  return endings;
}();

class Completeness {
public:
  Completeness(const PlanIndex &of, Report &to)
      : index(of), plan(of.plan), report(to),
        cells(of.plan.stages, of.plan.microbatches, to),
        stageState(plan.stages.size()), crowded(plan.stages.size()) {}

  void check() {
    if (!cells.open(index.operations()))
      return;
    for (Id r = 0; r < plan.ranks.size(); ++r)
      checkRank(r);
    checkCopies();
    checkMoves();
    cells.finish([this](Id rank, uint32_t at) {
      const std::vector<PlanOp> &ops = plan.ranks[rank].ops;
      return at < ops.size() ? std::optional(OpRef{ops[at].op, ops[at].stage,
                                                   ops[at].microbatch})
                             : std::nullopt;
    });
  }

private:
  struct StageState {
    Id rank = kNone;       ///< the rank that the rest is about
    bool gradient = false; ///< has a gradient there
    std::array<bool, kEndings.size()> has{}; ///< of kEndings, there
    Ending first = NoEnding;                 ///< of those in `has`
    /// Positions of what sums its gradients over ranks, of several the first,
    /// and of what gathers its parameters, if there is such.
    uint32_t reducedAt = kNone, gatheredAt = kNone;
    /// Where it keeps a part of its gradients: the microbatch whose gradients
    /// are still to be summed into it.
    Id unscattered = kNone;
  };

  /// A stage on a rank that computes gradients of it.
  struct Trained {
    Id stage, rank;
    bool sent, added;
    uint32_t reducedAt; ///< kNone: it reduces nowhere
  };

  void tell(FindingKind kind, std::optional<OpPlace> place,
            std::string message) {
    if (report.admits(kind))
      report.error(kind, place, std::move(message));
  }

  /// What is moved to host memory comes back, each once; `moves` has two bits
  /// for each stage and microbatch.
  void checkMoves() {
    for (Id r = 0; !moves.empty() && r < plan.ranks.size(); ++r)
      for (uint32_t at = 0; at < plan.ranks[r].ops.size(); ++at) {
        const PlanOp &op = plan.ranks[r].ops[at];
        if (!isCopy(op.op))
          continue;
        Op other = op.op == Op::Offload ? Op::Reload : Op::Offload;
        if (!(moves[cellOf(op)] & bitOf(other)))
          tell(FindingKind::Missing, OpPlace{r, at},
               opName(other, op.stage, op.microbatch) + " is missing");
      }
  }

  /// Of a stage that keeps a part of its gradients: they are summed into it
  /// microbatch by microbatch, each before the next begins with the sum so far.
  struct Early {
    OpPlace place; ///< what stands before the sum
    Id stage, microbatch;
  };

  void checkEarly(Id r) {
    for (Id s : stagesHere)
      if (Id k = stageState[s].unscattered; k != kNone)
        early.push_back({{r, 0}, s, k});
    std::stable_sort(early.begin(), early.end(),
                     [](const Early &a, const Early &b) {
                       return std::tie(a.stage, a.microbatch) <
                              std::tie(b.stage, b.microbatch);
                     });
    Id missingStage = kNone, missing = kNone; // told once
    for (const auto &[place, stage, microbatch] : early) {
      if (stage == missingStage && microbatch == missing)
        continue;
      const std::string sum =
          opName(Op::ReduceScatterMicrobatch, stage, microbatch);
      if (scatteredOn.empty() ||
          scatteredOn[size_t(stage) * plan.microbatches + microbatch] != r) {
        missingStage = stage;
        missing = microbatch;
        tell(FindingKind::Missing, OpPlace{r, 0},
             sum + " is missing on rank " + std::to_string(r) + ": stage " +
                 std::to_string(stage) +
                 " keeps a part of its gradients between microbatches");
      } else {
        tell(FindingKind::Order, place,
             nameOf(opAt(plan, place)) + " stands before " + sum +
                 ", whose sum it goes on with");
      }
    }
    early.clear();
  }

  void noteEarly(const StageState &state, const PlanOp &op, OpPlace place) {
    if (state.unscattered != kNone)
      early.push_back({place, op.stage, state.unscattered});
  }

  void scatter(StageState &state, const PlanOp &op, OpPlace place) {
    if (scatteredOn.empty())
      scatteredOn.assign(plan.stages.size() * size_t(plan.microbatches), kNone);
    Id &on = scatteredOn[cellOf(op)];
    if (on == place.rank)
      tell(FindingKind::Duplicate, place,
           nameOf(op) + " stands twice on rank " + std::to_string(place.rank));
    on = place.rank;
    if (state.unscattered == op.microbatch)
      state.unscattered = kNone; // else what it needs is told elsewhere
    tellEnded(state, op, place);
    if (state.reducedAt == kNone)
      state.reducedAt = place.index;
    else if (op.channel != opAt(plan, {place.rank, state.reducedAt}).channel)
      tell(FindingKind::Order, place,
           nameOf(op) + " sums by another collective than " +
               nameOf(opAt(plan, {place.rank, state.reducedAt})));
  }

  static uint8_t bitOf(Op copy) { return copy == Op::Offload ? 1 : 2; }
  size_t cellOf(const PlanOp &op) const {
    return size_t(op.stage) * plan.microbatches + op.microbatch;
  }

  void move(const PlanOp &op, OpPlace place) {
    if (moves.empty())
      moves.assign(plan.stages.size() * size_t(plan.microbatches), 0);
    if (!plan.stages[op.stage].offload)
      tell(FindingKind::Malformed, place,
           nameOf(op) + " moves what stage " + std::to_string(op.stage) +
               " saves, which is not offloaded");
    if (moves[cellOf(op)] & bitOf(op.op))
      tell(FindingKind::Duplicate, place, nameOf(op) + " stands twice");
    moves[cellOf(op)] |= bitOf(op.op);
  }

  void checkRank(Id r) {
    ListView list(plan.ranks[r]);
    stagesHere.clear();
    for (uint32_t at = 0; at < list.opCount; ++at) {
      const PlanOp &op = list.ops[at];
      if (isCopy(op.op))
        move(op, {r, at});
      Ending ending = kEndingOf[static_cast<unsigned>(op.op)];
      const bool scatters = op.op == Op::ReduceScatterMicrobatch;
      if (ending == NoEnding && !isCompute(op.op) && !scatters)
        continue;
      StageState &state = stageState[op.stage];
      if (state.rank != r) {
        state = {};
        state.rank = r;
        stagesHere.push_back(op.stage);
      }
      if (scatters)
        scatter(state, op, {r, at});
      else if (ending == NoEnding)
        compute(state, op, {r, at});
      else
        update(state, op, ending, {r, at});
    }
    for (Id s : stagesHere)
      finishStage(s, r);
    checkEarly(r);
  }

  void finishStage(Id s, Id r) {
    const StageState &state = stageState[s];
    checkParts(s, r);
    if (index.hasStep && state.gradient && !state.has[Stepped])
      tell(FindingKind::Missing, OpPlace{r, 0},
           opName(Op::OptimizerStep, s, kNone) + " is missing on rank " +
               std::to_string(r));
    if (state.gradient)
      trainedOn.push_back(
          {s, r, state.has[Sent], state.has[Added], state.reducedAt});
  }

  /// A step of one part changes nothing else, so the others are gathered; what
  /// was summed of the gradients is what the step takes.
  void checkParts(Id s, Id r) {
    const StageState &state = stageState[s];
    const uint32_t parts = plan.stages[s].optimizerParts;
    const std::string takes =
        opName(Op::OptimizerStep, s, kNone) +
        (parts == 1 ? " changes all of its parameters"
                    : " changes one of " + std::to_string(parts) + " parts");
    if (state.has[Stepped] && parts > 1 && !state.has[Gathered])
      tell(FindingKind::Missing, OpPlace{r, 0},
           opName(Op::AllGatherParameters, s, kNone) + " is missing on rank " +
               std::to_string(r) + ": " + takes);
    for (uint32_t at : {state.reducedAt, state.gatheredAt})
      if (at != kNone)
        checkCut(s, {r, at}, takes);
    if (state.reducedAt == kNone || !state.has[Gathered] ||
        info(opAt(plan, {r, state.reducedAt}).op).pattern !=
            Pattern::ReduceScatter)
      return;
    const Collective &summed = collectiveOf(opAt(plan, {r, state.reducedAt}));
    const Collective &gathered =
        collectiveOf(opAt(plan, {r, state.gatheredAt}));
    if (summed.ranks != gathered.ranks ||
        summed.overReplicas != gathered.overReplicas)
      tell(FindingKind::Order, OpPlace{r, state.gatheredAt},
           opName(Op::AllGatherParameters, s, kNone) +
               " gathers from other ranks than " +
               nameOf(opAt(plan, {r, state.reducedAt})) + " sums over");
  }

  /// What works on parts has as many as its stage; what does not leaves the
  /// gradients whole.
  void checkCut(Id s, OpPlace place, const std::string &takes) {
    const PlanOp &op = opAt(plan, place);
    const bool cuts = info(op.op).pattern != Pattern::AllReduce;
    const bool isReduction = op.op != Op::AllGatherParameters;
    const uint32_t parts = isReduction ? plan.stages[s].gradientParts
                                       : plan.stages[s].optimizerParts;
    if (cuts != (parts > 1))
      tell(FindingKind::Malformed, place,
           nameOf(op) + (cuts ? " cuts " : " does not cut ") +
               (isReduction ? "the gradients" : "the parameters") +
               " of stage " + std::to_string(s) + " into parts, but " +
               (parts > 1 || !isReduction || plan.stages[s].optimizerParts == 1
                    ? takes
                    : "they are needed whole"));
    else if (cuts && membersOf(plan, collectiveOf(op)) != parts)
      tell(FindingKind::Malformed, place,
           nameOf(op) + " cuts into " +
               std::to_string(membersOf(plan, collectiveOf(op))) +
               " parts, one for each of its ranks, but " + takes);
  }

  const Collective &collectiveOf(const PlanOp &op) const {
    return plan.collectives[op.channel];
  }
  const Collective &collectiveOf(const Trained &of) const {
    return collectiveOf(plan.ranks[of.rank].ops[of.reducedAt]);
  }
  /// Whether a collective sums a rank's gradients and nothing but those of the
  /// same rank of other replicas, so that copies are left to other operations.
  static bool leavesCopies(const Collective &of) {
    return of.overReplicas && of.ranks.size() == 1;
  }

  /// A trained stage that is held by several ranks reduces its gradients over
  /// all of them, or is held by two, and each sends its own to the other and
  /// adds those of the other: a rank sends once, and none to itself, so what
  /// comes is what the other has summed.
  void checkCopies() {
    auto reducesCopies = [this](const Trained &of) {
      return of.reducedAt != kNone && !leavesCopies(collectiveOf(of));
    };
    std::vector<bool> isReduced(plan.stages.size());
    for (const Trained &of : trainedOn)
      isReduced[of.stage] = isReduced[of.stage] || reducesCopies(of);
    for (const Trained &of : trainedOn) {
      if (!index.hasStep)
        continue;
      if (plan.replicas > 1)
        checkReplicas(of);
      if (cells.holders(of.stage) < 2)
        continue;
      if (reducesCopies(of))
        checkReduced(of);
      else if (isReduced[of.stage])
        missingOn(of, reductionOf(of.stage));
      else
        checkExchanged(of);
    }
  }

  /// Each replica has summed the gradients of its own microbatches.
  void checkReplicas(const Trained &of) {
    if (of.reducedAt == kNone && plan.stages[of.stage].gradientsPartitioned)
      return; // each microbatch is told
    const std::string name =
        of.reducedAt == kNone ? opName(reductionOf(of.stage), of.stage, kNone)
                              : nameOf(opAt(plan, {of.rank, of.reducedAt}));
    const std::string hold = std::to_string(plan.replicas) +
                             " replicas hold stage " + std::to_string(of.stage);
    if (of.reducedAt == kNone)
      tell(FindingKind::Missing, OpPlace{of.rank, 0},
           name + " over replicas is missing on rank " +
               std::to_string(of.rank) + ": " + hold);
    else if (!collectiveOf(of).overReplicas)
      tell(FindingKind::Order, OpPlace{of.rank, of.reducedAt},
           name + " sums within one replica, " + hold);
  }

  /// What sums the gradients of `stage` over ranks.
  Op reductionOf(Id stage) const {
    return plan.stages[stage].gradientParts > 1 ? Op::ReduceScatterGradients
                                                : Op::AllReduceGradients;
  }

  void missingOn(const Trained &of, Op op) {
    tell(FindingKind::Missing, OpPlace{of.rank, 0},
         opName(op, of.stage, kNone) + " is missing on rank " +
             std::to_string(of.rank) + ": " +
             std::to_string(cells.holders(of.stage)) + " ranks hold stage " +
             std::to_string(of.stage));
  }

  void checkExchanged(const Trained &of) {
    Id ranks = cells.holders(of.stage);
    if (ranks > 2 && !crowded[of.stage]) {
      crowded[of.stage] = true;
      tell(FindingKind::Malformed, OpPlace{of.rank, 0},
           std::to_string(ranks) + " ranks hold stage " +
               std::to_string(of.stage) +
               ": two can exchange their gradients, more reduce them by " +
               opName(Op::AllReduceGradients, of.stage, kNone));
    }
    for (auto [has, op] : {std::pair(of.sent, Op::SendGradients),
                           std::pair(of.added, Op::AddGradients)})
      if (!has)
        missingOn(of, op);
  }

  /// Each of a collective's ranks holds the stage, or they do not match.
  void checkReduced(const Trained &of) {
    const PlanOp &op = plan.ranks[of.rank].ops[of.reducedAt];
    size_t ranks = collectiveOf(of).ranks.size();
    if (ranks < cells.holders(of.stage))
      tell(FindingKind::Order, OpPlace{of.rank, of.reducedAt},
           nameOf(op) + " sums over " + std::to_string(ranks) +
               (ranks == 1 ? " rank, " : " ranks, ") +
               std::to_string(cells.holders(of.stage)) + " hold stage " +
               std::to_string(of.stage));
  }

  static bool isReduction(Ending ending) {
    return ending == Reduced || ending == Scattered;
  }

  /// What ends a step, in the order of kEndings, after the gradients.
  void update(StageState &state, const PlanOp &op, Ending ending,
              OpPlace place) {
    noteEarly(state, op, place);
    if (state.has[ending] && ending != SentTied)
      tell(FindingKind::Duplicate, place,
           nameOf(op) + " stands twice on rank " + std::to_string(place.rank));
    else if (!state.gradient)
      tell(FindingKind::Order, place,
           nameOf(op) + " stands before any gradient of stage " +
               std::to_string(op.stage) + " on rank " +
               std::to_string(place.rank));
    else if (ending == Added && !state.has[Sent])
      tell(FindingKind::Order, place,
           nameOf(op) + " stands before " +
               opName(Op::SendGradients, op.stage, kNone));
    else if (isReduction(ending) && !leavesCopies(collectiveOf(op)) &&
             (state.has[Sent] || state.has[Added]))
      tell(FindingKind::Duplicate, place,
           nameOf(op) + " stands beside " +
               opName(kEndings[state.has[Added] ? Added : Sent], op.stage,
                      kNone) +
               ": gradients are summed in one way, not both");
    else if (ending == Scattered && state.has[Reduced])
      standsAfter(op, Op::AllReduceGradients, place);
    if (isReduction(ending))
      state.reducedAt = place.index;
    if (ending == Gathered)
      state.gatheredAt = place.index;
    for (size_t later = ending + size_t(1); later < kEndings.size(); ++later)
      if (state.has[later])
        standsAfter(op, kEndings[later], place);
    state.has[ending] = true;
    state.first = std::min(state.first, ending);
  }

  void standsAfter(const PlanOp &op, Op earlier, OpPlace place) {
    tell(FindingKind::Order, place,
         nameOf(op) + " stands after " + opName(earlier, op.stage, kNone));
  }

  void compute(StageState &state, const PlanOp &op, OpPlace place) {
    if (op.op == Op::Backward || op.op == Op::BackwardWeight) {
      state.gradient = true;
      if (plan.stages[op.stage].gradientsPartitioned) {
        noteEarly(state, op, place);
        state.unscattered = op.microbatch;
      }
    }
    tellEnded(state, op, place);
    cells.add({op.op, op.stage, op.microbatch}, place);
  }

  /// What computes or sums gradients stands before all that ends the step.
  void tellEnded(const StageState &state, const PlanOp &op, OpPlace place) {
    if (state.first != NoEnding)
      standsAfter(op, kEndings[state.first], place);
  }

  const PlanIndex &index;
  const Plan &plan;
  Report &report;
  Cells cells;
  std::vector<Early> early;
  /// Per stage and microbatch the rank that has summed its gradients last;
  /// empty without any.
  std::vector<Id> scatteredOn;
  std::vector<uint8_t> moves; ///< empty without any
  std::vector<StageState> stageState;
  std::vector<Id> stagesHere;
  std::vector<bool> crowded; ///< per stage: told that too many ranks hold it
  std::vector<Trained> trainedOn;
};

} // namespace

void checkCompleteness(const PlanIndex &index, Report &report) {
  Completeness(index, report).check();
}

} // namespace sluice::verify
