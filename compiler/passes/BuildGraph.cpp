//===- compiler/passes/BuildGraph.cpp - A step's operations and values ----===//
//
// Needs stages, the data between them, and orders, which tell the backwards
// that are split. Promises for every microbatch and
// stage one F and, where the stage has a backward, one B or one I and one W,
// and an R where it recomputes; values for every dependence: Activation and
// Gradient along the edges, Saved (F to B or I) and Kept (F to B, or to I and
// W), Order from I to W. R makes Saved instead of F, of the Kept that F leaves,
// or both, of the Checkpoint that F leaves. Linear in what it makes.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/GraphBuilder.h"
#include "compiler/passes/PassManager.h"

namespace sluice {

namespace {
/// Numbers nodes microbatch by microbatch, stage by stage: F, then R, B or I,
/// W.
class GraphBuilder {
public:
  GraphBuilder(const StageGraph &cut, uint32_t microbatches,
               llvm::function_ref<bool(Id, Id)> isSplit);
  Graph build(TimeUnit unit);

private:
  /// F of a stage-microbatch; its R, its B or I, and its W are the next ones.
  Id forwardOf(Id stage, Id microbatch) const {
    return firstNode[size_t(microbatch) * graph.stages.size() + stage];
  }
  /// B or I.
  Id backwardOf(Id stage, Id microbatch) const {
    return forwardOf(stage, microbatch) + 1 + graph.stages[stage].recomputes();
  }
  bool isSplit(Id stage, Id microbatch) const {
    size_t cell = size_t(microbatch) * graph.stages.size() + stage;
    return firstNode[cell + 1] - backwardOf(stage, microbatch) == 2;
  }
  void addNode(Op op, Id stage, Id microbatch);
  void addValue(ValueKind kind, Bytes bytes, std::initializer_list<Id> users);
  void addForward(Id stage, Id microbatch);
  void addLeft(Op op, Id stage, Id microbatch);
  void addBackward(Id stage, Id microbatch);

