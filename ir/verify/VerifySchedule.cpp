#include "ir/verify/Cycle.h"
#include "ir/verify/Internal.h"

#include <algorithm>

namespace sluice::verify {
namespace {

class ScheduleCheck {
public:
  ScheduleCheck(const Graph &of, const Schedule &by, Result &to)
      : graph(of), schedule(by), result(to), report(to) {}

  void check() {
    if (wellFormed() && placeNodes()) {
      checkRanks();
      checkOrder();
    }
    report.finish();
  }

private:
  void tell(FindingKind kind, std::optional<OpPlace> place,
            std::string message) {
    if (report.admits(kind))
      report.error(kind, place, std::move(message));
  }

  std::string nameOf(Id node) const {
    const Node &n = graph.nodes[node];
    return opName(n.op, n.stage, n.microbatch);
  }

  /// Every number is in range.
  bool wellFormed() {
    for (const Node &node : graph.nodes)
      if (static_cast<unsigned>(node.op) >= kOpCount ||
          node.stage >= graph.stages.size() ||
          (info(node.op).perMicrobatch &&
           node.microbatch >= graph.microbatches))
        tell(FindingKind::Malformed, {},
             "node " + std::to_string(&node - graph.nodes.data()) +
                 " of the graph names stage " + std::to_string(node.stage) +
                 " and microbatch " + std::to_string(node.microbatch) +
                 ", the graph has " + std::to_string(graph.stages.size()) +
                 " stages and " + std::to_string(graph.microbatches) +
                 " microbatches");
    Id last = 0;
    for (const Value &value : graph.values) {
      if (value.producer >= graph.nodes.size() || value.firstUse < last ||
          value.firstUse > graph.uses.size())
        tell(FindingKind::Malformed, {},
             "value " + std::to_string(&value - graph.values.data()) +
                 " of the graph is out of range");
      last = value.firstUse;
    }
    for (Id use : graph.uses)
      if (use >= graph.nodes.size())
        tell(FindingKind::Malformed, {},
             "a value of the graph is used by node " + std::to_string(use) +
                 ", the graph has " + std::to_string(graph.nodes.size()));
    const std::vector<Id> &first = schedule.firstOfRank;
    if (first.empty() || first.front() != 0 ||
        first.back() != schedule.order.size() ||
        !std::is_sorted(first.begin(), first.end()))
      tell(FindingKind::Malformed, {},
           "the ranks of the schedule do not cover its " +
               std::to_string(schedule.order.size()) + " operations");
    else
      checkPairs();
    return !report.has(FindingKind::Malformed);
  }

  /// Two operations of one rank make a pair, no more.
  void checkPairs() {
    for (Id r = 0; r < schedule.ranks(); ++r)
      for (uint32_t at = 0; at < schedule.rank(r).size(); ++at) {
        size_t position = schedule.firstOfRank[r] + at;
        if (!schedule.joins(position))
          continue;
        if (at + 1 == schedule.rank(r).size())
          tell(FindingKind::Malformed, OpPlace{r, at},
               where({r, at}) + " runs together with the next one, but is the "
                                "last");
        else if (schedule.joins(position + 1))
          tell(FindingKind::Malformed, OpPlace{r, at},
               where({r, at}) + " begins a unit of three operations");
      }
  }

  /// Every node stands exactly once; fills `placeOf`.
  bool placeNodes() {
    placeOf.assign(graph.nodes.size(), {kNone, 0});
    for (Id r = 0; r < schedule.ranks(); ++r)
      for (uint32_t at = 0; at < schedule.rank(r).size(); ++at)
        placeNode(schedule.rank(r)[at], {r, at});
    for (Id node = 0; node < graph.nodes.size(); ++node)
      if (placeOf[node].rank == kNone)
        tell(FindingKind::Missing, {},
             nameOf(node) + " is missing from the schedule");
    return result.errors.empty();
  }

  void placeNode(Id node, OpPlace at) {
    if (node >= graph.nodes.size())
      return tell(FindingKind::Malformed, at,
                  where(at) + " is node " + std::to_string(node) +
                      ", the graph has " + std::to_string(graph.nodes.size()));
    if (placeOf[node].rank != kNone)
      return tell(FindingKind::Duplicate, at,
                  nameOf(node) + " stands twice: again as " + where(at));
    placeOf[node] = at;
  }

