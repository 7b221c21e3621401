//===- BuildGraph.cpp - Operations of one step and their values ----------===//
//
// Needs stages, the data between them, and orders, which tell the backwards
// that are split. Promises for every microbatch and
// stage one F and, where the stage has a backward, one B or one I and one W;
// values for every dependence: Activation and Gradient along the edges, Saved
// (F to B or I) and Kept (F to B, or to I and W), Order from I to W. Linear in
// what it makes.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/GraphBuilder.h"
#include "compiler/passes/PassManager.h"

#include "llvm/ADT/STLExtras.h"

namespace sluice {

namespace {
/// Numbers nodes microbatch by microbatch, stage by stage: F, then B or I, W.
class GraphBuilder {
public:
  GraphBuilder(const StageGraph &cut, uint32_t microbatches,
               llvm::function_ref<bool(Id, Id)> isSplit);
  Graph build(TimeUnit unit);

private:
  /// F of a stage-microbatch; its B or I, and its W, are the next ones.
  Id forwardOf(Id stage, Id microbatch) const {
    return firstNode[size_t(microbatch) * graph.stages.size() + stage];
  }
  bool isSplit(Id stage, Id microbatch) const {
    size_t cell = size_t(microbatch) * graph.stages.size() + stage;
    return firstNode[cell + 1] - firstNode[cell] == 3;
  }
  void addNode(Op op, Id stage, Id microbatch);
  void addValue(ValueKind kind, Bytes bytes, std::initializer_list<Id> users);
  void addForward(Id stage, Id microbatch);
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
      next += !graph.stages[stage].backward ? 1
              : splits(stage, microbatch)   ? 3
                                            : 2;
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
  Id first = forwardOf(stage, microbatch) + 1; // B or I
  addValue(ValueKind::Saved, info.bytes.activation - info.bytes.keptForWeight,
           {first});
  if (isSplit(stage, microbatch))
    addValue(ValueKind::Kept, info.bytes.keptForWeight, {first, first + 1});
  else if (info.bytes.keptForWeight != 0)
    addValue(ValueKind::Kept, info.bytes.keptForWeight, {first});
}

void GraphBuilder::addBackward(Id stage, Id microbatch) {
  bool split = isSplit(stage, microbatch);
  addNode(split ? Op::BackwardInput : Op::Backward, stage, microbatch);
  for (Id edge : in[stage])
    if (graph.stages[graph.edges[edge].from].backward)
      addValue(ValueKind::Gradient, graph.edges[edge].bytes,
               {forwardOf(graph.edges[edge].from, microbatch) + 1});
  if (!split)
    return;
  addValue(ValueKind::Order, 0, {forwardOf(stage, microbatch) + 2});
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

/// What a stage's I computed again, its W would need too, and nothing keeps it.
static bool checkRecompute(const Compilation &c) {
  const Located<Recompute> &recompute = c.spec->pipeline.recompute;
  const auto *list =
      std::get_if<std::vector<RecomputePolicy>>(&recompute.value);
  bool split = llvm::any_of(c.orders->entries, [&](const OrderEntry &entry) {
    RecomputePolicy policy =
        list ? (*list)[entry.stage] : std::get<RecomputePolicy>(*recompute);
    return entry.op == Op::BackwardWeight && policy == RecomputePolicy::Full;
  });
  if (split)
    c.diagnostics
        .error(recompute.where,
               "pipeline.recompute is full, which is not supported yet where "
               "a backward is split into I and W")
        .note("selective fits a split backward, and full a fused one");
  return !split;
}

bool passes::BuildGraph(Compilation &c) {
  if (!checkRecompute(c))
    return false;
  c.graph = buildGraph(*c.stages, *c.orders, c.spec->pipeline.microbatches,
                       c.spec->model.timeUnit);
  return true;
}

} // namespace sluice