  Graph graph;
  /// Per microbatch and stage the number of its F, and one past the last.
  std::vector<Id> firstNode;
  /// Edges out of and into each stage, as positions in graph.edges.
  std::vector<std::vector<Id>> out, in;
};
} // namespace

GraphBuilder::GraphBuilder(const StageGraph &cut, uint32_t microbatches,
                           llvm::function_ref<bool(Id, Id)> splits) {
  graph.stages = cut.stages;
  graph.edges = cut.edges;
  graph.replicas = cut.replicas;
  graph.microbatches = microbatches;
  firstNode.reserve(graph.stages.size() * microbatches + 1);
  Id next = 0;
  for (Id microbatch = 0; microbatch < microbatches; ++microbatch)
    for (Id stage = 0; stage < graph.stages.size(); ++stage) {
      firstNode.push_back(next);
      const Stage &of = graph.stages[stage];
      next += !of.backward                ? 1
              : splits(stage, microbatch) ? 3 + of.recomputes()
                                          : 2 + of.recomputes();
    }
  firstNode.push_back(next);
  out.resize(graph.stages.size());
  in.resize(graph.stages.size());
  for (Id edge = 0; edge < graph.edges.size(); ++edge) {
    out[graph.edges[edge].from].push_back(edge);
    in[graph.edges[edge].to].push_back(edge);
  }
}

Graph GraphBuilder::build(TimeUnit unit) {
  graph.timeUnit = unit;
  size_t nodes = firstNode.back();
  size_t edges = graph.edges.size() * graph.microbatches;
  graph.nodes.reserve(nodes);
  graph.values.reserve(nodes + 2 * edges);
  graph.uses.reserve(nodes + 2 * edges);
  for (Id microbatch = 0; microbatch < graph.microbatches; ++microbatch)
    for (Id stage = 0; stage < graph.stages.size(); ++stage) {
      addForward(stage, microbatch);
      if (graph.stages[stage].backward)
        addBackward(stage, microbatch);
    }
  graph.finalize();
  return std::move(graph);
}

void GraphBuilder::addNode(Op op, Id stage, Id microbatch) {
  graph.nodes.push_back(
      {graph.stages[stage].duration(op), stage, microbatch, op});
}

/// Adds a value of the node added last.
void GraphBuilder::addValue(ValueKind kind, Bytes bytes,
                            std::initializer_list<Id> users) {
  graph.values.push_back({bytes, static_cast<Id>(graph.nodes.size() - 1),
                          static_cast<Id>(graph.uses.size()), kind});
  graph.uses.insert(graph.uses.end(), users);
}

void GraphBuilder::addForward(Id stage, Id microbatch) {
  const Stage &info = graph.stages[stage];
  addNode(Op::Forward, stage, microbatch);
  for (Id edge : out[stage])
    addValue(ValueKind::Activation, graph.edges[edge].bytes,
             {forwardOf(graph.edges[edge].to, microbatch)});
  if (!info.backward)
    return;
  addLeft(Op::Forward, stage, microbatch);
  if (!info.recomputes())
    return;
  addNode(Op::Recompute, stage, microbatch);
  addLeft(Op::Recompute, stage, microbatch);
}

/// Adds what `op`, F or R, leaves for the operations after it.
void GraphBuilder::addLeft(Op op, Id stage, Id microbatch) {
  const Stage &info = graph.stages[stage];
  Id backward = backwardOf(stage, microbatch);
  if (op == Op::Forward && info.hasCheckpoint())
    addValue(ValueKind::Checkpoint, info.bytes.checkpoint, {backward - 1});
  if (op == info.savedBy())
    addValue(ValueKind::Saved, info.bytes.activation - info.bytes.keptForWeight,
             {backward});
  if (op != info.keptBy())
    return;
  bool split = isSplit(stage, microbatch), read = op != info.savedBy();
  if (!split && !read && info.bytes.keptForWeight == 0)
    return;
  addValue(ValueKind::Kept, info.bytes.keptForWeight, {});
  if (read)
    graph.uses.push_back(backward - 1);
  graph.uses.push_back(backward);
  if (split)
    graph.uses.push_back(backward + 1);
}

void GraphBuilder::addBackward(Id stage, Id microbatch) {
  bool split = isSplit(stage, microbatch);
  addNode(split ? Op::BackwardInput : Op::Backward, stage, microbatch);
  for (Id edge : in[stage])
    if (graph.stages[graph.edges[edge].from].backward)
      addValue(ValueKind::Gradient, graph.edges[edge].bytes,
               {backwardOf(graph.edges[edge].from, microbatch)});
  if (!split)
    return;
  addValue(ValueKind::Order, 0, {backwardOf(stage, microbatch) + 1});
  addNode(Op::BackwardWeight, stage, microbatch);
}

Graph buildGraph(const StageGraph &stages, uint32_t microbatches, TimeUnit unit,
                 llvm::function_ref<bool(Id, Id)> isSplit) {
  return GraphBuilder(stages, microbatches, isSplit).build(unit);
}

Graph buildGraph(const StageGraph &stages, const Orders &orders,
                 uint32_t microbatches, TimeUnit unit) {
  size_t count = stages.stages.size();
  std::vector<bool> split(count * microbatches);
  for (const OrderEntry &entry : orders.entries)
    if (entry.op == Op::BackwardInput || entry.op == Op::BackwardWeight)
      split[entry.microbatch * count + entry.stage] = true;
  return buildGraph(stages, microbatches, unit, [&](Id stage, Id microbatch) {
    return split[microbatch * count + stage];
  });
}

bool passes::BuildGraph(Compilation &c) {
  c.graph = buildGraph(*c.stages, *c.orders, c.spec->pipeline.microbatches,
                       c.spec->model.timeUnit);
  return true;
}

} // namespace sluice