  static std::string where(OpPlace at) {
    return "operation " + std::to_string(at.index) + " of rank " +
           std::to_string(at.rank);
  }

  /// A stage and microbatch stays on one rank.
  void checkRanks() {
    uint64_t cells = uint64_t(graph.stages.size()) * graph.microbatches;
    if (cells > 4 * graph.nodes.size() + 1024)
      return; // most cells are empty: not a training step
    std::vector<Id> rankOf(cells, kNone);
    for (Id r = 0; r < schedule.ranks(); ++r)
      for (uint32_t at = 0; at < schedule.rank(r).size(); ++at) {
        Id number = schedule.rank(r)[at];
        const Node &node = graph.nodes[number];
        if (!info(node.op).perMicrobatch)
          continue;
        Id &rank =
            rankOf[size_t(node.stage) * graph.microbatches + node.microbatch];
        if (rank == kNone)
          rank = r;
        else if (rank != r)
          tell(FindingKind::Order, OpPlace{r, at},
               nameOf(number) + " is on rank " + std::to_string(r) +
                   ", the rest of stage " + std::to_string(node.stage) +
                   ", microbatch " + std::to_string(node.microbatch) +
                   " on rank " + std::to_string(rank));
      }
  }

  std::span<const Id> usesOf(Id value) const {
    size_t first = graph.values[value].firstUse;
    size_t end = value + 1 < graph.values.size()
                     ? graph.values[value + 1].firstUse
                     : graph.uses.size();
    return std::span(graph.uses).subspan(first, end - first);
  }

  /// Whether position `at` of rank `r` runs together with the one before it.
  bool follows(Id r, uint32_t at) const {
    return at > 0 && schedule.joins(schedule.firstOfRank[r] + at - 1);
  }
  /// The first of those that run together with `node`.
  Id unitOf(Id node) const {
    OpPlace at = placeOf[node];
    return follows(at.rank, at.index) ? schedule.rank(at.rank)[at.index - 1]
                                      : node;
  }

  /// Orders of ranks and dependences, each unit pointing to what it waits for.
  Digraph waits() const {
    std::vector<std::pair<Id, Id>> pairs;
    pairs.reserve(graph.uses.size() + schedule.order.size());
    for (Id v = 0; v < graph.values.size(); ++v)
      for (Id use : usesOf(v))
        pairs.emplace_back(unitOf(use), unitOf(graph.values[v].producer));
    for (Id r = 0; r < schedule.ranks(); ++r)
      for (uint32_t at = 1; at < schedule.rank(r).size(); ++at)
        if (!follows(r, at))
          pairs.emplace_back(schedule.rank(r)[at],
                             unitOf(schedule.rank(r)[at - 1]));
    return Digraph::fromPairs(static_cast<Id>(graph.nodes.size()), pairs);
  }

  /// True if doing what can be done does everything: each rank does its list
  /// as far as it has what it needs. O(nodes + values + uses).
  bool ends() {
    listValues();
    need.assign(graph.nodes.size(), 0);
    for (Id use : graph.uses)
      ++need[use];
    nextOfRank.assign(schedule.ranks(), 0);
    size_t done = 0;
    for (Id r = 0; r < schedule.ranks(); ++r) {
      runnable.push_back(r);
      while (!runnable.empty()) {
        Id next = runnable.back();
        runnable.pop_back();
        done += advance(next);
      }
    }
    return done == schedule.order.size();
  }

  /// Each node's values, as lists by way of `valueAfter`.
  void listValues() {
    firstValue.assign(graph.nodes.size(), kNone);
    valueAfter.resize(graph.values.size());
    for (Id v = static_cast<Id>(graph.values.size()); v-- > 0;) {
      Id &first = firstValue[graph.values[v].producer];
      valueAfter[v] = first;
      first = v;
    }
  }

  /// Whether all is there that position `at` needs, and what runs together with
  /// it.
  bool isReady(Id r, uint32_t at) const {
    std::span<const Id> order = schedule.rank(r);
    if (need[order[at]] != 0)
      return false;
    return !schedule.joins(schedule.firstOfRank[r] + at) ||
           need[order[at + 1]] == 0;
  }
  /// Whether the rank of `at` stands there, or at what it runs together with.
  bool isNext(OpPlace at) const {
    uint32_t next = nextOfRank[at.rank];
    return next == at.index ||
           (next + 1 == at.index && follows(at.rank, at.index));
  }

