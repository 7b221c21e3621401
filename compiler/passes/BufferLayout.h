//===- compiler/passes/BufferLayout.h - Offsets of buffers in the arena --===//
#ifndef SLUICE_COMPILER_PASSES_BUFFERLAYOUT_H
#define SLUICE_COMPILER_PASSES_BUFFERLAYOUT_H

#include "ir/Plan.h"

namespace sluice {

/// `bytes` rounded up to the alignment of buffers.
constexpr Bytes alignedSize(Bytes bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

/// Whether an operation begins a step of its rank's list, to which the messages
/// behind it belong. What is in use at one step has bytes apart; so a message
/// takes over no bytes of what computes last before it and may still run when
/// the message could start. All that comes before has ended by then. What is
/// exchanged at the end of the list has a step of its own: it is needed after
/// the last computation of both its ranks, whichever ends later.
/// A copy to the host belongs to the step before it, as long as which it may
/// take; one back begins a step, as it may take bytes of what computed last.
constexpr bool beginsStep(const PlanOp &op) {
  return (!isMessage(op.op) || op.microbatch == kNone) && op.op != Op::Offload;
}

/// Gives every buffer bytes of its own, in the arena or in the host's.
void placeApart(RankPlan &rank);

/// Lets buffers share bytes where one begins at a later step of the list than
/// another ends, and adds the waits that make this order certain; those that
/// then differ in nothing become one. Drops waits that others imply. O(ops ·
/// streams + operands + n log n) for n buffers.
void placeShared(RankPlan &rank);

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_BUFFERLAYOUT_H
