//===- tests/ir/Explorer.h - Every interleaving of a small plan -----------===//
//
// Runs a plan in every order that its streams, queue of messages, events,
// groups and rendezvous allow, with bytes that say what they hold. An operation
// uses its buffers from its start to its end: what it reads must be right at
// both, what it writes is rubbish until its end, and if another operation wrote
// there meanwhile, the data is wrong. Written from the model of the design, for
// progress model `rank`, with no thought of how ir/verify proves the same.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_IR_EXPLORER_H
#define SLUICE_TESTS_IR_EXPLORER_H

#include "ir/Plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

namespace sluice::testing {

struct Explored {
  bool hangs = false;
  bool wrongData = false;
  bool complete = true; ///< all states seen, or a fault found
  size_t states = 0;
};

class Explorer {
public:
  explicit Explorer(const Plan &of) : plan(of) {
    number();
    match();
    cut();
  }

  Explored explore(size_t maxStates = 200'000) {
    Explored result;
    std::vector<State> open{first};
    std::unordered_set<std::string> seen{key(first)};
    while (!open.empty() && !result.wrongData && !result.hangs) {
      State state = open.back();
      open.pop_back();
      if (++result.states > maxStates) {
        result.complete = false;
        return result;
      }
      bool moved = false;
      for (size_t u = 0; u < units.size(); ++u) {
        bool starts = state.phase[u] == 0 && canStart(state, u);
        bool ends = state.phase[u] == 1 && canEnd(state, u);
        if (!starts && !ends)
          continue;
        moved = true;
        State next = state;
        if (!(starts ? start(next, u) : end(next, u))) {
          result.wrongData = true;
          break;
        }
        if (seen.insert(key(next)).second)
          open.push_back(std::move(next));
      }
      if (!moved)
        finish(state, result);
    }
    return result;
  }

  /// Whether the plan hangs, whatever its data: doing one thing never forbids
  /// another, so one order stands for all.
  bool hangs() {
    State state = first;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t u = 0; u < units.size(); ++u)
        if ((state.phase[u] == 0 && canStart(state, u)) ||
            (state.phase[u] == 1 && canEnd(state, u))) {
          ++state.phase[u];
          moved = true;
        }
    }
    Explored result;
    finish(state, result);
    return result.hangs;
  }

  /// Whether some message has no counterpart, or one of another size.
  bool mismatched = false;