  /// Does what rank `r` can do now; how many that were.
  size_t advance(Id r) {
    std::span<const Id> order = schedule.rank(r);
    uint32_t first = nextOfRank[r], at = first;
    for (; at < order.size() && isReady(r, at); ++at)
      for (Id v = firstValue[order[at]]; v != kNone; v = valueAfter[v])
        for (Id use : usesOf(v))
          if (--need[use] == 0 && placeOf[use].rank != r &&
              isNext(placeOf[use]))
            runnable.push_back(placeOf[use].rank);
    nextOfRank[r] = at;
    return at - first;
  }

  void checkOrder() {
    bool holds = ends();
    std::fill(std::begin(result.holds), std::end(result.holds), holds);
    if (holds)
      result.minBuffering = 0;
    else
      for (const std::vector<Id> &cycle : shortestCycles(waits()))
        if (report.admits(FindingKind::Deadlock))
          tellCycle(cycle);
  }

  void tellCycle(const std::vector<Id> &cycle) {
    std::vector<OpPlace> places;
    for (Id node : cycle)
      places.push_back(placeOf[node]);
    OpPlace first = places.front();
    report.error(FindingKind::Deadlock, first, summary(cycle),
                 std::move(places), std::nullopt, story(cycle));
  }

  /// "1F0 on rank 1 and 0B0 on rank 0 wait for each other": those that need
  /// what others make.
  std::string summary(const std::vector<Id> &cycle) const {
    std::vector<size_t> needing;
    for (size_t i = 0; i < cycle.size(); ++i)
      if (!isBefore(cycle[(i + 1) % cycle.size()], cycle[i]))
        needing.push_back(i);
    std::string first = on(cycle[needing[0]]);
    if (needing.size() == 1)
      return first + " needs " + on(cycle[(needing[0] + 1) % cycle.size()]) +
             ", which comes after it";
    if (needing.size() == 2)
      return first + " and " + on(cycle[needing[1]]) + " wait for each other";
    return first + " and " + std::to_string(needing.size() - 1) +
           " others wait in a circle";
  }

  /// A step a line: "1F0 on rank 1 needs 0F0 on rank 0", "0F0 on rank 0 comes
  /// after 0B1". A pair that runs together is named as one.
  std::vector<std::string> story(const std::vector<Id> &cycle) const {
    std::vector<std::string> steps;
    for (size_t i = 0; i < cycle.size(); ++i) {
      Id next = cycle[(i + 1) % cycle.size()];
      steps.push_back(on(cycle[i]) +
                      (isBefore(next, cycle[i]) ? " comes after " : " needs ") +
                      on(next));
    }
    return steps;
  }

  /// Whether unit `first` stands right before unit `second` on its rank.
  bool isBefore(Id first, Id second) const {
    OpPlace at = placeOf[second];
    return at.index > 0 && placeOf[first].rank == at.rank &&
           unitOf(schedule.rank(at.rank)[at.index - 1]) == first;
  }

  std::string on(Id unit) const {
    OpPlace at = placeOf[unit];
    std::string name = nameOf(unit);
    if (schedule.joins(schedule.firstOfRank[at.rank] + at.index))
      name = "(" + name + ";" + nameOf(schedule.rank(at.rank)[at.index + 1]) +
             kPairEnd;
    return name + " on rank " + std::to_string(at.rank);
  }

  const Graph &graph;
  const Schedule &schedule;
  Result &result;
  Report report;
  std::vector<OpPlace> placeOf;     ///< per node
  std::vector<Id> firstValue;       ///< per node, kNone without one
  std::vector<Id> valueAfter;       ///< per value: the next of its node
  std::vector<Id> need;             ///< per node: values not made yet
  std::vector<uint32_t> nextOfRank; ///< per rank: position not done yet
  std::vector<Id> runnable;         ///< ranks whose next may be doable
};

} // namespace

Result verifySchedule(const Graph &graph, const Schedule &schedule) {
  Result result;
  ScheduleCheck(graph, schedule, result).check();
  return result;
}

} // namespace sluice::verify
