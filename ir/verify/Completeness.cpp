#include "ir/verify/Internal.h"

#include <algorithm>
#include <array>

namespace sluice::verify {
namespace {

/// What was seen of a stage and microbatch: a bit per kind of computation in
/// the low bits, above them its rank plus one.
using Seen = uint32_t;
constexpr unsigned kRankShift = 5;
constexpr Seen kForward = 1, kBackward = 2, kInput = 4, kWeight = 8,
               kRecompute = 16;

constexpr Seen bitOf(Op op) {
  switch (op) {
  case Op::Forward:
    return kForward;
  case Op::Backward:
    return kBackward;
  case Op::BackwardInput:
    return kInput;
  case Op::BackwardWeight:
    return kWeight;
  case Op::Recompute:
    return kRecompute;
  case Op::SendForward:
  case Op::RecvForward:
  case Op::SendBackward:
  case Op::RecvBackward:
  case Op::OptimizerStep:
  case Op::SendGradients:
  case Op::RecvGradients:
  case Op::AddGradients:
  case Op::SendTied:
  case Op::RecvTied:
  case Op::AllReduceGradients:
    return 0;
  }
  return 0;
}

/// What ends a step of a stage on a rank, each once and in this order; but
/// gradients of a tied stage go to every copy of the other.
constexpr std::array kEndings = {Op::SendGradients, Op::AddGradients,
                                 Op::AllReduceGradients, Op::SendTied,
                                 Op::OptimizerStep};
constexpr size_t kSent = 0, kAdded = 1, kReduced = 2, kStepped = 4;

class Completeness {
public:
  Completeness(PlanIndex &of, Report &to)
      : index(of), plan(of.plan), report(to), stageState(plan.stages.size()) {}

  void check() {
    uint64_t cells = uint64_t(plan.stages.size()) * plan.microbatches;
    constexpr uint64_t kAlwaysCounted = uint64_t(1) << 20;
    if (cells > kAlwaysCounted && cells > index.operations())
      return tell(FindingKind::Missing, {},
                  std::to_string(cells) +
                      " forwards are needed, the plan has " +
                      std::to_string(index.operations()) + " operations");
    seen.assign(cells, 0);
    index.holders.assign(plan.stages.size(), 0);
    for (Id r = 0; r < plan.ranks.size(); ++r)
      checkRank(r);
    checkCopies();
    for (Id s = 0; s < plan.stages.size(); ++s)
      for (Id k = 0; k < plan.microbatches; ++k)
        checkCell(s, k);
  }

private:
  struct StageState {
    Id rank = kNone;       ///< the rank that the next two are about
    bool gradient = false; ///< has a gradient there
    std::array<bool, kEndings.size()> has{}; ///< of kEndings, there
    uint32_t reducedAt = 0; ///< position of its all-reduce, if it has one
  };

  /// A stage on a rank that computes gradients of it.
  struct Trained {
    Id stage, rank;
    bool sent, added, reduced;
    uint32_t reducedAt;
  };

  void tell(FindingKind kind, std::optional<OpPlace> place,
            std::string message) {
    if (report.admits(kind))
      report.error(kind, place, std::move(message));
  }

  void checkRank(Id r) {
    const RankPlan &rank = plan.ranks[r];
    stagesHere.clear();
    for (uint32_t at = 0; at < rank.ops.size(); ++at) {
      const PlanOp &op = rank.ops[at];
      if (isReceive(op.op) || (isSend(op.op) && info(op.op).perMicrobatch))
        continue;
      StageState &state = stageState[op.stage];
      if (state.rank != r) {
        state = {};
        state.rank = r;
        stagesHere.push_back(op.stage);
      }
      if (isCompute(op.op))
        compute(state, op, {r, at});
      else
        update(state, op, {r, at});
    }
    for (Id s : stagesHere)
      finishStage(s, r);
  }

