//===- tests/compiler/ChainForTests.h - Pipelines made by hand -----------===//
//
// Chains of stages with their textbook orders, and a plain lowering, written
// without the compiler's schedules and passes, so that they can judge what
// comes after those.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_COMPILER_CHAINFORTESTS_H
#define SLUICE_TESTS_COMPILER_CHAINFORTESTS_H

#include "compiler/simulate/Simulate.h"
#include "ir/Graph.h"
#include "ir/Plan.h"
#include "ir/Schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sluice::tests {

inline constexpr Ticks kUnit = ticksPer(TimeUnit::Unit);

/// A chain of stages; times in ticks.
struct Chain {
  uint32_t ranks = 4;
  uint32_t microbatches = 8;
  bool split = false; ///< I and W instead of B
  std::vector<Stage> stages;
  Bytes messageBytes = 0;
};

/// Equal stages with times in units (halves allowed), 6 layers each.
inline Chain evenChain(uint32_t ranks, uint32_t microbatches, double forward,
                       double backward, double weightShare = 0) {
  Chain chain;
  chain.ranks = ranks;
  chain.microbatches = microbatches;
  for (Id s = 0; s < ranks; ++s) {
    Stage stage;
    stage.firstLayer = 6 * s;
    stage.layers = 6;
    auto ticks = [](double units) { return static_cast<Ticks>(units * 1e6); };
    stage.forward = ticks(forward);
    stage.backwardWeight = ticks(backward * weightShare);
    stage.backwardInput = ticks(backward) - stage.backwardWeight;
    chain.stages.push_back(stage);
  }
  return chain;
}

/// Number of a node: stage after stage, microbatch after microbatch, F first.
inline Id chainNode(const Chain &chain, Op op, Id stage, Id microbatch) {
  Id each = chain.split ? 3 : 2;
  Id part = op == Op::Forward ? 0 : op == Op::BackwardWeight ? 2 : 1;
  return (stage * chain.microbatches + microbatch) * each + part;
}

/// Collects values by producer, then lays them out as a graph wants them.
class GraphForTests {
public:
  void value(Id producer, ValueKind kind, Bytes bytes, std::vector<Id> uses) {
    found.push_back({producer, kind, bytes, std::move(uses)});
  }

  void finish(Graph &graph) {
    std::stable_sort(
        found.begin(), found.end(),
        [](const Entry &a, const Entry &b) { return a.producer < b.producer; });
    for (const Entry &entry : found) {
      graph.values.push_back({entry.bytes, entry.producer,
                              static_cast<Id>(graph.uses.size()), entry.kind});
      graph.uses.insert(graph.uses.end(), entry.uses.begin(), entry.uses.end());
    }
    graph.finalize();
  }

private:
  struct Entry {
    Id producer;
    ValueKind kind;
    Bytes bytes;
    std::vector<Id> uses;
  };
  std::vector<Entry> found;
};

inline void addChainValues(const Chain &chain, Id s, Id k,
                           GraphForTests &values) {
  Op inputOp = chain.split ? Op::BackwardInput : Op::Backward;
  Op weightOp = chain.split ? Op::BackwardWeight : Op::Backward;
  Id forward = chainNode(chain, Op::Forward, s, k);
  Id input = chainNode(chain, inputOp, s, k);
  Id weight = chainNode(chain, weightOp, s, k);
  const StageBytes &bytes = chain.stages[s].bytes;
  if (s + 1 < chain.ranks)
    values.value(forward, ValueKind::Activation, chain.messageBytes,
                 {chainNode(chain, Op::Forward, s + 1, k)});
  values.value(forward, ValueKind::Saved,
               bytes.activation - bytes.keptForWeight, {input});
  values.value(forward, ValueKind::Kept, bytes.keptForWeight, {weight});
  if (s > 0)
    values.value(input, ValueKind::Gradient, chain.messageBytes,
                 {chainNode(chain, inputOp, s - 1, k)});
  if (chain.split)
    values.value(input, ValueKind::Order, 0, {weight});
}

