#include "ir/verify/Cycle.h"

#include <algorithm>

namespace sluice::verify {

Digraph Digraph::fromPairs(Id nodes,
                           const std::vector<std::pair<Id, Id>> &pairs) {
  Digraph graph;
  graph.first.assign(size_t(nodes) + 1, 0);
  for (auto [from, to] : pairs)
    ++graph.first[from + 1];
  for (Id n = 0; n < nodes; ++n)
    graph.first[n + 1] += graph.first[n];
  std::vector<Id> next(graph.first.begin(), graph.first.end() - 1);
  graph.target.resize(pairs.size());
  for (auto [from, to] : pairs)
    graph.target[next[from]++] = to;
  return graph;
}

namespace {

/// Strongly connected parts with a cycle, by Tarjan's algorithm (Depth-first
/// search and linear graph algorithms, 1972) with a stack of its own.
/// O(nodes + edges).
class Parts {
public:
  explicit Parts(const Digraph &of)
      : graph(of), number(of.nodes(), kNone), least(of.nodes()),
        nextEdge(of.first), partOf(of.nodes(), kNone) {
    for (Id n = 0; n < graph.nodes(); ++n)
      if (number[n] == kNone)
        visitAll(n);
  }

  /// Per node its part; kNone for one that is on no cycle.
  const std::vector<Id> &parts() const { return partOf; }
  Id count() const { return parted; }

private:
  void visitAll(Id root) {
    enter(root);
    while (!path.empty()) {
      Id n = path.back();
      if (nextEdge[n] == graph.first[n + 1]) {
        leave(n);
        continue;
      }
      Id to = graph.target[nextEdge[n]++];
      if (number[to] == kNone)
        enter(to);
      else if (number[to] != kClosed)
        least[n] = std::min(least[n], number[to]);
    }
  }

  void enter(Id n) {
    number[n] = least[n] = entered++;
    path.push_back(n);
    open.push_back(n);
  }

  void leave(Id n) {
    path.pop_back();
    if (!path.empty())
      least[path.back()] = std::min(least[path.back()], least[n]);
    if (least[n] != number[n])
      return;
    bool hasCycle = open.back() != n || pointsTo(n, n);
    for (Id last = kNone; last != n;) {
      last = open.back();
      open.pop_back();
      number[last] = kClosed;
      if (hasCycle)
        partOf[last] = parted;
    }
    parted += hasCycle;
  }

  bool pointsTo(Id n, Id to) const {
    auto begin = graph.target.begin();
    return std::find(begin + graph.first[n], begin + graph.first[n + 1], to) !=
           begin + graph.first[n + 1];
  }

  static constexpr Id kClosed = kNone - 1; ///< its part is known
  const Digraph &graph;
  std::vector<Id> number; ///< in order of the search
  std::vector<Id> least;  ///< number that is reached among open nodes
  std::vector<Id> nextEdge, partOf;
  std::vector<Id> path, open;
  Id entered = 0, parted = 0;
};

/// Breadth-first searches for cycles through one node after another, each
/// within the part of the node.
class Search {
public:
  Search(const Digraph &of, const Parts &parts, uint64_t &most)
      : graph(of), effort(most), partOf(parts.parts()), best(parts.count()),
        seenFrom(of.nodes(), kNone), parent(of.nodes()), depth(of.nodes()),
        at(of.nodes(), kNone) {}

  /// A shorter cycle through `start` than the best of its part, if there is
  /// one; some cycle, where the part has none yet.
  void through(Id start) {
    if (best[partOf[start]].empty())
      anyCycle(start);
    if (effort != 0)
      shorter(start);
  }

  std::vector<std::vector<Id>> take() { return std::move(best); }

private:
  /// Follows first targets in the part until one repeats.
  void anyCycle(Id start) {
    queue.clear();
    Id n = start;
    for (; at[n] == kNone; n = firstInPart(n)) {
      at[n] = static_cast<Id>(queue.size());
      queue.push_back(n);
    }
    best[partOf[start]].assign(queue.begin() + at[n], queue.end());
    for (Id seen : queue)
      at[seen] = kNone;
  }

  void shorter(Id start) {
    Id part = partOf[start];
    queue.assign(1, start);
    seenFrom[start] = start;
    depth[start] = 1;
    for (size_t head = 0; head < queue.size(); ++head) {
      Id n = queue[head];
      if (depth[n] >= best[part].size())
        return;
      for (Id e = graph.first[n]; e < graph.first[n + 1]; ++e) {
        Id to = graph.target[e];
        effort -= effort != 0;
        if (to == start)
          return keep(start, n);
        if (partOf[to] != part || seenFrom[to] == start)
          continue;
        seenFrom[to] = start;
        parent[to] = n;
        depth[to] = depth[n] + 1;
        queue.push_back(to);
      }
    }
  }

  Id firstInPart(Id n) const {
    for (Id e = graph.first[n]; e < graph.first[n + 1]; ++e)
      if (partOf[graph.target[e]] == partOf[n])
        return graph.target[e];
    return n; // not reached: each node of a part points to one of it
  }
  void keep(Id start, Id last) {
    std::vector<Id> &cycle = best[partOf[start]];
    cycle.clear();
    for (Id n = last; n != start; n = parent[n])
      cycle.push_back(n);
    cycle.push_back(start);
    std::reverse(cycle.begin(), cycle.end());
  }

  const Digraph &graph;
  uint64_t &effort; ///< that is left
  const std::vector<Id> &partOf;
  std::vector<std::vector<Id>> best; ///< per part
  std::vector<Id> seenFrom, parent, depth, at, queue;
};

} // namespace

std::vector<std::vector<Id>> shortestCycles(const Digraph &graph,
                                            uint64_t &effort) {
  Parts parts(graph);
  Search search(graph, parts, effort);
  std::vector<Id> order; // parts by their least node
  std::vector<char> seen(parts.count(), 0);
  for (Id n = 0; n < graph.nodes(); ++n) {
    Id part = parts.parts()[n];
    if (part == kNone)
      continue;
    if (!seen[part])
      order.push_back(part);
    seen[part] = 1;
    search.through(n);
  }
  std::vector<std::vector<Id>> found = search.take(), cycles;
  for (Id part : order)
    cycles.push_back(std::move(found[part]));
  std::stable_sort(
      cycles.begin(), cycles.end(),
      [](const auto &a, const auto &b) { return a.size() < b.size(); });
  return cycles;
}

} // namespace sluice::verify
