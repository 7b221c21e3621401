#include "compiler/schedules/ListScheduler.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <tuple>

namespace sluice {

namespace {
/// Per rank and kind of operation, its nodes in the order in which a program
/// takes them; flat, with a cursor for each.
class Sequences {
public:
  Sequences(const Graph &graph, llvm::ArrayRef<Id> rankOfStage, size_t ranks);

  /// Moves the next node of this kind to `order`; nothing if none is left.
  void take(Id rank, Op op, std::vector<Id> &order) {
    size_t key = keyOf(rank, op);
    if (next[key] < first[key + 1])
      order.push_back(nodes[next[key]++]);
  }

private:
  static size_t keyOf(Id rank, Op op) {
    return size_t(rank) * kOpCount + static_cast<unsigned>(op);
  }
  std::vector<Id> nodes;
  std::vector<uint32_t> first, next;
};
} // namespace

Sequences::Sequences(const Graph &graph, llvm::ArrayRef<Id> rankOfStage,
                     size_t ranks)
    : nodes(graph.nodes.size()), first(ranks * kOpCount + 1, 0) {
  auto key = [&](const Node &node) {
    return keyOf(rankOfStage[node.stage], node.op);
  };
  for (const Node &node : graph.nodes)
    ++first[key(node) + 1];
  for (size_t i = 1; i < first.size(); ++i)
    first[i] += first[i - 1];
  next.assign(first.begin(), first.end() - 1);
  for (Id id = 0; id < graph.nodes.size(); ++id)
    nodes[next[key(graph.nodes[id])]++] = id;
  auto before = [&](Id a, Id b) {
    const Node &x = graph.nodes[a], &y = graph.nodes[b];
    return std::tie(x.microbatch, x.stage) < std::tie(y.microbatch, y.stage);
  };
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    auto begin = nodes.begin() + first[i], end = nodes.begin() + first[i + 1];
    if (!std::is_sorted(begin, end, before))
      std::sort(begin, end, before);
  }
  next.assign(first.begin(), first.end() - 1);
}

Schedule listSchedule(const Graph &graph, llvm::ArrayRef<Id> rankOfStage,
                      llvm::ArrayRef<RankProgram> programs) {
  Sequences sequences(graph, rankOfStage, programs.size());
  Schedule schedule;
  schedule.order.reserve(graph.nodes.size());
  schedule.firstOfRank.push_back(0);
  for (auto [rank, program] : llvm::enumerate(programs)) {
    for (const Phase &phase : program)
      for (uint32_t i = 0; i < phase.repeat; ++i)
        for (Op step : phase.steps) {
          sequences.take(rank, step, schedule.order);
          if (step == Op::Backward) { // whichever the graph has
            sequences.take(rank, Op::BackwardInput, schedule.order);
            sequences.take(rank, Op::BackwardWeight, schedule.order);
          }
        }
    schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
  }
  return schedule;
}

} // namespace sluice