inline Graph chainGraph(const Chain &chain) {
  Graph graph;
  graph.stages = chain.stages;
  graph.microbatches = chain.microbatches;
  GraphForTests values;
  for (Id s = 0; s < chain.ranks; ++s) {
    if (s > 0)
      graph.edges.push_back({s - 1, s, chain.messageBytes});
    for (Id k = 0; k < chain.microbatches; ++k) {
      std::vector<Op> ops{Op::Forward, Op::Backward};
      if (chain.split)
        ops = {Op::Forward, Op::BackwardInput, Op::BackwardWeight};
      for (Op op : ops)
        graph.nodes.push_back({chain.stages[s].duration(op), s, k, op});
      addChainValues(chain, s, k, values);
    }
  }
  values.finish(graph);
  return graph;
}

/// Forwards and backwards of a rank as a warmup count says: that many
/// forwards, then one forward and one backward in turn, then the rest.
inline Schedule warmupSchedule(const Chain &chain, std::string name,
                               const std::vector<uint32_t> &warmup) {
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.firstOfRank.push_back(0);
  for (Id r = 0; r < chain.ranks; ++r) {
    Id forwards = 0;
    auto forward = [&] {
      if (forwards < chain.microbatches)
        schedule.order.push_back(chainNode(chain, Op::Forward, r, forwards++));
    };
    while (forwards < std::min(warmup[r], chain.microbatches))
      forward();
    for (Id k = 0; k < chain.microbatches; ++k) {
      forward();
      schedule.order.push_back(chainNode(chain, Op::Backward, r, k));
      if (chain.split)
        schedule.order.push_back(chainNode(chain, Op::BackwardWeight, r, k));
    }
    schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
  }
  return schedule;
}

inline Schedule oneFOneB(const Chain &chain) {
  std::vector<uint32_t> warmup;
  for (Id r = 0; r < chain.ranks; ++r)
    warmup.push_back(std::min(chain.microbatches, chain.ranks - 1 - r));
  Schedule schedule = warmupSchedule(chain, "1f1b", warmup);
  schedule.warmup = warmup;
  return schedule;
}

inline Schedule gpipe(const Chain &chain) {
  return warmupSchedule(chain, "gpipe",
                        std::vector<uint32_t>(chain.ranks, chain.microbatches));
}

inline Schedule naive(const Chain &chain) {
  return warmupSchedule(chain, "naive", std::vector<uint32_t>(chain.ranks, 0));
}

/// Buffers of one rank, one for each value and never shared.
class RankForTests {
public:
  RankForTests(RankPlan &list, const Graph &graph) : list(list), graph(graph) {
    list.streams = {"compute", "messages"};
  }

  uint32_t add(Op op, Id stage, Id microbatch, Id channel,
               std::vector<uint32_t> waits, const std::vector<Operand> &uses) {
    list.ops.push_back({stage, microbatch, channel, kNone,
                        static_cast<uint32_t>(list.waits.size()),
                        static_cast<uint32_t>(list.operands.size()), op,
                        static_cast<uint8_t>(isMessage(op) ? 1 : 0)});
    list.waits.insert(list.waits.end(), waits.begin(), waits.end());
    list.operands.insert(list.operands.end(), uses.begin(), uses.end());
    return static_cast<uint32_t>(list.ops.size() - 1);
  }

  Id buffer(BufferKind kind, Id stage, Bytes bytes) {
    list.buffers.push_back({list.arenaBytes, bytes, stage, kind});
    list.arenaBytes +=
        (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    return static_cast<Id>(list.buffers.size() - 1);
  }

  /// The state of a stage, made when first asked for.
  std::vector<Operand> state(Id stage) {
    if (!states.count(stage)) {
      const StageBytes &bytes = graph.stages[stage].bytes;
      states[stage] = {buffer(BufferKind::Parameters, stage, bytes.parameters),
                       buffer(BufferKind::Gradients, stage, bytes.gradients),
                       buffer(BufferKind::Optimizer, stage, bytes.optimizer),
                       buffer(BufferKind::Workspace, kNone, bytes.workspace)};
    }
    std::vector<Operand> operands;
    for (Id each : states[stage])
      operands.push_back(operand(each, Access::Update));
    return operands;
  }

  Operand ofValue(Id value, Access access) {
    const Value &v = graph.values[value];
    if (!values.count(value)) {
      BufferKind kind = v.kind == ValueKind::Saved  ? BufferKind::Saved
                        : v.kind == ValueKind::Kept ? BufferKind::Kept
                        : v.kind == ValueKind::Gradient
                            ? BufferKind::Gradient
                            : BufferKind::Activation;
      values[value] = buffer(kind, graph.nodes[v.producer].stage, v.bytes);
    }
    return operand(values[value], access);
  }

  std::map<Id, uint32_t> positions; ///< of computed nodes
  std::map<Id, uint32_t> received;  ///< positions of receives, by value
  std::vector<size_t> messages;     ///< of this rank, in the global order
  size_t nextMessage = 0;

private:
  RankPlan &list;
  const Graph &graph;
  std::map<Id, std::vector<Id>> states;
  std::map<Id, Id> values;
};

/// A plan with one stream for messages, ordered by the time at which the
/// simulation of the schedule sends them, at both ends.
class PlanForTests {
public:
  PlanForTests(const Graph &graph, const Schedule &schedule,
               const ScheduleTiming &timing, const Network &network)
      : graph(graph), schedule(schedule), timing(timing), network(network) {}

