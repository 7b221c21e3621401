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
    return !report.has(FindingKind::Malformed);
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
    std::string where = "operation " + std::to_string(at.index) + " of rank " +
                        std::to_string(at.rank);
    if (node >= graph.nodes.size())
      return tell(FindingKind::Malformed, at,
                  where + " is node " + std::to_string(node) +
                      ", the graph has " + std::to_string(graph.nodes.size()));
    if (placeOf[node].rank != kNone)
      return tell(FindingKind::Duplicate, at,
                  nameOf(node) + " stands twice: again as " + where);
    placeOf[node] = at;
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

  /// Orders of ranks and dependences, as pairs (later, earlier).
  std::vector<std::pair<Id, Id>> waits() const {
    std::vector<std::pair<Id, Id>> pairs;
    pairs.reserve(graph.uses.size() + schedule.order.size());
    for (size_t v = 0; v < graph.values.size(); ++v) {
      size_t end = v + 1 < graph.values.size() ? graph.values[v + 1].firstUse
                                               : graph.uses.size();
      for (size_t u = graph.values[v].firstUse; u < end; ++u)
        pairs.emplace_back(graph.uses[u], graph.values[v].producer);
    }
    for (Id r = 0; r < schedule.ranks(); ++r)
      for (size_t at = 1; at < schedule.rank(r).size(); ++at)
        pairs.emplace_back(schedule.rank(r)[at], schedule.rank(r)[at - 1]);
    return pairs;
  }

  /// True if doing what can be done does everything.
  bool ends(const Digraph &waitsFor,
            const std::vector<std::pair<Id, Id>> &pairs) const {
    std::vector<std::pair<Id, Id>> turned;
    turned.reserve(pairs.size());
    for (auto [later, earlier] : pairs)
      turned.emplace_back(earlier, later);
    Digraph next = Digraph::fromPairs(waitsFor.nodes(), turned);
    std::vector<Id> need(waitsFor.nodes()), ready;
    for (Id n = 0; n < need.size(); ++n) {
      need[n] = waitsFor.first[n + 1] - waitsFor.first[n];
      if (need[n] == 0)
        ready.push_back(n);
    }
    for (size_t head = 0; head < ready.size(); ++head)
      for (Id e = next.first[ready[head]]; e < next.first[ready[head] + 1]; ++e)
        if (--need[next.target[e]] == 0)
          ready.push_back(next.target[e]);
    return ready.size() == need.size();
  }

  void checkOrder() {
    std::vector<std::pair<Id, Id>> pairs = waits();
    Digraph waitsFor =
        Digraph::fromPairs(static_cast<Id>(graph.nodes.size()), pairs);
    bool holds = ends(waitsFor, pairs);
    std::fill(std::begin(result.holds), std::end(result.holds), holds);
    if (holds)
      result.minBuffering = 0;
    else
      tellCycle(shortestCycle(waitsFor));
  }

  void tellCycle(const std::vector<Id> &cycle) {
    std::vector<OpPlace> places;
    for (Id node : cycle)
      places.push_back(placeOf[node]);
    OpPlace first = places.front();
    report.admits(FindingKind::Deadlock);
    report.error(FindingKind::Deadlock, first, story(cycle), std::move(places));
  }

  /// "1F0 on rank 1 needs 0F0 on rank 0, which comes after ...".
  std::string story(const std::vector<Id> &cycle) const {
    constexpr size_t kNamed = 12;
    std::string text = on(cycle.front());
    for (size_t i = 1; i <= std::min(cycle.size(), kNamed); ++i) {
      bool after =
          placeOf[cycle[i % cycle.size()]].rank == placeOf[cycle[i - 1]].rank &&
          placeOf[cycle[i % cycle.size()]].index + 1 ==
              placeOf[cycle[i - 1]].index;
      text += (i == 1 ? " " : ", which ") +
              std::string(after ? "comes after " : "needs ") +
              on(cycle[i % cycle.size()]);
    }
    if (cycle.size() > kNamed)
      text += " and so on, " + std::to_string(cycle.size()) + " in a circle";
    return text;
  }
  std::string on(Id node) const {
    return nameOf(node) + " on rank " + std::to_string(placeOf[node].rank);
  }

  const Graph &graph;
  const Schedule &schedule;
  Result &result;
  Report report;
  std::vector<OpPlace> placeOf;
};

} // namespace

Result verifySchedule(const Graph &graph, const Schedule &schedule) {
  Result result;
  ScheduleCheck(graph, schedule, result).check();
  return result;
}

} // namespace sluice::verify
