//===- tests/ir/ExplorerOperands.h - What operations of a plan name -------===//
//
// Which buffers each operation of a plan should name, and how: written from the
// model of the design and from what a runtime does with them, with no thought
// of ir/verify.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_IR_EXPLOREROPERANDS_H
#define SLUICE_TESTS_IR_EXPLOREROPERANDS_H

#include "ir/Plan.h"

#include <algorithm>
#include <vector>

namespace sluice::testing {

class ExplorerOperands {
public:
  explicit ExplorerOperands(const Plan &of) : plan(of) {}

protected:
  struct Member {
    Id rank;
    uint32_t at;
  };

  const PlanOp &op(Member m) const { return plan.ranks[m.rank].ops[m.at]; }

  /// How often `rank` adds to the gradients of a stage.
  int additionsOn(Id rank, Id stage) const {
    int count = 0;
    for (const PlanOp &each : plan.ranks[rank].ops)
      count += each.stage == stage &&
               (each.op == Op::Backward || each.op == Op::BackwardWeight);
    return count;
  }
  /// The other ranks that do.
  std::vector<Id> otherCopies(Id rank, Id stage) const {
    std::vector<Id> others;
    for (Id r = 0; r < plan.ranks.size(); ++r)
      if (r != rank && additionsOn(r, stage) != 0)
        others.push_back(r);
    return others;
  }

  /// Whether a runtime that looks for the buffers of a stage by their kind
  /// works on the operand, and once.
  bool isBound(Id stage, const RankPlan &rank,
               std::span<const Operand> operands, size_t nth) const {
    for (size_t other = 0; other < nth; ++other)
      if (operands[other].buffer == operands[nth].buffer)
        return false;
    const Buffer &used = rank.buffers[operands[nth].buffer];
    if (!info(used.kind).persistent)
      return true;
    bool tied = used.kind == BufferKind::Gradients &&
                used.stage == plan.stages[stage].tiedTo;
    for (Id owner : {tied ? used.stage : stage, kNone})
      for (Id b = 0; b < rank.buffers.size(); ++b)
        if (rank.buffers[b].kind == used.kind && rank.buffers[b].stage == owner)
          return b == operands[nth].buffer;
    return false;
  }

  /// How many operands of a kind an operation has that it only reads, or works
  /// on.
  size_t operandsOf(Member m, BufferKind kind, bool reads) const {
    const RankPlan &rank = plan.ranks[m.rank];
    size_t count = 0;
    for (Operand each : rank.operandsOf(m.at))
      count += rank.buffers[each.buffer].kind == kind &&
               (each.access == unsigned(Access::Write)) != reads;
    return count;
  }

  /// Edges whose data an operation takes, or makes.
  size_t edgesOf(Id stage, bool forward, bool takes) const {
    size_t count = 0;
    for (const StageEdge &edge : plan.edges)
      count += (takes == forward ? edge.to : edge.from) == stage &&
               (forward || (plan.stages[edge.from].backward &&
                            plan.stages[edge.to].backward));
    return count;
  }

  /// How often an operation takes the gradients of the stage that its own is
  /// tied to.
  size_t tiedParts(Member m) const {
    const RankPlan &rank = plan.ranks[m.rank];
    size_t count = 0;
    for (Operand each : rank.operandsOf(m.at)) {
      const Buffer &used = rank.buffers[each.buffer];
      count += used.kind == BufferKind::TiedGradients ||
               (used.kind == BufferKind::Gradients &&
                used.stage == plan.stages[op(m).stage].tiedTo);
    }
    return count;
  }

  bool hasOperands(Member m) const {
    const PlanOp &each = op(m);
    const Stage &stage = plan.stages[each.stage];
    const StageBytes &bytes = stage.bytes;
    auto has = [&](BufferKind kind, size_t reads, size_t writes = 0) {
      return operandsOf(m, kind, true) == reads &&
             operandsOf(m, kind, false) == writes;
    };
    auto hasState = [&](BufferKind kind, Bytes needed) {
      return needed == 0 || operandsOf(m, kind, true) != 0;
    };
    bool computes = hasState(BufferKind::Workspace, bytes.workspace);
    bool reads = hasState(BufferKind::Parameters, bytes.parameters);
    bool adds = hasState(BufferKind::Gradients, bytes.gradients);
    switch (each.op) {
    case Op::Forward:
      return computes && reads &&
             has(BufferKind::Activation, edgesOf(each.stage, true, true),
                 edgesOf(each.stage, true, false)) &&
             (!stage.backward || hasLeft(m));
    case Op::Backward:
    case Op::BackwardInput:
      return computes && reads && (adds || each.op == Op::BackwardInput) &&
             has(BufferKind::Gradient, edgesOf(each.stage, false, true),
                 edgesOf(each.stage, false, false)) &&
             has(BufferKind::Saved, 1) &&
             has(BufferKind::Kept, keptBy(each.stage, each.microbatch));
    case Op::BackwardWeight:
      return computes && adds && has(BufferKind::Kept, 1);
    case Op::SendForward:
    case Op::RecvForward:
    case Op::SendBackward:
    case Op::RecvBackward:
    case Op::SendGradients:
    case Op::RecvGradients:
    case Op::SendTied:
    case Op::RecvTied:
    case Op::AllReduceGradients:
    case Op::ReduceScatterGradients:
    case Op::AllGatherParameters:
    case Op::AllReduceNorms:
      return plan.ranks[m.rank].operandsOf(m.at).size() == 1;
    case Op::ReduceScatterMicrobatch: // no plan here keeps parts of gradients
      return false;
    case Op::AddGradients:
      return adds && has(BufferKind::CopyGradients,
                         otherCopies(m.rank, each.stage).size());
    case Op::NormGradients:
      return adds && hasState(BufferKind::Norms, bytes.norms) &&
             tiedParts(m) == (stage.tiedTo != kNone);
    case Op::OptimizerStep:
      return reads && adds && hasState(BufferKind::Norms, bytes.norms) &&
             hasState(BufferKind::Optimizer, bytes.optimizer) &&
             tiedParts(m) == (stage.tiedTo != kNone);
    case Op::Recompute:
      return computes && reads && hasLeft(m);
    case Op::Offload:
    case Op::Reload:
      return hasMoved(m);
    }
    return false;
  }

