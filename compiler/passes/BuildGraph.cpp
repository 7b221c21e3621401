//===- BuildGraph.cpp - Operations of one step and their values ----------===//
//
// Needs stages and the data between them. Promises for every microbatch and
// stage one F and, where the stage has a backward, one B or one I and one W;
// values for every dependence: Activation and Gradient along the edges, Saved
// (F to B or I) and Kept (F to B, or to I and W), Order from I to W. Linear in
// what it makes.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/GraphBuilder.h"
#include "compiler/passes/PassManager.h"

namespace sluice {

namespace {
/// Numbers nodes microbatch by microbatch, stage by stage: F, then B or I, W.
class GraphBuilder {
public:
  GraphBuilder(const StageGraph &cut, uint32_t microbatches, bool split);
  Graph build(TimeUnit unit);

private:
  Id nodeOf(Id stage, Id microbatch, unsigned offset) const {
    return microbatch * nodesPerMicrobatch + firstNode[stage] + offset;
  }
  void addNode(Op op, Id stage, Id microbatch);
  void addValue(ValueKind kind, Bytes bytes, std::initializer_list<Id> users);
  void addForward(Id stage, Id microbatch);
  void addBackward(Id stage, Id microbatch);

  Graph graph;
  bool split;
  /// Per stage: position of its F within a microbatch's nodes.
  std::vector<Id> firstNode;
  Id nodesPerMicrobatch = 0;
  /// Edges out of and into each stage, as positions in graph.edges.
  std::vector<std::vector<Id>> out, in;
};
} // namespace

GraphBuilder::GraphBuilder(const StageGraph &cut, uint32_t microbatches,
                           bool splitBackward)
    : split(splitBackward) {
  graph.stages = cut.stages;
  graph.edges = cut.edges;
  graph.microbatches = microbatches;
  for (const Stage &stage : graph.stages) {
    firstNode.push_back(nodesPerMicrobatch);
    nodesPerMicrobatch += stage.backward ? (split ? 3 : 2) : 1;
  }
  out.resize(graph.stages.size());
  in.resize(graph.stages.size());
  for (Id edge = 0; edge < graph.edges.size(); ++edge) {
    out[graph.edges[edge].from].push_back(edge);
    in[graph.edges[edge].to].push_back(edge);
  }
}

Graph GraphBuilder::build(TimeUnit unit) {
  graph.timeUnit = unit;
  size_t nodes = size_t(nodesPerMicrobatch) * graph.microbatches;
  size_t values =
      (graph.stages.size() * (split ? 3 : 2) + graph.edges.size() * 2) *
      graph.microbatches;
  graph.nodes.reserve(nodes);
  graph.values.reserve(values);
  graph.uses.reserve(values + (split ? nodes : 0));
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
             {nodeOf(graph.edges[edge].to, microbatch, 0)});
  if (!info.backward)
    return;
  Id first = nodeOf(stage, microbatch, 1); // B or I
  addValue(ValueKind::Saved, info.bytes.activation - info.bytes.keptForWeight,
           {first});
  if (split)
    addValue(ValueKind::Kept, info.bytes.keptForWeight, {first, first + 1});
  else if (info.bytes.keptForWeight != 0)
    addValue(ValueKind::Kept, info.bytes.keptForWeight, {first});
}

void GraphBuilder::addBackward(Id stage, Id microbatch) {
  addNode(split ? Op::BackwardInput : Op::Backward, stage, microbatch);
  for (Id edge : in[stage])
    if (graph.stages[graph.edges[edge].from].backward)
      addValue(ValueKind::Gradient, graph.edges[edge].bytes,
               {nodeOf(graph.edges[edge].from, microbatch, 1)});
  if (!split)
    return;
  addValue(ValueKind::Order, 0, {nodeOf(stage, microbatch, 2)});
  addNode(Op::BackwardWeight, stage, microbatch);
}

Graph buildGraph(const StageGraph &stages, uint32_t microbatches, bool split,
                 TimeUnit unit) {
  return GraphBuilder(stages, microbatches, split).build(unit);
}

bool passes::BuildGraph(Compilation &c) {
  c.graph = buildGraph(*c.stages, c.spec->pipeline.microbatches,
                       c.spec->pipeline.backward.value == BackwardMode::Split,
                       c.model ? c.model->timeUnit : c.spec->model.timeUnit);
  return true;
}

} // namespace sluice
