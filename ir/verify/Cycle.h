//===- ir/verify/Cycle.h - Shortest cycles of a graph ---------------------===//
#ifndef SLUICE_IR_VERIFY_CYCLE_H
#define SLUICE_IR_VERIFY_CYCLE_H

#include "ir/Ops.h"

#include <utility>
#include <vector>

namespace sluice::verify {

/// A directed graph in flat arrays: node n points to target[first[n]] up to
/// target[first[n + 1]].
struct Digraph {
  std::vector<Id> first{0}; ///< nodes + 1
  std::vector<Id> target;

  Id nodes() const { return static_cast<Id>(first.size() - 1); }
  /// Builds the graph of `nodes` nodes from pairs (from, to), stable in their
  /// order. O(nodes + pairs).
  static Digraph fromPairs(Id nodes,
                           const std::vector<std::pair<Id, Id>> &pairs);
};

/// Cycles of `graph`, one in each of its strongly connected parts that have
/// any, so that no two share a node: each node points to the next and the last
/// to the first. Shortest first; of equals, the one of the part with the least
/// node. Each is a shortest one of its part as long as the `effort`, in edges
/// followed, lasts; then the shortest seen. Takes what it needed from it.
std::vector<std::vector<Id>> shortestCycles(const Digraph &graph,
                                            uint64_t &effort);

/// For what is told once: some tenths of a second.
inline constexpr uint64_t kCycleEffort = 50'000'000;

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_CYCLE_H
