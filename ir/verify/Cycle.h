//===- ir/verify/Cycle.h - Shortest cycles of a graph ---------------------===//
#ifndef SLUICE_IR_VERIFY_CYCLE_H
#define SLUICE_IR_VERIFY_CYCLE_H

#include "ir/Ops.h"

#include <algorithm>
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

/// How many steps from place `at` of a cycle of `length` on are of order alone,
/// as `isOrder(i)` says of the step from place i.
template <typename IsOrder>
size_t runOfOrder(size_t length, size_t at, IsOrder isOrder) {
  size_t run = 0;
  while (at + run < length && isOrder(at + run))
    ++run;
  return run;
}

/// Calls `visit(at, end, run)` for each step of a cycle of `length` as it is
/// told, from place `at` to place `end`: more than two steps of order alone are
/// told as one `run`, which is 0 or 1 of the others.
template <typename IsOrder, typename Visit>
void forEachToldStep(size_t length, IsOrder isOrder, Visit visit) {
  constexpr size_t kToldAlone = 2;
  for (size_t at = 0; at < length;) {
    size_t run = runOfOrder(length, at, isOrder);
    size_t end = at + (run > kToldAlone ? run : 1);
    visit(at, end, run > kToldAlone ? run : std::min<size_t>(run, 1));
    at = end;
  }
}

/// For what is told once: some tenths of a second on a slow machine.
inline constexpr uint64_t kCycleEffort = 10'000'000;

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_CYCLE_H