  /// Whether a forward or a recompute names what it starts from and what it
  /// leaves, as the policy of its stage shares that out.
  bool hasLeft(Member m) const {
    struct Row {
      size_t checkpointRead, checkpointWritten, keptRead;
      size_t savedWritten, keptLeast, keptMost;
    };
    static constexpr Row kForward[] = {
        {0, 0, 0, 1, 0, 1}, {0, 0, 0, 0, 1, 1}, {0, 1, 0, 0, 0, 0}};
    static constexpr Row kRecompute[] = {
        {0, 0, 0, 0, 0, 0}, {0, 0, 1, 1, 0, 0}, {1, 0, 0, 1, 0, 1}};
    auto policy = static_cast<size_t>(plan.stages[op(m).stage].recomputePolicy);
    const Row &row = (op(m).op == Op::Forward ? kForward : kRecompute)[policy];
    auto count = [&](BufferKind kind, bool reads) {
      return operandsOf(m, kind, reads);
    };
    size_t kept = count(BufferKind::Kept, false);
    return count(BufferKind::Checkpoint, true) == row.checkpointRead &&
           count(BufferKind::Checkpoint, false) == row.checkpointWritten &&
           count(BufferKind::Kept, true) == row.keptRead &&
           count(BufferKind::Saved, true) == 0 &&
           count(BufferKind::Saved, false) == row.savedWritten &&
           kept >= row.keptLeast && kept <= row.keptMost;
  }

  /// Whether a copy names all that the forward of its stage leaves at its end
  /// on the device, and one buffer at its end on the host.
  bool hasMoved(Member m) const {
    bool out = op(m).op == Op::Offload;
    RecomputePolicy policy = plan.stages[op(m).stage].recomputePolicy;
    size_t kept = policy == RecomputePolicy::Full ? 0
                  : policy == RecomputePolicy::Selective
                      ? 1
                      : keptBy(op(m).stage, op(m).microbatch);
    auto has = [&](BufferKind kind, size_t wanted) {
      return operandsOf(m, kind, out) == wanted &&
             operandsOf(m, kind, !out) == 0;
    };
    return has(BufferKind::Saved, policy == RecomputePolicy::None) &&
           has(BufferKind::Kept, kept) &&
           has(BufferKind::Checkpoint, policy == RecomputePolicy::Full) &&
           operandsOf(m, BufferKind::Offloaded, !out) == 1 &&
           operandsOf(m, BufferKind::Offloaded, out) == 0;
  }

  /// What a copy moves, piece by piece.
  std::vector<std::pair<BufferKind, Bytes>> piecesOf(Member m) const {
    const RankPlan &rank = plan.ranks[m.rank];
    std::vector<std::pair<BufferKind, Bytes>> pieces;
    for (Operand each : rank.operandsOf(m.at))
      if (const Buffer &used = rank.buffers[each.buffer];
          used.kind != BufferKind::Offloaded)
        pieces.emplace_back(used.kind, used.bytes);
    return pieces;
  }

  /// Whether a copy back cuts what it brings as each copy out of the same did.
  bool isCutAsMoved(Member m) const {
    const std::vector<PlanOp> &ops = plan.ranks[m.rank].ops;
    for (uint32_t at = 0; at < ops.size(); ++at)
      if (ops[at].op == Op::Offload && ops[at].stage == op(m).stage &&
          ops[at].microbatch == op(m).microbatch &&
          piecesOf({m.rank, at}) != piecesOf(m))
        return false;
    return true;
  }

  /// How many buffers a stage and microbatch keeps for W: those of its forward,
  /// or of its recompute if that is full.
  size_t keptBy(Id stage, Id microbatch) const {
    for (Id r = 0; r < plan.ranks.size(); ++r)
      for (uint32_t at = 0; at < plan.ranks[r].ops.size(); ++at) {
        const PlanOp &each = plan.ranks[r].ops[at];
        bool full = plan.stages[stage].recomputePolicy == RecomputePolicy::Full;
        if (each.op == (full ? Op::Recompute : Op::Forward) &&
            each.stage == stage && each.microbatch == microbatch)
          return operandsOf({r, at}, BufferKind::Kept, false);
      }
    return 0;
  }

  /// Bytes of what a forward leaves, in all that the operation names of it.
  Bytes storedAt(Member m) const {
    const RankPlan &rank = plan.ranks[m.rank];
    Bytes bytes = 0;
    for (Operand each : rank.operandsOf(m.at))
      if (BufferKind kind = rank.buffers[each.buffer].kind;
          kind == BufferKind::Saved || kind == BufferKind::Kept)
        bytes += rank.buffers[each.buffer].bytes;
    return bytes;
  }

  const Plan &plan;
};

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_EXPLOREROPERANDS_H
