#include "compiler/schedules/Orders.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <utility>

namespace sluice {

namespace {

/// A stage and a microbatch.
struct Cell {
  Id stage;
  Id microbatch;
};

/// Walks the cells of a lane: group after group, in it holding after holding,
/// in it by microbatch. The holdings of a lane have the same microbatches.
class LaneCursor {
public:
  LaneCursor(llvm::ArrayRef<Placement::Holding> holdings, uint32_t groupSize,
             bool descending)
      : holdings(holdings), groupSize(groupSize), descending(descending) {
    if (!holdings.empty())
      group = microbatch = holdings.front().firstMicrobatch;
  }

  bool take(Cell &cell) {
    if (holdings.empty() || group >= holdings.front().endMicrobatch)
      return false;
    size_t at = descending ? holdings.size() - 1 - holding : holding;
    cell = {holdings[at].stage, microbatch};
    advance();
    return true;
  }

private:
  void advance() {
    Id end = holdings.front().endMicrobatch;
    Id groupEnd = end - group > groupSize ? group + groupSize : end;
    if (++microbatch < groupEnd)
      return;
    microbatch = group;
    if (++holding < holdings.size())
      return;
    holding = 0;
    group = microbatch = groupEnd;
  }

  llvm::ArrayRef<Placement::Holding> holdings;
  uint32_t groupSize;
  bool descending;
  Id group = 0; ///< its first microbatch
  Id microbatch = 0;
  size_t holding = 0;
};

/// A lane of one rank, and where it stands.
struct Lane {
  LaneCursor forward, backward;
  std::vector<std::pair<uint64_t, Cell>> pending; ///< I without W, and when
  size_t firstPending = 0;
};

/// Runs the program of one rank.
class RankLister {
public:
  RankLister(const ListProblem &problem, Id rank, Orders &orders)
      : problem(problem), orders(orders),
        holdings(
            problem.placement.holdingsOf(rank, problem.sizes.microbatches)) {
    if (problem.lanes == Lanes::Whole || problem.lanes == Lanes::Groups) {
      addLane(holdings, problem.sizes.groupSize);
      return;
    }
    for (size_t i = 0; i < holdings.size(); ++i)
      addLane(llvm::ArrayRef(holdings).slice(i, 1), ~0u);
  }

  void run(const RankProgram &program) {
    for (const Phase &phase : program)
      for (uint32_t i = 0; i < phase.repeat; ++i)
        if (!runSteps(phase.steps))
          break; // nor would they the next time
  }

private:
  void addLane(llvm::ArrayRef<Placement::Holding> of, uint32_t groupSize) {
    lanes.push_back({LaneCursor(of, groupSize, /*descending=*/false),
                     LaneCursor(of, groupSize, /*descending=*/true),
                     {},
                     0});
  }

  void add(Op op, Cell cell) {
    orders.entries.push_back({cell.stage, cell.microbatch, op, false});
  }

  /// Whether any of them moved its lane on.
  bool runSteps(llvm::ArrayRef<Step> steps) {
    size_t before = taken;
    for (const Step &step : steps)
      runStep(step);
    return taken != before;
  }

  void runStep(const Step &step) {
    size_t before = orders.entries.size();
    runOp(step.op, step.lane);
    bool ran = orders.entries.size() != before;
    // A pair of which one is not there is no pair.
    if (ran && joins)
      orders.entries[before - 1].joined = true;
    joins = ran && step.joined;
  }

  void runOp(Op op, uint32_t lane) {
    if (op == Op::BackwardWeight)
      return weight(lane);
    Lane &of = lanes[lane];
    Cell cell = {};
    if (!(op == Op::Forward ? of.forward : of.backward).take(cell))
      return;
    ++taken;
    if (op == Op::Forward)
      return add(op, cell);
    if (!problem.trained(cell.stage))
      return;
    if (op == Op::Backward && !problem.splitBackward)
      return add(op, cell);
    add(Op::BackwardInput, cell);
    if (op == Op::Backward)
      add(Op::BackwardWeight, cell);
    else
      of.pending.emplace_back(stamp++, cell);
  }

  void weight(uint32_t lane) {
    Lane *oldest = nullptr;
    for (size_t i = 0; i < lanes.size(); ++i) {
      Lane &of = lanes[i];
      if ((lane == kOldestLane || lane == i) &&
          of.firstPending < of.pending.size() &&
          (!oldest || of.pending[of.firstPending].first <
                          oldest->pending[oldest->firstPending].first))
        oldest = &of;
    }
    if (!oldest)
      return;
    ++taken;
    add(Op::BackwardWeight, oldest->pending[oldest->firstPending++].second);
  }