private:
  struct Member {
    Id rank;
    uint32_t at;
  };
  struct Unit {
    Id rank;
    std::vector<uint32_t> members;
    std::vector<size_t> before; ///< units that end before it starts
    std::vector<size_t> mates;  ///< units that start before it ends
  };
  /// Phase of every unit; what every cell of every arena holds: the number of
  /// a tag, 0 for nothing, less than -kWriter while an operation writes it.
  struct State {
    std::string phase;
    std::vector<int> cells;
  };
  static constexpr int kWriter = 100'000;
  using Tag = std::tuple<int, Id, Id, int>; ///< kind, what, microbatch, version

  static std::string key(const State &state) {
    std::string text = state.phase;
    text.append(reinterpret_cast<const char *>(state.cells.data()),
                state.cells.size() * sizeof(int));
    return text;
  }
  int tag(BufferKind kind, Id what, Id microbatch, int version = 0) {
    Tag wanted{static_cast<int>(kind), what, microbatch, version};
    return tags.try_emplace(wanted, static_cast<int>(tags.size()) + 1)
        .first->second;
  }
  const PlanOp &op(Member m) const { return plan.ranks[m.rank].ops[m.at]; }

  void number() {
    for (Id r = 0; r < plan.ranks.size(); ++r) {
      const RankPlan &rank = plan.ranks[r];
      firstOp.push_back(opCount);
      opCount += static_cast<uint32_t>(rank.ops.size());
      for (uint32_t at = 0; at < rank.ops.size(); ++at) {
        bool joins = at > 0 && rank.ops[at].group != kNone &&
                     rank.ops[at].group == rank.ops[at - 1].group;
        if (!joins)
          units.push_back({r, {}, {}, {}});
        units.back().members.push_back(at);
        unitOf[{r, at}] = units.size() - 1;
      }
    }
    for (size_t u = 0; u < units.size(); ++u)
      for (uint32_t at : units[u].members)
        orderMember(u, at);
  }

  void orderMember(size_t u, uint32_t at) {
    Id r = units[u].rank;
    const RankPlan &rank = plan.ranks[r];
    for (uint32_t earlier = 0; earlier < at; ++earlier) {
      bool sameStream = rank.ops[earlier].stream == rank.ops[at].stream;
      bool sameQueue =
          isMessage(rank.ops[earlier].op) && isMessage(rank.ops[at].op);
      size_t other = unitOf[{r, earlier}];
      if ((sameStream || sameQueue) && other != u)
        units[u].before.push_back(other);
    }
    for (uint32_t wait : rank.waitsOf(at))
      units[u].before.push_back(unitOf[{r, wait}]);
  }

  void match() {
    for (Id c = 0; c < plan.channels.size(); ++c) {
      std::vector<Member> sends, receives;
      for (Id r = 0; r < plan.ranks.size(); ++r)
        for (uint32_t at = 0; at < plan.ranks[r].ops.size(); ++at) {
          const PlanOp &each = plan.ranks[r].ops[at];
          if (each.channel == c && isSend(each.op))
            sends.push_back({r, at});
          if (each.channel == c && isReceive(each.op))
            receives.push_back({r, at});
        }
      mismatched |= sends.size() != receives.size();
      for (size_t n = 0; n < std::min(sends.size(), receives.size()); ++n)
        pair(sends[n], receives[n]);
    }
  }

  void pair(Member send, Member receive) {
    size_t s = unitOf[{send.rank, send.at}];
    size_t r = unitOf[{receive.rank, receive.at}];
    units[s].mates.push_back(r);
    units[r].mates.push_back(s);
    mismatched |= bytesOf(send) != bytesOf(receive);
    if (op(send).op == Op::SendGradients) {
      carried[{send.rank, send.at}] = carried[{receive.rank, receive.at}] =
          tag(BufferKind::CopyGradients, op(send).stage, kNone);
      return;
    }
    if (op(send).op == Op::SendTied) {
      carried[{send.rank, send.at}] = carried[{receive.rank, receive.at}] = tag(
          BufferKind::TiedGradients, plan.stages[op(send).stage].tiedTo, kNone);
      return;
    }
    bool forward = op(send).op == Op::SendForward;
    Id from = forward ? op(send).stage : op(receive).stage;
    Id to = forward ? op(receive).stage : op(send).stage;
    Id edge = kNone;
    for (Id e = 0; e < plan.edges.size(); ++e)
      if (plan.edges[e].from == from && plan.edges[e].to == to)
        edge = e;
    // What arrives is what the sender names, whatever the receiver calls it.
    carried[{send.rank, send.at}] = carried[{receive.rank, receive.at}] =
        tag(forward ? BufferKind::Activation : BufferKind::Gradient, edge,
            op(send).microbatch);
  }

  Bytes bytesOf(Member m) const {
    const RankPlan &rank = plan.ranks[m.rank];
    if (op(m).op == Op::SendTied)
      return plan.stages[op(m).stage].bytes.tied;
    return rank.buffers[rank.operandsOf(m.at)[0].buffer].bytes;
  }

  /// Cuts the arenas into cells at every begin and end of a buffer.
  void cut() {
    first.phase.assign(units.size(), 0);
    for (const RankPlan &rank : plan.ranks) {
      std::set<Bytes> cuts;
      for (const Buffer &buffer : rank.buffers)
        cuts.insert({buffer.offset, buffer.offset + buffer.bytes});
      std::vector<Bytes> sorted(cuts.begin(), cuts.end());
      std::vector<std::pair<size_t, size_t>> ranges;
      size_t base = first.cells.size();
      first.cells.resize(base + sorted.size(), 0);
      auto place = [&](Bytes cutAt) {
        return base + (std::lower_bound(sorted.begin(), sorted.end(), cutAt) -
                       sorted.begin());
      };
      for (const Buffer &buffer : rank.buffers) {
        ranges.emplace_back(place(buffer.offset),
                            place(buffer.offset + buffer.bytes));
        if (info(buffer.kind).persistent)
          std::fill(first.cells.begin() + ranges.back().first,
                    first.cells.begin() + ranges.back().second,
                    tag(buffer.kind, buffer.stage, kNone, 0));
      }
      cellsOf.push_back(ranges);
    }
  }

  bool canStart(const State &state, size_t u) const {
    for (size_t earlier : units[u].before)
      if (state.phase[earlier] != 2)
        return false;
    return true;
  }
  bool canEnd(const State &state, size_t u) const {
    for (size_t mate : units[u].mates)
      if (state.phase[mate] == 0)
        return false;
    size_t messages = 0;
    for (uint32_t at : units[u].members)
      messages += isMessage(plan.ranks[units[u].rank].ops[at].op);
    return messages == units[u].mates.size();
  }

  /// The value that the operand should hold before and after the operation,
  /// -1 where it may be anything.
  std::pair<int, int> meaning(Member m, size_t nth) {
    const PlanOp &each = op(m);
    const RankPlan &rank = plan.ranks[m.rank];
    Operand use = rank.operandsOf(m.at)[nth];
    const Buffer &buffer = rank.buffers[use.buffer];
    Id s = each.stage, k = each.microbatch;
    switch (buffer.kind) {
    case BufferKind::Workspace: {
      int scratch = tag(buffer.kind, buffer.stage, kNone, 0);
      return {scratch, scratch};
    }
    case BufferKind::Parameters:
    case BufferKind::Optimizer: {
      int updates = each.op == Op::OptimizerStep;
      return {tag(buffer.kind, s, kNone, 0),
              tag(buffer.kind, s, kNone, updates)};
    }
    case BufferKind::Gradients:
      return gradients(m, isTiedPart(m, buffer) ? buffer.stage : s);
    case BufferKind::Saved:
      return {tag(buffer.kind, s, k), tag(buffer.kind, s, k)};
    case BufferKind::Kept: {
      int before = each.op == Op::BackwardWeight;
      int after = each.op == Op::BackwardInput;
      return {tag(buffer.kind, s, k, before), tag(buffer.kind, s, k, after)};
    }
    case BufferKind::Activation:
    case BufferKind::Gradient:
      return passed(m, nth, buffer.kind);
    case BufferKind::TiedGradients: {
      int received =
          op(m).op == Op::RecvTied
              ? carried.count({m.rank, m.at}) ? carried[{m.rank, m.at}] : -3
              : tag(buffer.kind, s, kNone);
      return {received, received};
    }
    case BufferKind::CopyGradients: {
      int copied = tag(buffer.kind, s, kNone);
      return {copied, copied};
    }
    }
    return {-1, -1};
  }

  /// Whether a step reads the gradients of the stage that its own is tied to.
  bool isTiedPart(Member m, const Buffer &buffer) const {
    return op(m).op == Op::OptimizerStep &&
           buffer.stage == plan.stages[op(m).stage].tiedTo;
  }

  /// Gradients count what was added; the step must find all microbatches.
  /// A copy of a stage sends what its rank added, and gets the rest at once.
  std::pair<int, int> gradients(Member m, Id s) {
    auto count = [&](int added) {
      return tag(BufferKind::Gradients, s, kNone, added);
    };
    int all = static_cast<int>(plan.microbatches), own = 0;
    for (const PlanOp &each : plan.ranks[m.rank].ops)
      own += each.stage == s &&
             (each.op == Op::Backward || each.op == Op::BackwardWeight);
    if (op(m).op == Op::OptimizerStep || op(m).op == Op::SendTied)
      return {count(all), count(all)};
    if (op(m).op == Op::SendGradients)
      return {count(own), count(own)};
    if (op(m).op == Op::AddGradients)
      return {count(own), count(all)};
    return {-1, op(m).op == Op::BackwardInput ? -1 : 0};
  }

  std::pair<int, int> passed(Member m, size_t nth, BufferKind kind) {
    const PlanOp &each = op(m);
    if (isMessage(each.op)) {
      auto found = carried.find({m.rank, m.at});
      int value = found == carried.end() ? -3 : found->second;
      return {value, value};
    }
    std::span<const Operand> operands = plan.ranks[m.rank].operandsOf(m.at);
    size_t place = 0; // among operands of the kind and access
    for (size_t i = 0; i < nth; ++i)
      place += plan.ranks[m.rank].buffers[operands[i].buffer].kind == kind &&
               operands[i].access == operands[nth].access;
    bool reads = operands[nth].access == unsigned(Access::Read);
    bool into = reads == (kind == BufferKind::Activation);
    for (Id e = 0; e < plan.edges.size(); ++e) {
      const StageEdge &edge = plan.edges[e];
      bool counts =
          kind == BufferKind::Activation ||
          (plan.stages[edge.from].backward && plan.stages[edge.to].backward);
      if ((into ? edge.to : edge.from) == each.stage && counts &&
          place-- == 0) {
        int value = tag(kind, e, each.microbatch);
        return {value, value};
      }
    }
    return {-3, -3};
  }

  bool start(State &state, size_t u) {
    state.phase[u] = 1;
    return forOperands(u, [&](Member m, size_t nth, Operand use, int marker) {
      auto [begin, end] = cellsOf[m.rank][use.buffer];
      int wanted = meaning(m, nth).first;
      for (size_t cell = begin; cell < end; ++cell) {
        if (use.access != unsigned(Access::Write) &&
            !holds(state, cell, wanted))
          return false;
        if (use.access != unsigned(Access::Read))
          state.cells[cell] = use.access == unsigned(Access::Update)
                                  ? marker * kWriter - state.cells[cell]
                                  : marker * kWriter;
      }
      return true;
    });
  }

  bool end(State &state, size_t u) {
    state.phase[u] = 2;
    return forOperands(u, [&](Member m, size_t nth, Operand use, int marker) {
      auto [begin, end] = cellsOf[m.rank][use.buffer];
      auto [before, after] = meaning(m, nth);
      for (size_t cell = begin; cell < end; ++cell) {
        int now = state.cells[cell];
        if (use.access == unsigned(Access::Read)) {
          if (!holds(state, cell, before))
            return false;
          continue;
        }
        if (now / kWriter != marker)
          return false; // another operation wrote here meanwhile
        int old = marker * kWriter - now;
        bool counts = plan.ranks[m.rank].buffers[use.buffer].kind ==
                      BufferKind::Gradients;
        state.cells[cell] =
            counts ? added(old, after == 0, op(m).stage) : after;
      }
      return true;
    });
  }

  /// The gradients of `stage` after one more addition to `old`.
  int added(int old, bool counts, Id stage) {
    for (int n = 0; n <= static_cast<int>(2 * plan.microbatches); ++n)
      if (old == tag(BufferKind::Gradients, stage, kNone, n))
        return tag(BufferKind::Gradients, stage, kNone, n + (counts ? 1 : 0));
    return -3;
  }

  static bool holds(const State &state, size_t cell, int wanted) {
    return wanted == -1 ? state.cells[cell] > 0 : state.cells[cell] == wanted;
  }

  template <typename Do> bool forOperands(size_t u, Do act) {
    for (uint32_t at : units[u].members) {
      Member m{units[u].rank, at};
      std::span<const Operand> operands = plan.ranks[m.rank].operandsOf(at);
      int marker = -2 - static_cast<int>(firstOp[m.rank] + at);
      for (size_t nth = 0; nth < operands.size(); ++nth)
        if (!act(m, nth, operands[nth], marker))
          return false;
    }
    return true;
  }

  void finish(const State &state, Explored &result) {
    for (char phase : state.phase)
      result.hangs |= phase != 2;
  }

  const Plan &plan;
  std::vector<Unit> units;
  std::vector<uint32_t> firstOp;
  uint32_t opCount = 0;
  std::map<std::pair<Id, uint32_t>, size_t> unitOf;
  std::map<std::pair<Id, uint32_t>, int> carried;
  std::vector<std::vector<std::pair<size_t, size_t>>> cellsOf;
  std::map<Tag, int> tags;
  State first;
};

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_EXPLORER_H
