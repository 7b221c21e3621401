//===- tests/runtime/PlanForTests.h - Small plans without the compiler ---===//
#ifndef SLUICE_TESTS_RUNTIME_PLANFORTESTS_H
#define SLUICE_TESTS_RUNTIME_PLANFORTESTS_H

#include "ir/Plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace sluice::tests {

/// A chain of one stage a rank.
struct ChainOptions {
  uint32_t ranks = 2;
  uint32_t microbatches = 4;
  bool gpipe = false; ///< else 1F1B
  bool split = false; ///< I and W instead of B
  Bytes boundary = 64;
  Bytes saved = 128;
  Bytes kept = 32;
  Bytes state = 96; ///< parameters, gradients and optimizer each
  Bytes workspace = 16;
  /// Boundary buffers a rank has for each direction; reused with waits.
  uint32_t slots = 2;
  Ticks forward = 0; ///< in seconds' ticks; 0: abstract units
  Ticks backward = 0;
};

/// Adds operations, buffers and waits to the list of one rank.
class ListBuilder {
public:
  explicit ListBuilder(RankPlan &target) : list(target) {
    list.streams = {"compute", "messages"};
  }

  Id buffer(BufferKind kind, Id stage, Bytes bytes) {
    const Bytes size =
        (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    list.buffers.push_back({list.arenaBytes, bytes, stage, kind});
    list.arenaBytes += size;
    return static_cast<Id>(list.buffers.size() - 1);
  }

  uint32_t add(Op op, Id stage, Id microbatch, std::vector<uint32_t> waits,
               std::vector<Operand> operands, Id channel = kNone,
               Id group = kNone) {
    PlanOp planOp = {};
    planOp.stage = stage;
    planOp.microbatch = microbatch;
    planOp.channel = channel;
    planOp.group = group;
    planOp.firstWait = static_cast<uint32_t>(list.waits.size());
    planOp.firstOperand = static_cast<uint32_t>(list.operands.size());
    planOp.op = op;
    planOp.stream = isMessage(op) ? 1 : kComputeStream;
    list.ops.push_back(planOp);
    for (const uint32_t wait : waits)
      if (wait != kNone)
        list.waits.push_back(wait);
    list.operands.insert(list.operands.end(), operands.begin(), operands.end());
    return static_cast<uint32_t>(list.ops.size() - 1);
  }

  RankPlan &list;
};

/// Builds the plan of a chain: computations in the order of one run of all
/// ranks, each message right after what makes it, so that one global order
/// holds at both ends of every channel.
class ChainBuilder {
public:
  explicit ChainBuilder(const ChainOptions &chainOptions)
      : options(chainOptions) {}

  Plan build() {
    makeHeader();
    for (Id r = 0; r < options.ranks; ++r)
      makeRank(r);
    runAll();
    for (Id r = 0; r < options.ranks; ++r)
      ranks[r].builder.add(Op::OptimizerStep, r, kNone, {},
                           {operand(ranks[r].parameters, Access::Update),
                            operand(ranks[r].gradients, Access::Read),
                            operand(ranks[r].optimizer, Access::Update)});
    return std::move(plan);
  }

private:
  struct Rank {
    explicit Rank(RankPlan &list) : builder(list) {}
    ListBuilder builder;
    Id parameters = 0, gradients = 0, optimizer = 0, workspace = 0;
    std::vector<Id> saved, kept;              ///< per microbatch
    std::vector<Id> in, out, gradIn, gradOut; ///< per slot
    /// Last operation that used a slot's buffer.
    std::map<Id, uint32_t> lastUse;
    std::vector<std::pair<Op, Id>> order;
    size_t next = 0;
    std::vector<uint32_t> received, receivedGradient; ///< per microbatch
  };

  void makeHeader() {
    plan.model = "chain";
    plan.schedule = options.gpipe ? "gpipe" : "1f1b";
    plan.source = "chain.yaml";
    plan.microbatches = options.microbatches;
    const bool timed = options.forward != 0 || options.backward != 0;
    plan.timeUnit = timed ? TimeUnit::Seconds : TimeUnit::Unit;
    for (Id r = 0; r < options.ranks; ++r) {
      Stage stage;
      stage.location.line = 10 + r;
      stage.forward = options.forward;
      stage.backwardInput = options.backward;
      stage.backwardWeight = options.backward;
      plan.stages.push_back(stage);
      if (r + 1 == options.ranks)
        continue;
      plan.edges.push_back({r, r + 1, options.boundary});
      plan.channels.push_back({0, r, r + 1, 0, 0});
      plan.channels.push_back({0, r + 1, r, 0, 0});
    }
    plan.ranks.resize(options.ranks);
  }

  static Id forwardChannel(Id from) { return 2 * from; }
  static Id backwardChannel(Id from) { return 2 * (from - 1) + 1; }

