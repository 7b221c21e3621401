//===- compiler/passes/BufferLayout.h - Offsets of buffers in the arena --===//
#ifndef SLUICE_COMPILER_PASSES_BUFFERLAYOUT_H
#define SLUICE_COMPILER_PASSES_BUFFERLAYOUT_H

#include "ir/Plan.h"

namespace sluice {

/// `bytes` rounded up to the alignment of buffers.
constexpr Bytes alignedSize(Bytes bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

/// Gives every buffer bytes of its own.
void placeApart(RankPlan &rank);

/// Lets buffers of equal size share bytes where one begins after another has
/// ended in the order of the list, and adds the waits that make this order
/// certain. Drops waits that others imply. O(ops · streams + operands).
void placeShared(RankPlan &rank);

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_BUFFERLAYOUT_H