  const ListProblem &problem;
  Orders &orders;
  std::vector<Placement::Holding> holdings;
  llvm::SmallVector<Lane, 2> lanes;
  uint64_t stamp = 0;
  uint64_t taken = 0; ///< steps that found something to do
  bool joins = false; ///< the step before is joined with this one
};

} // namespace

Orders listOrders(const ListProblem &problem,
                  llvm::ArrayRef<RankProgram> programs) {
  Orders orders;
  uint64_t cells =
      uint64_t(problem.placement.stages()) * problem.sizes.microbatches;
  orders.entries.reserve(cells * (problem.splitBackward ? 3 : 2));
  std::vector<Id> place(programs.size()); // along the pipeline, of each rank
  for (auto [at, rank] : llvm::enumerate(problem.placement.ranksInOrder()))
    place[rank] = static_cast<Id>(at);
  orders.firstOfRank.push_back(0);
  for (Id rank = 0; rank < programs.size(); ++rank) {
    RankLister(problem, rank, orders).run(programs[place[rank]]);
    orders.firstOfRank.push_back(static_cast<Id>(orders.entries.size()));
  }
  return orders;
}

void addRecomputes(Orders &orders, llvm::ArrayRef<Stage> stages) {
  if (llvm::none_of(stages, [](const Stage &of) { return of.recomputes(); }))
    return;
  auto isFollowed = [&](const OrderEntry &entry) {
    return (entry.op == Op::Backward || entry.op == Op::BackwardInput) &&
           stages[entry.stage].recomputes();
  };
  std::vector<OrderEntry> all;
  all.reserve(orders.entries.size() / 2 * 3);
  Id begin = 0; // of a rank's entries
  for (Id &end : llvm::drop_begin(orders.firstOfRank)) {
    for (Id at = begin, unit = at; at < end; at = unit) {
      while (orders.entries[unit++].joined && unit < end) {
      }
      llvm::ArrayRef<OrderEntry> together =
          llvm::ArrayRef(orders.entries).slice(at, unit - at);
      for (const OrderEntry &entry : together)
        if (isFollowed(entry))
          all.push_back({entry.stage, entry.microbatch, Op::Recompute, false});
      llvm::append_range(all, together);
    }
    begin = std::exchange(end, static_cast<Id>(all.size()));
  }
  orders.entries = std::move(all);
}

namespace {
/// The nodes of a graph by what they compute. Linear to make.
class NodeTable {
public:
  explicit NodeTable(const Graph &graph)
      : microbatches(graph.microbatches),
        nodes(graph.stages.size() * size_t(microbatches) * kKinds, kNone) {
    for (Id id = 0; id < graph.nodes.size(); ++id) {
      const Node &node = graph.nodes[id];
      nodes[at(node.op, node.stage, node.microbatch)] = id;
    }
  }
  /// kNone if there is none.
  Id find(Op op, Id stage, Id microbatch) const {
    return nodes[at(op, stage, microbatch)];
  }

private:
  /// Kinds of compute come first in Ops.def.
  static constexpr unsigned kKinds = static_cast<unsigned>(Op::Recompute) + 1;
  size_t at(Op op, Id stage, Id microbatch) const {
    return (size_t(microbatch) * (nodes.size() / microbatches / kKinds) +
            stage) *
               kKinds +
           static_cast<unsigned>(op);
  }
  uint32_t microbatches;
  std::vector<Id> nodes;
};
} // namespace

Schedule findInGraph(const Graph &graph, const Orders &orders) {
  NodeTable nodes(graph);
  Schedule schedule;
  schedule.name = orders.name;
  schedule.warmup = orders.warmup;
  schedule.firstOfRank = orders.firstOfRank;
  schedule.order.reserve(orders.entries.size());
  for (const OrderEntry &entry : orders.entries) {
    if (entry.joined && schedule.joined.empty())
      schedule.joined.resize(orders.entries.size());
    if (entry.joined)
      schedule.joined[schedule.order.size()] = true;
    schedule.order.push_back(
        nodes.find(entry.op, entry.stage, entry.microbatch));
  }
  return schedule;
}

} // namespace sluice
