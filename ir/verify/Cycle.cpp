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

/// Peels nodes that nothing (left) points to: no cycle goes through them.
/// Applied to a graph and to its reverse, what is left lies on or between
/// cycles.
void peel(const Digraph &graph, std::vector<char> &left) {
  std::vector<Id> pointers(graph.nodes(), 0), free;
  for (Id n = 0; n < graph.nodes(); ++n)
    if (left[n])
      for (Id e = graph.first[n]; e < graph.first[n + 1]; ++e)
        ++pointers[graph.target[e]];
  for (Id n = 0; n < graph.nodes(); ++n)
    if (left[n] && pointers[n] == 0)
      free.push_back(n);
  while (!free.empty()) {
    Id n = free.back();
    free.pop_back();
    left[n] = 0;
    for (Id e = graph.first[n]; e < graph.first[n + 1]; ++e)
      if (left[graph.target[e]] && --pointers[graph.target[e]] == 0)
        free.push_back(graph.target[e]);
  }
}

Digraph reversed(const Digraph &graph) {
  std::vector<std::pair<Id, Id>> pairs;
  pairs.reserve(graph.target.size());
  for (Id n = 0; n < graph.nodes(); ++n)
    for (Id e = graph.first[n]; e < graph.first[n + 1]; ++e)
      pairs.emplace_back(graph.target[e], n);
  return Digraph::fromPairs(graph.nodes(), pairs);
}

/// Breadth-first searches for cycles through one node after another.
class Search {
public:
  Search(const Digraph &of, const std::vector<char> &on)
      : graph(of), left(on), seenFrom(of.nodes(), kNone), parent(of.nodes()),
        depth(of.nodes()) {}

  /// Some cycle, by following first targets that are left until one repeats.
  void anyCycle(Id start) {
    std::vector<Id> path;
    std::vector<Id> at(graph.nodes(), kNone);
    Id n = start;
    while (at[n] == kNone) {
      at[n] = static_cast<Id>(path.size());
      path.push_back(n);
      n = firstLeft(n);
    }
    best.assign(path.begin() + at[n], path.end());
  }

  /// A shorter cycle than the best through `start`, if there is one.
  void through(Id start) {
    queue.assign(1, start);
    seenFrom[start] = start;
    depth[start] = 1;
    for (size_t head = 0; head < queue.size(); ++head) {
      Id n = queue[head];
      if (depth[n] >= best.size())
        return;
      for (Id e = graph.first[n]; e < graph.first[n + 1]; ++e) {
        Id to = graph.target[e];
        ++effort;
        if (to == start)
          return keep(start, n);
        if (!left[to] || seenFrom[to] == start)
          continue;
        seenFrom[to] = start;
        parent[to] = n;
        depth[to] = depth[n] + 1;
        queue.push_back(to);
      }
    }
  }

  std::vector<Id> best;
  uint64_t effort = 0;

private:
  Id firstLeft(Id n) const {
    for (Id e = graph.first[n]; e < graph.first[n + 1]; ++e)
      if (left[graph.target[e]])
        return graph.target[e];
    return n; // not reached: what is left has a successor that is left
  }
  void keep(Id start, Id last) {
    best.clear();
    for (Id n = last; n != start; n = parent[n])
      best.push_back(n);
    best.push_back(start);
    std::reverse(best.begin(), best.end());
  }

  const Digraph &graph;
  const std::vector<char> &left;
  std::vector<Id> seenFrom, parent, depth, queue;
};

} // namespace

std::vector<Id> shortestCycle(const Digraph &graph) {
  constexpr uint64_t kEffort = 50'000'000;
  std::vector<char> left(graph.nodes(), 1);
  peel(graph, left);
  peel(reversed(graph), left);
  Search search(graph, left);
  for (Id n = 0; n < graph.nodes() && search.effort < kEffort; ++n) {
    if (!left[n])
      continue;
    if (search.best.empty())
      search.anyCycle(n);
    search.through(n);
  }
  return search.best;
}

} // namespace sluice::verify