  void makeRank(Id r) {
    Rank &rank = ranks.emplace_back(plan.ranks[r]);
    ListBuilder &b = rank.builder;
    rank.parameters = b.buffer(BufferKind::Parameters, r, options.state);
    rank.gradients = b.buffer(BufferKind::Gradients, r, options.state);
    rank.optimizer = b.buffer(BufferKind::Optimizer, r, options.state);
    rank.workspace = b.buffer(BufferKind::Workspace, kNone, options.workspace);
    for (Id k = 0; k < options.microbatches; ++k) {
      rank.saved.push_back(b.buffer(BufferKind::Saved, r, options.saved));
      rank.kept.push_back(b.buffer(BufferKind::Kept, r, options.kept));
    }
    for (uint32_t i = 0; i < options.slots; ++i) {
      const Bytes bytes = options.boundary;
      rank.in.push_back(b.buffer(BufferKind::Activation, r, bytes));
      rank.out.push_back(b.buffer(BufferKind::Activation, r, bytes));
      rank.gradIn.push_back(b.buffer(BufferKind::Gradient, r, bytes));
      rank.gradOut.push_back(b.buffer(BufferKind::Gradient, r, bytes));
    }
    rank.received.assign(options.microbatches, r == 0 ? 0 : kNone);
    rank.receivedGradient.assign(options.microbatches,
                                 r + 1 == options.ranks ? 0 : kNone);
    const uint32_t m = options.microbatches;
    const uint32_t warmup =
        options.gpipe ? m : std::min(m, options.ranks - 1 - r);
    for (Id k = 0; k < warmup; ++k)
      rank.order.push_back({Op::Forward, k});
    for (Id k = warmup; k < m; ++k) {
      rank.order.push_back({Op::Forward, k});
      addBackward(rank, k - warmup);
    }
    for (Id k = m - warmup; k < m; ++k)
      addBackward(rank, k);
  }

  void addBackward(Rank &rank, Id microbatch) const {
    if (!options.split) {
      rank.order.push_back({Op::Backward, microbatch});
      return;
    }
    rank.order.push_back({Op::BackwardInput, microbatch});
    rank.order.push_back({Op::BackwardWeight, microbatch});
  }

  /// Runs one operation of every rank in turn that has its inputs.
  void runAll() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Id r = 0; r < options.ranks; ++r)
        moved |= runOne(r);
    }
  }

  bool runOne(Id r) {
    Rank &rank = ranks[r];
    if (rank.next == rank.order.size())
      return false;
    const auto [op, microbatch] = rank.order[rank.next];
    const bool forward = op == Op::Forward;
    const uint32_t received =
        forward ? rank.received[microbatch] : rank.receivedGradient[microbatch];
    if (op != Op::BackwardWeight && received == kNone)
      return false;
    ++rank.next;
    if (forward)
      runForward(r, microbatch);
    else
      runBackward(r, op, microbatch);
    return true;
  }

  uint32_t lastUse(Rank &rank, Id buffer) const {
    const auto found = rank.lastUse.find(buffer);
    return found == rank.lastUse.end() ? kNone : found->second;
  }

  void runForward(Id r, Id k) {
    Rank &rank = ranks[r];
    const uint32_t slot = k % options.slots;
    std::vector<uint32_t> waits;
    std::vector<Operand> operands = {operand(rank.parameters, Access::Read),
                                     operand(rank.workspace, Access::Update)};
    if (r != 0) {
      waits.push_back(rank.received[k]);
      operands.push_back(operand(rank.in[slot], Access::Read));
    }
    const bool sends = r + 1 != options.ranks;
    if (sends) {
      waits.push_back(lastUse(rank, rank.out[slot]));
      operands.push_back(operand(rank.out[slot], Access::Write));
    }
    operands.push_back(operand(rank.saved[k], Access::Write));
    operands.push_back(operand(rank.kept[k], Access::Write));
    const uint32_t op =
        rank.builder.add(Op::Forward, r, k, waits, std::move(operands));
    if (r != 0)
      rank.lastUse[rank.in[slot]] = op;
    if (!sends)
      return;
    message(r, r + 1, Op::SendForward, k, op, rank.out[slot],
            ranks[r + 1].in[slot], forwardChannel(r));
    ranks[r + 1].received[k] = lastOp(r + 1);
  }

  void runBackward(Id r, Op op, Id k) {
    Rank &rank = ranks[r];
    const uint32_t slot = k % options.slots;
    if (op == Op::BackwardWeight) {
      rank.builder.add(op, r, k, {},
                       {operand(rank.gradients, Access::Update),
                        operand(rank.workspace, Access::Update),
                        operand(rank.kept[k], Access::Read)});
      return;
    }
    std::vector<uint32_t> waits;
    std::vector<Operand> operands = {operand(rank.parameters, Access::Read),
                                     operand(rank.workspace, Access::Update),
                                     operand(rank.saved[k], Access::Read),
                                     operand(rank.kept[k], Access::Update)};
    if (r + 1 != options.ranks) {
      waits.push_back(rank.receivedGradient[k]);
      operands.push_back(operand(rank.gradIn[slot], Access::Read));
    }
    if (r != 0) {
      waits.push_back(lastUse(rank, rank.gradOut[slot]));
      operands.push_back(operand(rank.gradOut[slot], Access::Write));
    }
    const uint32_t done =
        rank.builder.add(op, r, k, waits, std::move(operands));
    if (r + 1 != options.ranks)
      rank.lastUse[rank.gradIn[slot]] = done;
    if (r == 0)
      return;
    message(r, r - 1, Op::SendBackward, k, done, rank.gradOut[slot],
            ranks[r - 1].gradIn[slot], backwardChannel(r));
    ranks[r - 1].receivedGradient[k] = lastOp(r - 1);
  }

  void message(Id from, Id to, Op send, Id k, uint32_t producer, Id source,
               Id target, Id channel) {
    const uint32_t sent = ranks[from].builder.add(
        send, from, k, {producer}, {operand(source, Access::Read)}, channel);
    ranks[from].lastUse[source] = sent;
    ranks[to].builder.add(info(send).mate, to, k, {lastUse(ranks[to], target)},
                          {operand(target, Access::Write)}, channel);
  }

  uint32_t lastOp(Id r) const {
    return static_cast<uint32_t>(plan.ranks[r].ops.size() - 1);
  }

  ChainOptions options;
  Plan plan;
  std::vector<Rank> ranks;
};

inline Plan makeChain(const ChainOptions &options) {
  return ChainBuilder(options).build();
}

} // namespace sluice::tests

#endif // SLUICE_TESTS_RUNTIME_PLANFORTESTS_H
