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
    return 0;
  }
  return 0;
}

/// What ends a step of a stage on a rank, each once and in this order; but
/// gradients of a tied stage go to every copy of the other.
constexpr std::array kEndings = {Op::SendGradients, Op::AddGradients,
                                 Op::SendTied, Op::OptimizerStep};
constexpr size_t kSent = 0, kAdded = 1, kStepped = 3;

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
      trainedOn.push_back({s, r, state.has[kSent], state.has[kAdded]});
  }

  /// A trained stage that is held by several ranks sends its gradients from
  /// each and adds those of the others.
  void checkCopies() {
    for (const Trained &of : trainedOn) {
      if (!index.hasStep || index.holders[of.stage] < 2)
        continue;
      for (auto [has, op] : {std::pair(of.sent, Op::SendGradients),
                             std::pair(of.added, Op::AddGradients)})
        if (!has)
          tell(FindingKind::Missing, OpPlace{of.rank, 0},
               opName(op, of.stage, kNone) + " is missing on rank " +
                   std::to_string(of.rank) + ": " +
                   std::to_string(index.holders[of.stage]) +
                   " ranks hold stage " + std::to_string(of.stage));
    }
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
    else if (bit == kRecompute && !recomputes(op.stage))
      tell(FindingKind::Malformed, place,
           nameOf(op) + " is in the plan, but stage " +
               std::to_string(op.stage) + " has recompute policy none");
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
    if (!plan.stages[s].backward)
      return;
    if (recomputes(s) && !(cell & kRecompute))
      missing(Op::Recompute, s, k);
    if ((backward & kBackward) || backward == (kInput | kWeight))
      return;
    missing(backward == 0        ? Op::Backward
            : backward == kInput ? Op::BackwardWeight
                                 : Op::BackwardInput,
            s, k);
  }

  bool recomputes(Id s) const {
    return plan.stages[s].recomputePolicy != RecomputePolicy::None;
  }

  void missing(Op op, Id s, Id k) {
    tell(FindingKind::Missing, {}, opName(op, s, k) + " is missing");
  }

  PlanIndex &index;
  const Plan &plan;
  Report &report;
  std::vector<Seen> seen; ///< stage by stage
  std::vector<StageState> stageState;
  std::vector<Id> stagesHere;
  /// A stage on a rank that computes gradients of it.
  struct Trained {
    Id stage, rank;
    bool sent, added;
  };
  std::vector<Trained> trainedOn;
};

} // namespace

void checkCompleteness(PlanIndex &index, Report &report) {
  Completeness(index, report).check();
}

} // namespace sluice::verify
