#include "ir/verify/Cells.h"
#include "ir/verify/Needs.h"

#include <algorithm>

namespace sluice::verify {
namespace {

/// Where the operations of one kind stand that a stage and microbatch has one
/// of (of receives, the first).
struct Places {
  std::vector<uint32_t> at; ///< position in its rank's list
  std::vector<Id> rank;     ///< kNone where there is none
};

class Dependences {
public:
  Dependences(const PlanIndex &of, Report &to)
      : index(of), plan(of.plan), report(to) {
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
    case Op::BackwardWeight:
    case Op::OptimizerStep:
    case Op::SendGradients:
    case Op::RecvGradients:
    case Op::AddGradients:
    case Op::SendTied:
    case Op::RecvTied:
    case Op::AllReduceGradients:
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
    if (kinds[kind].rank[cell] != kNone)
      return; // twice: told elsewhere
    kinds[kind].rank[cell] = place.rank;
    kinds[kind].at[cell] = place.index;
  }

  void checkOp(const PlanOp &op, OpPlace place) {
    Needs needs = needsOf(op.op);
    if (needs.forward)
      own(op, place, Forward);
    if (needs.recompute)
      own(op, place, Recomputed);
    if (needs.input)
      own(op, place, Input);
    if (needs.activations || needs.gradients)
      inputs(op, place, needs.activations);
  }

  /// Tells if the operation of `kind` that stands in `cell` stands after
  /// `place`; false if there is none.
  bool standsBefore(Kind kind, size_t cell, OpPlace place) {
    if (kinds[kind].rank[cell] == kNone)
      return false;
    // That all of a stage and microbatch is on one rank is proved elsewhere.
    if (kinds[kind].rank[cell] != place.rank ||
        kinds[kind].at[cell] < place.index)
      return true;
    if (report.admits(FindingKind::Order))
      report.error(
          FindingKind::Order, place,
          nameOf(plan, place) + " stands before " +
              nameOf(plan, {kinds[kind].rank[cell], kinds[kind].at[cell]}) +
              ", which it needs");
    return true;
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
      if (kinds[made].rank[source] == place.rank)
        standsBefore(made, source, place);
      else if (hasMessages)
        received(op, place, forward, source);
    }
  }

  /// A receive that is not there, but was sent, is a mismatch told elsewhere.
  void received(const PlanOp &op, OpPlace place, bool forward, size_t source) {
    Kind kind = forward ? ReceivedForward : ReceivedBackward;
    if (standsBefore(kind, cellOf(op.stage, op.microbatch), place) ||
        kinds[forward ? SentForward : SentBackward].rank[source] != kNone ||
        !report.admits(FindingKind::Missing))
      return;
    Op missing = forward ? Op::RecvForward : Op::RecvBackward;
    report.error(FindingKind::Missing, place,
                 nameOf(op) + " needs " +
                     opName(missing, op.stage, op.microbatch) +
                     ", which is missing, as is its send");
  }

  const PlanIndex &index;
  const Plan &plan;
  Report &report;
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

void checkDependences(const PlanIndex &index, Report &report) {
  if (!report.has(FindingKind::Duplicate) && !report.has(FindingKind::Missing))
    Dependences(index, report).check();
}

} // namespace sluice::verify