  Plan lower() {
    plan.schedule = schedule.name;
    plan.timeUnit = graph.timeUnit;
    plan.microbatches = graph.microbatches;
    plan.stages = graph.stages;
    plan.edges = graph.edges;
    plan.warmup = schedule.warmup;
    plan.ranks.resize(schedule.ranks());
    for (Id r = 0; r < schedule.ranks(); ++r)
      ranks.emplace_back(plan.ranks[r], graph);
    for (size_t i = 0; i < timing.messages.size(); ++i) {
      ranks[timing.messages[i].source].messages.push_back(i);
      ranks[timing.messages[i].destination].messages.push_back(i);
    }
    for (Id r = 0; r < schedule.ranks(); ++r)
      lowerRank(r);
    return plan;
  }

private:
  void lowerRank(Id r) {
    for (Id node : schedule.rank(r)) {
      for (Id value : graph.inputs(node))
        if (timing.rankOf[graph.values[value].producer] != r)
          while (!ranks[r].received.count(value))
            message(r);
      compute(r, node);
    }
    while (ranks[r].nextMessage < ranks[r].messages.size())
      message(r);
  }

  void compute(Id r, Id node) {
    std::vector<Operand> uses = ranks[r].state(graph.nodes[node].stage);
    std::vector<uint32_t> waits;
    for (Id value : graph.inputs(node)) {
      if (graph.values[value].kind == ValueKind::Order)
        continue;
      uses.push_back(ranks[r].ofValue(value, Access::Read));
      if (ranks[r].received.count(value))
        waits.push_back(ranks[r].received[value]);
    }
    auto [first, last] = graph.outputs(node);
    for (Id value = first; value < last; ++value)
      if (graph.values[value].kind != ValueKind::Order)
        uses.push_back(ranks[r].ofValue(value, Access::Write));
    const Node &n = graph.nodes[node];
    ranks[r].positions[node] =
        ranks[r].add(n.op, n.stage, n.microbatch, kNone, waits, uses);
  }

  void message(Id r) {
    const Message &m = timing.messages[ranks[r].messages[ranks[r].nextMessage]];
    ++ranks[r].nextMessage;
    const Value &value = graph.values[m.value];
    bool forward = value.kind != ValueKind::Gradient;
    const Node &producer = graph.nodes[value.producer];
    if (m.source == r) {
      ranks[r].add(forward ? Op::SendForward : Op::SendBackward, producer.stage,
                   producer.microbatch, channel(m),
                   {ranks[r].positions[value.producer]},
                   {ranks[r].ofValue(m.value, Access::Read)});
      return;
    }
    const Node &consumer = graph.nodes[graph.consumers(m.value).front()];
    ranks[r].received[m.value] =
        ranks[r].add(forward ? Op::RecvForward : Op::RecvBackward,
                     consumer.stage, producer.microbatch, channel(m), {},
                     {ranks[r].ofValue(m.value, Access::Write)});
  }

  Id channel(const Message &m) {
    auto entry = channels.try_emplace({m.source, m.destination},
                                      static_cast<Id>(plan.channels.size()));
    if (entry.second) {
      Link link = network.between(m.source, m.destination);
      plan.channels.push_back(
          {0, m.source, m.destination, link.latency, link.bandwidth});
    }
    return entry.first->second;
  }

  const Graph &graph;
  const Schedule &schedule;
  const ScheduleTiming &timing;
  const Network &network;
  Plan plan;
  std::vector<RankForTests> ranks;
  std::map<std::pair<Id, Id>, Id> channels;
};

} // namespace sluice::tests

#endif // SLUICE_TESTS_COMPILER_CHAINFORTESTS_H
