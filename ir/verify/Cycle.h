//===- ir/verify/Cycle.h - Shortest cycle of a graph ----------------------===//
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

/// A cycle of `graph`, each node pointing to the next and the last to the
/// first; empty if there is none. It is a shortest one, unless that would cost
/// more than a fixed effort (some tenths of a second): then the shortest seen.
std::vector<Id> shortestCycle(const Digraph &graph);

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_CYCLE_H
