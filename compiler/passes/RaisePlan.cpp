//===- compiler/passes/RaisePlan.cpp - Graph and schedule of a read plan --===//
#include "compiler/Compilation.h"
#include "compiler/passes/GraphBuilder.h"
#include "compiler/passes/PassManager.h"

#include "llvm/ADT/STLExtras.h"

namespace sluice {

namespace {
/// The computations of a plan or a graph by name, for looking up.
class Names {
public:
  void add(Op op, Id stage, Id microbatch, Id value) {
    entries.emplace_back(keyOf(op, stage, microbatch), value);
  }
  void sort() { llvm::sort(entries); }
  /// What was added under this name; kNone if nothing was.
  Id find(Op op, Id stage, Id microbatch) const {
    Key key = keyOf(op, stage, microbatch);
    auto found = llvm::lower_bound(entries, std::pair(key, Id(0)));
    return found != entries.end() && found->first == key ? found->second
                                                         : kNone;
  }

private:
  using Key = std::tuple<Id, Id, Op>;
  static Key keyOf(Op op, Id stage, Id microbatch) {
    return {microbatch, stage, op};
  }
  std::vector<std::pair<Key, Id>> entries;
};
} // namespace

void raiseSchedule(Compilation &c) {
  const Plan &plan = *c.plan;
  Names splits;
  for (const RankPlan &rank : plan.ranks)
    for (const PlanOp &op : rank.ops)
      if (op.op == Op::BackwardInput)
        splits.add(op.op, op.stage, op.microbatch, 0);
  splits.sort();
  c.graph = buildGraph(
      {plan.stages, plan.edges, plan.replicas}, plan.microbatches,
      plan.timeUnit, [&](Id stage, Id microbatch) {
        return splits.find(Op::BackwardInput, stage, microbatch) != kNone;
      });
  Names nodes;
  for (auto [id, node] : llvm::enumerate(c.graph->nodes))
    nodes.add(node.op, node.stage, node.microbatch, id);
  nodes.sort();

  Schedule schedule;
  schedule.name = plan.schedule;
  schedule.warmup = plan.warmup;
  schedule.firstOfRank.push_back(0);
  for (const RankPlan &rank : plan.ranks) {
    Id group = kNone; // of the one before
    for (const PlanOp &op : rank.ops) {
      Id node = nodes.find(op.op, op.stage, op.microbatch);
      if (node == kNone)
        continue;
      if (op.group != kNone && op.group == group)
        schedule.joined.back() = true;
      group = op.group;
      schedule.order.push_back(node);
      schedule.joined.push_back(false);
    }
    schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
  }
  if (!llvm::is_contained(schedule.joined, true))
    schedule.joined.clear();
  c.schedule = std::move(schedule);
}

bool raisePlan(Compilation &c) {
  raiseSchedule(c);
  return passes::VerifyScheduleGate(c) && passes::SimulateOps(c);
}

} // namespace sluice
