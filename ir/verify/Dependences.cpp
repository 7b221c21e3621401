#include "ir/verify/Cells.h"
#include "ir/verify/Needs.h"

#include <algorithm>

namespace sluice::verify {
namespace {

/// Where the operations of one kind stand that a stage and microbatch has one
/// of.
struct Places {
  std::vector<uint32_t> at; ///< position in its rank's list
  std::vector<Id> rank;     ///< kNone where there is none, kTwice where several
};
constexpr Id kTwice = kNone - 1;

class Dependences {
public:
  Dependences(PlanIndex &of, bool areCompared, Report &to)
      : index(of), plan(of.plan), report(to), compared(areCompared) {
    size_t cells = plan.stages.size() * size_t(plan.microbatches);
    for (Places &places : kinds) {
      places.at.assign(cells, kNone);
      places.rank.assign(cells, kNone);
    }
  }

  void check() {
    for (Id r = 0; r < plan.ranks.size(); ++r)
      for (uint32_t at = 0; at < plan.ranks[r].ops.size(); ++at)
        note(plan.ranks[r].ops[at], {r, at});
    for (Id r = 0; r < plan.ranks.size(); ++r)
      for (uint32_t at = 0; at < plan.ranks[r].ops.size(); ++at)
        checkOp(plan.ranks[r].ops[at], {r, at});
  }

private:
  enum Kind : uint8_t {
    Forward,
    Recomputed,
    Input, ///< B or I
    Weight,
    SentForward,
    SentBackward,
    ReceivedForward,
    ReceivedBackward,
    kKinds
  };

  size_t cellOf(Id stage, Id microbatch) const {
    return size_t(stage) * plan.microbatches + microbatch;
  }

  static Kind kindOf(Op op) {
    switch (op) {
    case Op::Forward:
      return Forward;
    case Op::Backward:
    case Op::BackwardInput:
      return Input;
    case Op::BackwardWeight:
      return Weight;
    case Op::SendForward:
      return SentForward;
    case Op::SendBackward:
      return SentBackward;
    case Op::RecvForward:
      return ReceivedForward;
    case Op::RecvBackward:
      return ReceivedBackward;
    case Op::Recompute:
      return Recomputed;
    case Op::OptimizerStep:
    case Op::SendGradients:
    case Op::RecvGradients:
    case Op::AddGradients:
    case Op::SendTied:
    case Op::RecvTied:
    case Op::AllReduceGradients:
    case Op::ReduceScatterGradients:
    case Op::ReduceScatterMicrobatch:
    case Op::AllGatherParameters:
    case Op::NormGradients:
    case Op::AllReduceNorms:
    case Op::Offload:
    case Op::Reload:
      break;
    }
    return kKinds;
  }

  void note(const PlanOp &op, OpPlace place) {
    hasMessages |= isMessage(op.op);
    Kind kind = kindOf(op.op);
    if (kind == kKinds)
      return;
    size_t cell = cellOf(op.stage, op.microbatch);
    Id &rank = kinds[kind].rank[cell];
    rank = rank == kNone ? place.rank : kTwice; // which is told elsewhere
    kinds[kind].at[cell] = place.index;
  }

  Id rankOf(Kind kind, size_t cell) const { return kinds[kind].rank[cell]; }

  void checkOp(const PlanOp &op, OpPlace place) {
    Kind kind = kindOf(op.op);
    if (kind != kKinds &&
        rankOf(kind, cellOf(op.stage, op.microbatch)) == kTwice)
      return;
    Needs needs = needsOf(op.op);
    if (needs.forward)
      own(op, place, Forward);
    if (needs.recompute)
      own(op, place, Recomputed);
    if (needs.input)
      own(op, place, Input);
    if (needs.weight)
      own(op, place,
          rankOf(Weight, cellOf(op.stage, op.microbatch)) == kNone ? Input
                                                                   : Weight);
    if (needs.activations || needs.gradients)
      inputs(op, place, needs.activations);
    if (!compared && isReceive(op.op) && info(op.op).perMicrobatch)
      sent(op, place);
  }

  /// Tells if the operation of `kind` that stands in `cell` stands after
  /// `place`; false if there is none.
  bool standsBefore(Kind kind, size_t cell, OpPlace place) {
    if (rankOf(kind, cell) == kNone)
      return false;
    // That all of a stage and microbatch is on one rank is proved elsewhere.
    OpPlace needed{rankOf(kind, cell), kinds[kind].at[cell]};
    if (needed.rank != place.rank || needed.index < place.index)
      return true;
    stands(place, needed);
    return true;
  }

