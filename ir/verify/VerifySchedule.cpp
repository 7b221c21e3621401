#include "ir/Groups.h"
#include "ir/verify/Cells.h"
#include "ir/verify/Cycle.h"
#include "ir/verify/Needs.h"

#include <algorithm>

namespace sluice::verify {
namespace {

class ScheduleCheck {
public:
  ScheduleCheck(const Graph &of, const Schedule &by, Result &to)
      : graph(of), schedule(by), result(to), report(to) {}

  void check() {
    if (wellFormed() && placeNodes()) {
      checkCells();
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

  OpRef refOf(Id node) const {
    const Node &n = graph.nodes[node];
    return {n.op, n.stage, n.microbatch};
  }
  std::string nameOf(Id node) const { return sluice::nameOf(refOf(node)); }

  /// Every number is in range.
  bool wellFormed() {
    checkNodes();
    checkEdges();
    checkValues();
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

  void checkNodes() {
    for (const Node &node : graph.nodes) {
      if (static_cast<unsigned>(node.op) >= kOpCount)
        tell(FindingKind::Malformed, {},
             "node " + std::to_string(&node - graph.nodes.data()) +
                 " of the graph is of unknown kind " +
                 std::to_string(static_cast<unsigned>(node.op)));
      else if (!isCompute(node.op))
        tell(FindingKind::Malformed, {},
             opName(node.op, node.stage, node.microbatch) +
                 " is a node of the graph, but computes nothing");
      else if (node.stage >= graph.stages.size() ||
               node.microbatch >= graph.microbatches)
        tell(FindingKind::Malformed, {},
             "node " + std::to_string(&node - graph.nodes.data()) +
                 " of the graph names stage " + std::to_string(node.stage) +
                 " and microbatch " + std::to_string(node.microbatch) +
                 ", the graph has " + std::to_string(graph.stages.size()) +
                 " stages and " + std::to_string(graph.microbatches) +
                 " microbatches");
    }
  }

  void checkEdges() {
    for (const StageEdge &edge : graph.edges)
      if (edge.from >= graph.stages.size() || edge.to >= graph.stages.size())
        tell(FindingKind::Malformed, {},
             "the edge " + std::to_string(edge.from) + " -> " +
                 std::to_string(edge.to) + " is not between two of the " +
                 std::to_string(graph.stages.size()) + " stages");
  }

  void checkValues() {
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
  }

  /// A forward and a backward of one rank make a pair, no more.
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
        else
          checkPair({r, at}, schedule.order[position],
                    schedule.order[position + 1]);
      }
  }

  void checkPair(OpPlace at, Id first, Id second) {
    size_t nodes = graph.nodes.size();
    if (first < nodes && second < nodes &&
        !runTogether(refOf(first), refOf(second)))
      tell(FindingKind::Malformed, at,
           nameOf(first) + " runs together with " + nameOf(second) +
               ": only a forward and a backward of another microbatch do");
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

  /// All that the stages ask of a step is computed; fills `forwardOf`,
  /// `inputOf` and `recomputeOf`, unless that is far from so.
  void checkCells() {
    Cells cells(graph.stages, graph.microbatches, report);
    if (!cells.open(graph.nodes.size()))
      return;
    size_t count = graph.stages.size() * size_t(graph.microbatches);
    forwardOf.assign(count, kNone);
    inputOf.assign(count, kNone);
    recomputeOf.assign(count, kNone);
    for (Id r = 0; r < schedule.ranks(); ++r)
      for (uint32_t at = 0; at < schedule.rank(r).size(); ++at) {
        Id node = schedule.rank(r)[at];
        OpRef ref = refOf(node);
        cells.add(ref, {r, at});
        size_t cell = cellOf(ref.stage, ref.microbatch);
        if (ref.op == Op::Forward)
          forwardOf[cell] = node;
        else if (needsOf(ref.op).gradients)
          inputOf[cell] = node;
        else if (ref.op == Op::Recompute)
          recomputeOf[cell] = node;
      }
    cells.finish([this](Id rank, uint32_t at) {
      std::span<const Id> order = schedule.rank(rank);
      return at < order.size() ? std::optional(refOf(order[at])) : std::nullopt;
    });
    edges = edgesOf(graph.stages, graph.edges);
  }

  size_t cellOf(Id stage, Id microbatch) const {
    return size_t(stage) * graph.microbatches + microbatch;
  }

  /// Calls `visit(node, needed)` for each dependence that stages and edges ask
  /// for, whatever the values of the graph say. O(nodes + edges of their
  /// stages).
  template <typename Visit> void forEachNeed(Visit visit) const {
    if (forwardOf.empty())
      return;
    for (Id node : schedule.order) {
      OpRef ref = refOf(node);
      Needs needs = needsOf(ref.op);
      auto require = [&](const std::vector<Id> &of, Id stage) {
        if (Id needed = of[cellOf(stage, ref.microbatch)]; needed != kNone)
          visit(node, needed);
      };
      if (needs.forward)
        require(forwardOf, ref.stage);
      if (needs.recompute)
        require(recomputeOf, ref.stage);
      if (needs.input)
        require(inputOf, ref.stage);
      if (needs.activations)
        for (Id e : edges.incoming.of(ref.stage))
          require(forwardOf, graph.edges[e].from);
      if (needs.gradients)
        for (Id e : edges.gradientIn.of(ref.stage))
          require(inputOf, graph.edges[e].to);
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

  /// Orders of ranks, values and other dependences, each unit pointing to what
  /// it waits for.
  Digraph waits() const {
    std::vector<std::pair<Id, Id>> pairs;
    pairs.reserve(graph.uses.size() + schedule.order.size());
    for (Id v = 0; v < graph.values.size(); ++v)
      for (Id use : usesOf(v))
        pairs.emplace_back(unitOf(use), unitOf(graph.values[v].producer));
    forEachNeed([&](Id node, Id needed) {
      pairs.emplace_back(unitOf(node), unitOf(needed));
    });
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
    stepOf.assign(graph.nodes.size(), kNone);
    done = 0;
    for (Id r = 0; r < schedule.ranks(); ++r) {
      runnable.push_back(r);
      while (!runnable.empty()) {
        Id next = runnable.back();
        runnable.pop_back();
        advance(next);
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

  /// Does what rank `r` can do now.
  void advance(Id r) {
    std::span<const Id> order = schedule.rank(r);
    uint32_t at = nextOfRank[r];
    for (; at < order.size() && isReady(r, at); ++at) {
      stepOf[order[at]] =
          follows(r, at) ? stepOf[order[at - 1]] : static_cast<Id>(done);
      ++done;
      for (Id v = firstValue[order[at]]; v != kNone; v = valueAfter[v])
        for (Id use : usesOf(v))
          if (--need[use] == 0 && placeOf[use].rank != r &&
              isNext(placeOf[use]))
            runnable.push_back(placeOf[use].rank);
    }
    nextOfRank[r] = at;
  }

  /// Whether the order in which ends() did all things heeds every dependence.
  bool heedsNeeds() const {
    bool heeds = true;
    forEachNeed(
        [&](Id node, Id needed) { heeds &= stepOf[needed] < stepOf[node]; });
    return heeds;
  }

  void checkOrder() {
    std::vector<std::vector<Id>> cycles;
    uint64_t effort = kCycleEffort;
    if (!ends() || !heedsNeeds())
      cycles = shortestCycles(waits(), effort);
    for (const std::vector<Id> &cycle : cycles)
      if (report.admits(FindingKind::Deadlock))
        tellCycle(cycle);
    bool holds = cycles.empty();
    result.holds.fill(holds);
    if (holds)
      result.minBuffering = 0;
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

  /// "1F0 on rank 1 needs 0F0 on rank 0", "0F0 on rank 0 comes after 0B1". A
  /// pair that runs together is named as one.
  std::vector<Step> story(const std::vector<Id> &cycle) const {
    std::vector<Step> steps;
    auto isOrder = [&](size_t i) {
      return isBefore(cycle[(i + 1) % cycle.size()], cycle[i]);
    };
    auto tellStep = [&](size_t at, size_t end, size_t run) {
      Id next = cycle[end % cycle.size()];
      std::string text = on(cycle[at]);
      if (run > 1)
        text += " comes after " + std::to_string(run) +
                " operations in order, " + unitName(next) + " to " +
                unitName(cycle[at + 1]);
      else
        text += (run != 0 ? " comes after " : " needs ") + on(next);
      steps.push_back({std::move(text), placeOf[cycle[at]], placeOf[next]});
    };
    forEachToldStep(cycle.size(), isOrder, tellStep);
    return steps;
  }

  /// Whether unit `first` stands right before unit `second` on its rank.
  bool isBefore(Id first, Id second) const {
    OpPlace at = placeOf[second];
    return at.index > 0 && placeOf[first].rank == at.rank &&
           unitOf(schedule.rank(at.rank)[at.index - 1]) == first;
  }

  std::string unitName(Id unit) const {
    OpPlace at = placeOf[unit];
    std::string name = nameOf(unit);
    if (schedule.joins(schedule.firstOfRank[at.rank] + at.index))
      name = "(" + name + ";" + nameOf(schedule.rank(at.rank)[at.index + 1]) +
             kPairEnd;
    return name;
  }
  std::string on(Id unit) const {
    return unitName(unit) + " on rank " + std::to_string(placeOf[unit].rank);
  }

  const Graph &graph;
  const Schedule &schedule;
  Result &result;
  Report report;
  std::vector<OpPlace> placeOf; ///< per node
  StageEdges edges;
  std::vector<Id> forwardOf;        ///< per stage and microbatch, its F
  std::vector<Id> inputOf;          ///< ... its B or I; kNone without
  std::vector<Id> recomputeOf;      ///< ... its R; kNone without
  std::vector<Id> stepOf;           ///< per node, when it was done
  size_t done = 0;                  ///< how many nodes
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
