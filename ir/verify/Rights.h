//===- ir/verify/Rights.h - How operations may use buffers ----------------===//
//
// The verifier's own table of what a plan's operands may be (ir/Plan.h).
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_VERIFY_RIGHTS_H
#define SLUICE_IR_VERIFY_RIGHTS_H

#include "ir/Plan.h"

namespace sluice::verify {

constexpr unsigned bit(BufferKind kind) {
  return 1u << static_cast<unsigned>(kind);
}
constexpr unsigned bit(Access access) {
  return 1u << static_cast<unsigned>(access);
}
constexpr unsigned kR = bit(Access::Read), kU = bit(Access::Update),
                   kW = bit(Access::Write);

/// How operations may use buffers: a set of accesses per kind of buffer.
struct Rights {
  unsigned accesses[kBufferKindCount];
  unsigned state; ///< kinds it must have where its stage has bytes of them
};

/// The columns below are in the order of Buffers.def: a row that comes to stand
/// between them must be given its column.
static_assert(kBufferKindCount == 14 &&
              static_cast<unsigned>(BufferKind::Norms) == 4 &&
              static_cast<unsigned>(BufferKind::Saved) == 5 &&
              static_cast<unsigned>(BufferKind::Checkpoint) == 7 &&
              static_cast<unsigned>(BufferKind::Activation) == 8 &&
              static_cast<unsigned>(BufferKind::TiedGradients) == 11 &&
              static_cast<unsigned>(BufferKind::WholeGradients) == 12 &&
              static_cast<unsigned>(BufferKind::Offloaded) == 13);

/// Of a stage that keeps its gradients whole.
constexpr Rights rightsOf(Op op) {
  constexpr unsigned kCompute =
      bit(BufferKind::Parameters) | bit(BufferKind::Workspace);
  constexpr unsigned kAccumulate =
      bit(BufferKind::Gradients) | bit(BufferKind::Workspace);
  //          parameters, gradients, optimizer, workspace, norms,
  //          saved, kept, checkpoint, activation, gradient, copy gradients,
  //          tied ones, whole gradients, offloaded
  switch (op) {
  case Op::Forward:
    return {{kR, 0, 0, kU, 0, kW, kW, kW, kR | kW, 0, 0, 0}, kCompute};
  case Op::Backward:
    return {{kR, kU, 0, kU, 0, kR | kU, kR | kU, 0, 0, kR | kW, 0, 0},
            kCompute | kAccumulate};
  case Op::BackwardInput:
    return {{kR, kU, 0, kU, 0, kR | kU, kU, 0, 0, kR | kW, 0, 0}, kCompute};
  case Op::BackwardWeight:
    return {{kR, kU, 0, kU, 0, 0, kR | kU, 0, 0, 0, 0, 0}, kAccumulate};
  case Op::Recompute:
    return {{kR, 0, 0, kU, 0, kW, kR | kW, kR, 0, 0, 0, 0}, kCompute};
  case Op::SendForward:
    return {{0, 0, 0, 0, 0, 0, 0, 0, kR, 0, 0, 0}, 0};
  case Op::RecvForward:
    return {{0, 0, 0, 0, 0, 0, 0, 0, kW, 0, 0, 0}, 0};
  case Op::SendBackward:
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, kR, 0, 0}, 0};
  case Op::RecvBackward:
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, kW, 0, 0}, 0};
  case Op::SendGradients:
    return {{0, kR, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, bit(BufferKind::Gradients)};
  case Op::RecvGradients:
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, kW, 0}, 0};
  case Op::AddGradients:
    return {{0, kU, 0, 0, 0, 0, 0, 0, 0, 0, kR, 0}, bit(BufferKind::Gradients)};
  case Op::SendTied:
    return {{0, kR, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, bit(BufferKind::Gradients)};
  case Op::RecvTied:
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, kW}, 0};
  case Op::AllReduceGradients:
  case Op::ReduceScatterGradients:
    return {{0, kU, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, bit(BufferKind::Gradients)};
  case Op::AllGatherParameters:
    return {{kU, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, bit(BufferKind::Parameters)};
  case Op::Offload:
    return {{0, 0, 0, 0, 0, kR, kR, kR, 0, 0, 0, 0, 0, kW}, 0};
  case Op::Reload:
    return {{0, 0, 0, 0, 0, kW, kW, kW, 0, 0, 0, 0, 0, kR}, 0};
  case Op::OptimizerStep:
    return {{kU, kR, kU, 0, kR, 0, 0, 0, 0, 0, 0, kR},
            bit(BufferKind::Parameters) | bit(BufferKind::Gradients) |
                bit(BufferKind::Optimizer) | bit(BufferKind::Norms)};
  case Op::NormGradients:
    return {{0, kR, 0, 0, kU, 0, 0, 0, 0, 0, 0, kR},
            bit(BufferKind::Gradients) | bit(BufferKind::Norms)};
  case Op::AllReduceNorms:
    return {{0, 0, 0, 0, kU, 0, 0, 0, 0, 0, 0, 0}, bit(BufferKind::Norms)};
  case Op::ReduceScatterMicrobatch: // there is nothing whole to sum
    return {};
  }
  return {};
}

/// Of a stage that keeps a part of them: what computes reads it, and works on
/// gradients of its microbatch, which live from I, or B, to their sum over
/// ranks. Nothing else but the step works on gradients.
constexpr Rights partitionedRightsOf(Op op) {
  constexpr auto kPart = static_cast<unsigned>(BufferKind::Gradients),
                 kWhole = static_cast<unsigned>(BufferKind::WholeGradients);
  Rights rights = rightsOf(op);
  if (op == Op::OptimizerStep)
    return rights;
  const bool begins = op == Op::Backward || op == Op::BackwardInput;
  const bool ends = op == Op::Backward || op == Op::BackwardWeight;
  const bool sums = op == Op::ReduceScatterMicrobatch;
  rights.accesses[kPart] = sums ? kU : ends ? kR : 0;
  rights.accesses[kWhole] = begins                             ? kW
                            : sums || op == Op::BackwardWeight ? kU
                                                               : 0;
  if (sums)
    rights.state = bit(BufferKind::Gradients);
  return rights;
}

struct RightsTable {
  Rights of[2][kOpCount];
  constexpr RightsTable() : of() {
    for (unsigned op = 0; op < kOpCount; ++op) {
      of[0][op] = rightsOf(static_cast<Op>(op));
      of[1][op] = partitionedRightsOf(static_cast<Op>(op));
    }
  }
};
constexpr RightsTable kRights;
constexpr const Rights &rights(Op op, bool isPartitioned) {
  return kRights.of[isPartitioned][static_cast<unsigned>(op)];
}

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_RIGHTS_H