  void finishStage(Id s, Id r) {
    ++index.holders[s];
    const StageState &state = stageState[s];
    if (index.hasStep && state.gradient && !state.has[kStepped])
      tell(FindingKind::Missing, OpPlace{r, 0},
           opName(Op::OptimizerStep, s, kNone) + " is missing on rank " +
               std::to_string(r));
    if (state.gradient)
      trainedOn.push_back({s, r, state.has[kSent], state.has[kAdded],
                           state.has[kReduced], state.reducedAt});
  }

  /// A trained stage that is held by several ranks reduces its gradients over
  /// all of them, or sends its own from each and adds those of the others.
  void checkCopies() {
    std::vector<bool> isReduced(plan.stages.size());
    for (const Trained &of : trainedOn)
      isReduced[of.stage] = isReduced[of.stage] || of.reduced;
    for (const Trained &of : trainedOn) {
      if (!index.hasStep || index.holders[of.stage] < 2)
        continue;
      if (of.reduced)
        checkReduced(of);
      else if (isReduced[of.stage])
        missingOn(of, Op::AllReduceGradients);
      else
        for (auto [has, op] : {std::pair(of.sent, Op::SendGradients),
                               std::pair(of.added, Op::AddGradients)})
          if (!has)
            missingOn(of, op);
    }
  }

  void missingOn(const Trained &of, Op op) {
    tell(FindingKind::Missing, OpPlace{of.rank, 0},
         opName(op, of.stage, kNone) + " is missing on rank " +
             std::to_string(of.rank) + ": " +
             std::to_string(index.holders[of.stage]) + " ranks hold stage " +
             std::to_string(of.stage));
  }

  /// Each of a collective's ranks holds the stage, or they do not match.
  void checkReduced(const Trained &of) {
    const PlanOp &op = plan.ranks[of.rank].ops[of.reducedAt];
    size_t ranks = plan.collectives[op.channel].ranks.size();
    if (ranks < index.holders[of.stage])
      tell(FindingKind::Order, OpPlace{of.rank, of.reducedAt},
           nameOf(op) + " sums over " + std::to_string(ranks) +
               (ranks == 1 ? " rank, " : " ranks, ") +
               std::to_string(index.holders[of.stage]) + " hold stage " +
               std::to_string(of.stage));
  }

  /// What ends a step, in the order of kEndings, after the gradients.
  void update(StageState &state, const PlanOp &op, OpPlace place) {
    size_t ending =
        std::find(kEndings.begin(), kEndings.end(), op.op) - kEndings.begin();
    if (state.has[ending] && op.op != Op::SendTied)
      tell(FindingKind::Duplicate, place,
           nameOf(op) + " stands twice on rank " + std::to_string(place.rank));
    else if (!state.gradient)
      tell(FindingKind::Order, place,
           nameOf(op) + " stands before any gradient of stage " +
               std::to_string(op.stage) + " on rank " +
               std::to_string(place.rank));
    else if (op.op == Op::AddGradients && !state.has[kSent])
      tell(FindingKind::Order, place,
           nameOf(op) + " stands before " +
               opName(Op::SendGradients, op.stage, kNone));
    else if (op.op == Op::AllReduceGradients &&
             (state.has[kSent] || state.has[kAdded]))
      tell(FindingKind::Duplicate, place,
           nameOf(op) + " stands beside " +
               opName(kEndings[state.has[kAdded] ? kAdded : kSent], op.stage,
                      kNone) +
               ": gradients are summed in one way, not both");
    if (op.op == Op::AllReduceGradients)
      state.reducedAt = place.index;
    for (size_t later = ending + 1; later < kEndings.size(); ++later)
      if (state.has[later])
        standsAfter(op, kEndings[later], place);
    state.has[ending] = true;
  }

  void standsAfter(const PlanOp &op, Op earlier, OpPlace place) {
    tell(FindingKind::Order, place,
         nameOf(op) + " stands after " + opName(earlier, op.stage, kNone));
  }

