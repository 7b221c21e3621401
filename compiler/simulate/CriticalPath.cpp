#include "compiler/simulate/Simulate.h"

#include "llvm/ADT/DenseMap.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

/// Walks back from the node that ends last: what made a node start when it
/// did ended just then, or its message arrived just then.
class PathWalk {
public:
  PathWalk(const Graph &graph, const Schedule &schedule,
           const ScheduleTiming &timing);

  std::vector<Id> walk() const;

private:
  Id last() const;
  Id before(Id node) const;
  Id reasonOf(Id node) const;
  Id senderBefore(Id message) const;
  Id messageTo(Id value, Id rank) const;

  const Graph &graph;
  const ScheduleTiming &timing;
  std::vector<Id> previous;      ///< per node, the one before it on its rank
  llvm::DenseMap<Id, Id> joined; ///< nodes that run together, both ways
  std::vector<Id> byValue;       ///< messages in order of their value
  std::vector<Id> onLink;        ///< per message, the one before it on its link
};

PathWalk::PathWalk(const Graph &graph, const Schedule &schedule,
                   const ScheduleTiming &timing)
    : graph(graph), timing(timing), previous(graph.nodes.size(), kNone),
      byValue(timing.messages.size()), onLink(timing.messages.size()) {
  for (Id rank = 0; rank < schedule.ranks(); ++rank) {
    std::span<const Id> order = schedule.rank(rank);
    for (size_t i = 1; i < order.size(); ++i) {
      previous[order[i]] = order[i - 1];
      if (schedule.joins(schedule.firstOfRank[rank] + i - 1)) {
        joined[order[i]] = order[i - 1];
        joined[order[i - 1]] = order[i];
        previous[order[i]] = previous[order[i - 1]]; // before both
      }
    }
  }
  llvm::DenseMap<std::pair<Id, Id>, Id> latest;
  for (Id i = 0; i < byValue.size(); ++i) {
    byValue[i] = i;
    const Message &message = timing.messages[i];
    auto [found, added] =
        latest.try_emplace({message.source, message.destination}, i);
    onLink[i] = added ? kNone : std::exchange(found->second, i);
  }
  std::stable_sort(byValue.begin(), byValue.end(), [&](Id a, Id b) {
    return timing.messages[a].value < timing.messages[b].value;
  });
}

Id PathWalk::last() const {
  Id best = kNone;
  for (Id node : timing.topological)
    if (best == kNone || timing.end[node] >= timing.end[best])
      best = node;
  return best;
}

Id PathWalk::messageTo(Id value, Id rank) const {
  auto it = std::lower_bound(
      byValue.begin(), byValue.end(), value,
      [&](Id message, Id v) { return timing.messages[message].value < v; });
  while (it != byValue.end() && timing.messages[*it].destination != rank)
    ++it;
  return it == byValue.end() ? kNone : *it;
}

/// The producer of `message`, or of the earliest message of a run that kept
/// the link busy until this one.
Id PathWalk::senderBefore(Id message) const {
  Id held = message;
  for (Id earlier = message; earlier != kNone; earlier = onLink[earlier]) {
    held = earlier;
    const Message &sent = timing.messages[earlier];
    if (sent.start == timing.end[graph.values[sent.value].producer])
      break;
  }
  return graph.values[timing.messages[held].value].producer;
}

/// What made `node`, or what runs together with it, start.
Id PathWalk::before(Id node) const {
  Id found = reasonOf(node);
  if (auto other = joined.find(node); found == kNone && other != joined.end())
    return reasonOf(other->second);
  return found;
}

Id PathWalk::reasonOf(Id node) const {
  Ticks start = timing.start[node];
  if (previous[node] != kNone && timing.end[previous[node]] == start)
    return previous[node];
  for (Id value : graph.inputs(node)) {
    Id producer = graph.values[value].producer;
    if (timing.rankOf[producer] == timing.rankOf[node]) {
      if (timing.end[producer] == start)
        return producer;
      continue;
    }
    Id message = messageTo(value, timing.rankOf[node]);
    if (message != kNone && timing.messages[message].end == start)
      return senderBefore(message);
  }
  return kNone;
}

std::vector<Id> PathWalk::walk() const {
  std::vector<Id> path;
  for (Id node = last(); node != kNone; node = before(node))
    path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

} // namespace

std::vector<Id> criticalPath(const Graph &graph, const Schedule &schedule,
                             const ScheduleTiming &timing) {
  return PathWalk(graph, schedule, timing).walk();
}

} // namespace sluice
