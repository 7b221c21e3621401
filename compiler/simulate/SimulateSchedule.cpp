#include "compiler/simulate/Simulate.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sluice {
namespace {

/// A link that leaves a rank, and when it can carry the next message.
struct OutgoingLink {
  Id destination;
  Link link;
  Ticks free;
};

/// A position and the time it is sorted by.
struct Keyed {
  uint64_t key;
  Id position;
};

/// Positions of `keys` (not negative) sorted by key, equal keys in their old
/// order: a radix sort, linear in keys times digits. Bits that are zero in all
/// keys are left out at both ends.
std::vector<Keyed> stableOrder(std::vector<Keyed> keys) {
  constexpr unsigned kDigitBits = 11, kDigits = 1u << kDigitBits;
  uint64_t used = 0;
  for (const Keyed &each : keys)
    used |= each.key;
  unsigned first = used == 0 ? 0 : std::countr_zero(used);
  std::vector<Keyed> sorted(keys.size());
  for (unsigned shift = first; shift < 64 && (used >> shift) != 0;
       shift += kDigitBits) {
    Id position[kDigits + 1] = {};
    for (const Keyed &each : keys)
      ++position[((each.key >> shift) % kDigits) + 1];
    for (unsigned digit = 1; digit < kDigits; ++digit)
      position[digit] += position[digit - 1];
    for (const Keyed &each : keys)
      sorted[position[(each.key >> shift) % kDigits]++] = each;
    keys.swap(sorted);
  }
  return keys;
}

/// A node that waits or runs; together, as a consumer is anywhere in memory.
struct NodeState {
  Ticks start = 0;
  uint32_t waits = 0; ///< how many it still waits for
  Id rank = kNone;
  Id next = kNone; ///< the one after it on its rank
  Id unit = kNone; ///< the first of those it runs together with
};

/// Kahn's algorithm: a node is finished when all it waits for is, which need
/// not be in order of time. That suffices, because all that competes for a
/// link comes from one rank, in the order of that rank.
class ScheduleSimulation {
public:
  ScheduleSimulation(const Graph &graph, const Schedule &schedule,
                     const Network &network)
      : graph(graph), schedule(schedule), network(network) {}

  std::optional<ScheduleTiming> run();

private:
  bool place();
  void countWaits();
  bool isJoined(Id node) const;
  Ticks durationFrom(Id node) const;
  void begin(Id unit);
  void finish(Id node);
  void deliver(Id value, Id source, Ticks sent);
  Ticks send(Id value, Id source, Id destination, Ticks sent);
  OutgoingLink &linkBetween(Id source, Id destination);
  void release(Id node, Ticks when);
  void sortByTime();
  void measure();