  /// `place` stands before `needed`, though it needs it.
  void stands(OpPlace place, OpPlace needed) {
    const std::vector<PlanOp> &ops = plan.ranks[place.rank].ops;
    if (isCompute(ops[place.index].op) && isCompute(ops[needed.index].op))
      index.isTurned = true;
    else
      index.needs.emplace_back(index.firstOp[place.rank] + place.index,
                               index.firstOp[place.rank] + needed.index);
    if (report.admits(FindingKind::Order))
      report.error(FindingKind::Order, place,
                   nameOf(plan, place) + " stands before " +
                       nameOf(plan, needed) + ", which it needs");
  }

  /// What the same stage and microbatch has computed before; that all are there
  /// is proved elsewhere.
  void own(const PlanOp &op, OpPlace place, Kind kind) {
    standsBefore(kind, cellOf(op.stage, op.microbatch), place);
  }

  /// What comes along the edges: from this rank, or by a receive.
  void inputs(const PlanOp &op, OpPlace place, bool forward) {
    const EdgeLists &lists = forward ? index.incoming : index.gradientIn;
    for (Id e : lists.of(op.stage)) {
      Id from = forward ? plan.edges[e].from : plan.edges[e].to;
      size_t source = cellOf(from, op.microbatch);
      Kind made = forward ? Forward : Input;
      Id maker = rankOf(made, source);
      if (maker == kNone || maker == kTwice)
        continue;
      if (maker == place.rank)
        standsBefore(made, source, place);
      else if (hasMessages)
        received(op, place, forward, source);
    }
  }

  /// A receive that is not there, but was sent, is a mismatch told elsewhere,
  /// where messages are compared.
  void received(const PlanOp &op, OpPlace place, bool forward, size_t source) {
    Kind kind = forward ? ReceivedForward : ReceivedBackward;
    bool isSent = rankOf(forward ? SentForward : SentBackward, source) != kNone;
    if (standsBefore(kind, cellOf(op.stage, op.microbatch), place) ||
        (isSent && compared) || !report.admits(FindingKind::Missing))
      return;
    Op missing = forward ? Op::RecvForward : Op::RecvBackward;
    report.error(FindingKind::Missing, place,
                 nameOf(op) + " needs " +
                     opName(missing, op.stage, op.microbatch) +
                     ", which is missing" + (isSent ? "" : ", as is its send"));
  }

  /// Whether a stage whose data `receive` takes sends it.
  void sent(const PlanOp &receive, OpPlace place) {
    bool forward = receive.op == Op::RecvForward;
    const EdgeLists &lists = forward ? index.incoming : index.gradientIn;
    std::string wanted;
    for (Id e : lists.of(receive.stage)) {
      Id from = forward ? plan.edges[e].from : plan.edges[e].to;
      if (rankOf(forward ? SentForward : SentBackward,
                 cellOf(from, receive.microbatch)) != kNone)
        return;
      wanted = opName(info(receive.op).mate, from, receive.microbatch);
    }
    if (!wanted.empty() && report.admits(FindingKind::Missing))
      report.error(FindingKind::Missing, place,
                   nameOf(receive) + " meets no " + wanted +
                       ", which is missing");
  }

  PlanIndex &index;
  const Plan &plan;
  Report &report;
  bool compared;
  bool hasMessages = false;
  Places kinds[kKinds];
};

} // namespace

bool checkMessagesOnce(const PlanIndex &index, Report &report) {
  const Plan &plan = index.plan;
  size_t cells = plan.stages.size() * size_t(plan.microbatches);
  if (areMostlyEmpty(cells, index.operations()))
    return true; // refused by checkCompleteness
  std::vector<uint8_t> seen(cells, 0);
  bool once = true;
  for (Id r = 0; r < plan.ranks.size(); ++r)
    for (uint32_t at = 0; at < plan.ranks[r].ops.size(); ++at) {
      const PlanOp &op = plan.ranks[r].ops[at];
      if (!isMessage(op.op) || !info(op.op).perMicrobatch)
        continue;
      auto bit =
          static_cast<uint8_t>(1u << (unsigned(op.op == Op::SendBackward ||
                                               op.op == Op::RecvBackward) +
                                      2 * unsigned(isSend(op.op))));
      uint8_t &cell =
          seen[size_t(op.stage) * plan.microbatches + op.microbatch];
      if (!(cell & bit)) {
        cell |= bit;
        continue;
      }
      once = false;
      if (report.admits(FindingKind::Duplicate))
        report.error(FindingKind::Duplicate, OpPlace{r, at},
                     nameOf(op) + " stands twice");
    }
  return once;
}

void checkDependences(PlanIndex &index, bool compared, Report &report) {
  uint64_t cells = uint64_t(index.plan.stages.size()) * index.plan.microbatches;
  if (!areMostlyEmpty(cells, index.operations())) // else told as missing
    Dependences(index, compared, report).check();
}

} // namespace sluice::verify
