//===- compiler/passes/Packing.h - Lifetimes to offsets -------------------===//
//
// Dynamic storage allocation with all lifetimes known beforehand: buffers that
// are in use at the same time get bytes apart. To find the least arena is
// NP-hard, so several ways are tried until one comes near the most bytes that
// are in use at once: places for each size, taken over by who waits least; best
// fit along the steps and against them; and, of lists that are not long,
// largest first.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_PASSES_PACKING_H
#define SLUICE_COMPILER_PASSES_PACKING_H

#include "ir/Units.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace sluice {

/// Bytes that are in use from the moment `begin` to the moment `end`. A step
/// has two: what computes, and the messages behind that. What is in use at the
/// same step has bytes apart.
struct Lifetime {
  uint32_t begin, end; ///< 2 · step, or 2 · step + 1 for messages
  Bytes bytes;         ///< aligned, not 0

  uint32_t firstStep() const { return begin / 2; }
  uint32_t lastStep() const { return end / 2; }
  /// A message may still run at the step behind its own, and who takes over its
  /// bytes might have to wait.
  uint32_t lateStep() const { return (end + 1) / 2; }
};

/// The most bytes at one step, in use or late. O(lifetimes + steps).
Bytes mostLive(llvm::ArrayRef<Lifetime> lifetimes);

/// Bytes of an arena in which each size has as many places as are in use at
/// once, late ones not counted; no less for more or for longer lifetimes.
/// O(n log n).
Bytes bytesBySize(llvm::ArrayRef<Lifetime> lifetimes);

/// An arena that is at most this large is near enough to what is in use.
constexpr Bytes nearTo(Bytes live) { return live + live / 256; }

struct Packing {
  Bytes bytes = 0;            ///< where the last one ends
  std::vector<Bytes> offsets; ///< per lifetime
  /// Pairs of lifetimes of which the second is the next to use some bytes of
  /// the first; it begins at a later step than that ends. At most two pairs a
  /// lifetime.
  std::vector<std::pair<uint32_t, uint32_t>> takeovers;
};

/// Packs `lifetimes` into bytes from 0 on: at most nearTo() the most that are
/// live, or the least of all ways, so at most bytesBySize(). How many bytes
/// does not depend on the order of the lifetimes. O(n log n + steps) for n of
/// them.
Packing pack(llvm::ArrayRef<Lifetime> lifetimes);

/// The same for the bytes alone, which costs less.
Bytes packedBytes(llvm::ArrayRef<Lifetime> lifetimes);

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_PACKING_H