  const Graph &graph;
  const Schedule &schedule;
  const Network &network;
  ScheduleTiming timing; ///< topological is the work list
  std::vector<NodeState> states;
  std::vector<Id> firstMessage; ///< per position of the work list
  std::vector<std::vector<OutgoingLink>> links; ///< per source
  std::vector<Id> lastValue;      ///< per destination: value sent there last
  std::vector<Ticks> lastArrival; ///< ... and when it arrives
};

/// Notes where each node runs; false unless each runs exactly once.
bool ScheduleSimulation::place() {
  size_t count = graph.nodes.size();
  if (schedule.order.size() != count)
    return false;
  states.resize(count);
  for (Id rank = 0; rank < schedule.ranks(); ++rank) {
    Id previous = kNone;
    for (size_t at = schedule.firstOfRank[rank];
         at < schedule.firstOfRank[rank + 1]; ++at) {
      Id node = schedule.order[at];
      if (node >= count || states[node].rank != kNone)
        return false;
      bool joined = previous != kNone && schedule.joins(at - 1);
      states[node].rank = rank;
      states[node].unit = joined ? states[previous].unit : node;
      if (previous != kNone)
        states[previous].next = node;
      previous = node;
    }
  }
  return llvm::all_of(
      states, [](const NodeState &state) { return state.rank != kNone; });
}

void ScheduleSimulation::countWaits() {
  for (Id node : graph.uses)
    ++states[states[node].unit].waits;
  for (const NodeState &state : states)
    if (state.next != kNone && states[state.next].unit != state.unit)
      ++states[state.next].waits;
}

/// Whether `node` runs together with the one after it.
bool ScheduleSimulation::isJoined(Id node) const {
  Id next = states[node].next;
  return next != kNone && states[next].unit == states[node].unit;
}

/// Time of what starts with `node`: its own, or that of its pair.
Ticks ScheduleSimulation::durationFrom(Id node) const {
  const Node &first = graph.nodes[node];
  if (!isJoined(node))
    return first.duration;
  const Node &second = graph.nodes[states[node].next];
  return pairDuration(first.duration, second.duration,
                      graph.stages[first.stage], graph.stages[second.stage]);
}

OutgoingLink &ScheduleSimulation::linkBetween(Id source, Id destination) {
  std::vector<OutgoingLink> &outgoing = links[source];
  for (OutgoingLink &entry : outgoing)
    if (entry.destination == destination)
      return entry;
  outgoing.push_back({destination, network.between(source, destination), 0});
  return outgoing.back();
}

Ticks ScheduleSimulation::send(Id value, Id source, Id destination,
                               Ticks sent) {
  OutgoingLink &entry = linkBetween(source, destination);
  Ticks start = std::max(sent, entry.free);
  entry.free = later(
      start, entry.link.occupancy(graph.values[value].bytes, graph.timeUnit));
  Ticks end = later(entry.free, entry.link.latency);
  timing.messages.push_back({value, source, destination, start, end});
  return end;
}

void ScheduleSimulation::release(Id node, Ticks when) {
  Id unit = states[node].unit;
  NodeState &state = states[unit];
  state.start = std::max(state.start, when);
  if (--state.waits == 0)
    begin(unit);
}

/// Puts a unit on the work list, its members side by side.
void ScheduleSimulation::begin(Id unit) {
  timing.topological.push_back(unit);
  if (isJoined(unit))
    timing.topological.push_back(states[unit].next);
}

/// Hands `value` to its consumers, with one message to each other rank.
void ScheduleSimulation::deliver(Id value, Id source, Ticks sent) {
  for (Id consumer : graph.consumers(value)) {
    Id destination = states[consumer].rank;
    if (destination == source) {
      release(consumer, sent);
      continue;
    }
    if (lastValue[destination] != value) {
      lastValue[destination] = value;
      lastArrival[destination] = send(value, source, destination, sent);
    }
    release(consumer, lastArrival[destination]);
  }
}

void ScheduleSimulation::finish(Id node) {
  const NodeState &state = states[node];
  Ticks start = states[state.unit].start;
  Ticks end = state.unit == node ? later(start, durationFrom(node))
                                 : timing.end[state.unit];
  timing.start[node] = start;
  timing.end[node] = end;
  timing.rankOf[node] = state.rank;
  firstMessage.push_back(static_cast<Id>(timing.messages.size()));
  auto [first, last] = graph.outputs(node);
  for (Id value = first; value < last; ++value)
    deliver(value, state.rank, end);
  if (state.next != kNone && !isJoined(node))
    release(state.next, end);
}

/// Sorts nodes and messages by start. The work list is a topological order and
/// what depends on a thing never starts before it, so a stable sort keeps it
/// one. Messages are taken in the sorted order of their producers first.
void ScheduleSimulation::sortByTime() {
  std::vector<Id> found = std::move(timing.topological);
  std::vector<Message> sent = std::move(timing.messages);
  firstMessage.push_back(static_cast<Id>(sent.size()));
  std::vector<Keyed> keys, messageKeys;
  keys.reserve(found.size());
  messageKeys.reserve(sent.size());
  for (Id i = 0; i < found.size(); ++i)
    keys.push_back({static_cast<uint64_t>(timing.start[found[i]]), i});
  timing.topological.clear();
  timing.topological.reserve(found.size());
  for (auto [key, position] : stableOrder(std::move(keys))) {
    timing.topological.push_back(found[position]);
    for (Id i = firstMessage[position]; i < firstMessage[position + 1]; ++i)
      messageKeys.push_back({static_cast<uint64_t>(sent[i].start), i});
  }
  timing.messages.clear();
  timing.messages.reserve(sent.size());
  for (auto [key, position] : stableOrder(std::move(messageKeys)))
    timing.messages.push_back(sent[position]);
}

void ScheduleSimulation::measure() {
  for (Id rank = 0; rank < schedule.ranks(); ++rank) {
    std::span<const Id> order = schedule.rank(rank);
    if (order.empty())
      continue;
    Ticks end = timing.end[order.back()];
    timing.makespan = std::max(timing.makespan, end);
    timing.span = std::max(timing.span, end - timing.start[order.front()]);
  }
}

std::optional<ScheduleTiming> ScheduleSimulation::run() {
  if (!place())
    return std::nullopt;
  size_t count = graph.nodes.size();
  countWaits();
  timing.start.assign(count, 0);
  timing.end.assign(count, 0);
  timing.rankOf.assign(count, kNone);
  timing.topological.reserve(count);
  firstMessage.reserve(count + 1);
  links.resize(schedule.ranks());
  lastValue.assign(schedule.ranks(), kNone);
  lastArrival.assign(schedule.ranks(), 0);
  for (Id node = 0; node < count; ++node)
    if (states[node].waits == 0 && states[node].unit == node)
      begin(node);
  for (size_t i = 0; i < timing.topological.size(); ++i)
    finish(timing.topological[i]);
  if (timing.topological.size() != count)
    return std::nullopt;
  sortByTime();
  measure();
  return std::move(timing);
}

} // namespace

std::optional<ScheduleTiming> simulateSchedule(const Graph &graph,
                                               const Schedule &schedule,
                                               const Network &network) {
  return ScheduleSimulation(graph, schedule, network).run();
}

} // namespace sluice
