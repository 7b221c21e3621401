//===- RaisePlan.cpp - Graph, schedule and timing of a plan that was read -===//
#include "compiler/Compilation.h"
#include "compiler/passes/GraphBuilder.h"

#include "llvm/ADT/STLExtras.h"

namespace sluice {

/// Whether a backward of `plan` is split into I and W.
static bool hasSplitBackward(const Plan &plan) {
  return llvm::any_of(plan.ranks, [](const RankPlan &rank) {
    return llvm::any_of(
        rank.ops, [](const PlanOp &op) { return op.op == Op::BackwardInput; });
  });
}

/// Identifies a computation among the nodes of a graph.
static uint64_t keyOf(Op op, Id stage, Id microbatch) {
  return (uint64_t(stage) << 32 | microbatch) * kOpCount +
         static_cast<unsigned>(op);
}

void raisePlan(Compilation &c) {
  const Plan &plan = *c.plan;
  c.graph = buildGraph({plan.stages, plan.edges}, plan.microbatches,
                       hasSplitBackward(plan), plan.timeUnit);
  std::vector<std::pair<uint64_t, Id>> nodes;
  nodes.reserve(c.graph->nodes.size());
  for (auto [id, node] : llvm::enumerate(c.graph->nodes))
    nodes.emplace_back(keyOf(node.op, node.stage, node.microbatch), id);
  llvm::sort(nodes);

  Schedule schedule;
  schedule.name = plan.schedule;
  schedule.warmup = plan.warmup;
  schedule.firstOfRank.push_back(0);
  for (const RankPlan &rank : plan.ranks) {
    for (const PlanOp &op : rank.ops) {
      if (!isCompute(op.op))
        continue;
      uint64_t key = keyOf(op.op, op.stage, op.microbatch);
      auto found = llvm::lower_bound(nodes, std::pair(key, Id(0)));
      if (found != nodes.end() && found->first == key)
        schedule.order.push_back(found->second);
    }
    schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
  }
  c.schedule = std::move(schedule);
  c.timing = simulateSchedule(*c.graph, *c.schedule, c.network());
}

} // namespace sluice