  void compute(StageState &state, const PlanOp &op, OpPlace place) {
    Seen bit = bitOf(op.op);
    Seen &cell = seen[size_t(op.stage) * plan.microbatches + op.microbatch];
    state.gradient |= (bit & (kBackward | kWeight)) != 0;
    if (auto first = std::find(state.has.begin(), state.has.end(), true);
        first != state.has.end())
      standsAfter(op, kEndings[first - state.has.begin()], place);
    if ((cell >> kRankShift) == 0)
      cell |= (place.rank + 1) << kRankShift;
    else if ((cell >> kRankShift) != place.rank + 1)
      tell(FindingKind::Order, place,
           nameOf(op) + " is on rank " + std::to_string(place.rank) +
               ", the rest of stage " + std::to_string(op.stage) +
               ", microbatch " + std::to_string(op.microbatch) + " on rank " +
               std::to_string((cell >> kRankShift) - 1));
    if (cell & bit)
      tell(FindingKind::Duplicate, place, nameOf(op) + " stands twice");
    else if (!plan.stages[op.stage].backward && bit != kForward)
      tell(FindingKind::Malformed, place,
           nameOf(op) + " is in the plan, but stage " +
               std::to_string(op.stage) + " has no backward");
    else if (bit == kBackward && (cell & (kInput | kWeight)))
      beside(op, cell & kInput ? Op::BackwardInput : Op::BackwardWeight, place);
    else if ((bit & (kInput | kWeight)) && (cell & kBackward))
      beside(op, Op::Backward, place);
    cell |= bit;
  }

  void beside(const PlanOp &op, Op other, OpPlace place) {
    tell(FindingKind::Duplicate, place,
         nameOf(op) + " stands beside " +
             opName(other, op.stage, op.microbatch) +
             ": a backward is whole or split, not both");
  }

  void checkCell(Id s, Id k) {
    Seen cell = seen[size_t(s) * plan.microbatches + k];
    Seen backward = cell & (kBackward | kInput | kWeight);
    if (!(cell & kForward))
      missing(Op::Forward, s, k);
    if (!plan.stages[s].backward || (backward & kBackward) ||
        backward == (kInput | kWeight))
      return;
    missing(backward == 0        ? Op::Backward
            : backward == kInput ? Op::BackwardWeight
                                 : Op::BackwardInput,
            s, k);
  }

  void missing(Op op, Id s, Id k) {
    if (report.admits(FindingKind::Missing))
      report.error(FindingKind::Missing, nearest(s, k),
                   opName(op, s, k) + " is missing");
  }

  /// What a rank computes of this stage and microbatch, else the last operation
  /// of a rank that computes the stage; none without one.
  std::optional<OpPlace> nearest(Id s, Id k) const {
    const Seen *cells = &seen[size_t(s) * plan.microbatches];
    const Seen *known = cells + k;
    if ((*known >> kRankShift) == 0)
      known = std::find_if(cells, cells + plan.microbatches,
                           [](Seen cell) { return cell >> kRankShift != 0; });
    if (known == cells + plan.microbatches)
      return std::nullopt;
    Id rank = (*known >> kRankShift) - 1;
    const std::vector<PlanOp> &ops = plan.ranks[rank].ops;
    auto at = std::find_if(ops.begin(), ops.end(), [&](const PlanOp &op) {
      return isCompute(op.op) && op.stage == s && op.microbatch == k;
    });
    return OpPlace{rank, static_cast<uint32_t>((at == ops.end() ? at - 1 : at) -
                                               ops.begin())};
  }

  PlanIndex &index;
  const Plan &plan;
  Report &report;
  std::vector<Seen> seen; ///< stage by stage
  std::vector<StageState> stageState;
  std::vector<Id> stagesHere;
  std::vector<Trained> trainedOn;
};

} // namespace

void checkCompleteness(PlanIndex &index, Report &report) {
  Completeness(index, report).check();
}

} // namespace sluice::verify
