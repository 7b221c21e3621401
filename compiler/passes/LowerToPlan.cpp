//===- compiler/passes/LowerToPlan.cpp - Messages, events and buffers -----===//
//
// Needs a graph, a schedule and its timing. Promises a plan that computes in
// the schedule's order, with one message for each value and each other rank
// that uses it, and an optimizer step for each trained stage at the end, after
// copies of it, replicas and stages that are tied have exchanged their
// gradients. Those of replicas are summed as soon as the stage has its last,
// or, where each keeps a part, microbatch by microbatch.
//
// All operations and messages are put into one global order by time, and every
// rank's host enqueues in it. Since both ends of every channel follow the same
// order and every event goes forward in it, the plan holds under the strictest
// progress model. Every channel has a communicator and, on each of its ranks,
// a stream of its own; so has what sums over replicas on a rank. Each buffer
// has bytes of its own; letting them share is the business of assign-buffers.
// Linear, as the timing is sorted already.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/Lowering.h"
#include "compiler/passes/PassManager.h"
#include "ir/PlanStructure.h"

#include "llvm/Support/ErrorHandling.h"

namespace sluice {

Lowering::Lowering(const Graph &g, const Schedule &s, const ScheduleTiming &t,
                   const Network &n)
    : graph(g), schedule(s), timing(t), network(n), states(s.ranks()),
      opOfNode(g.nodes.size()), bufferOfValue(g.values.size(), kNone),
      newestMessage(g.values.size(), kNone),
      nextMessage(t.messages.size(), kNone),
      bufferOfMessage(t.messages.size(), kNone), receiveOf(t.messages.size()),
      unsummed(g.stages.size(), false) {}

Plan Lowering::lower() {
  plan.schedule = schedule.name;
  plan.warmup = schedule.warmup;
  plan.timeUnit = graph.timeUnit;
  plan.microbatches = graph.microbatches;
  plan.replicas = graph.replicas;
  plan.stages = graph.stages;
  plan.edges = graph.edges;
  plan.ranks.resize(schedule.ranks());
  for (RankPlan &rank : plan.ranks)
    rank.streams.push_back("compute");
  reserve();
  makeState();
  addInOrder();
  addSteps();
  for (Id i = 0; i < plan.collectives.size(); ++i)
    plan.collectives[i].communicator =
        static_cast<Id>(plan.channels.size()) + i;
  for (RankPlan &rank : plan.ranks)
    placeApart(rank);
  return std::move(plan);
}

static bool addsGradients(Op op) {
  return op == Op::Backward || op == Op::BackwardWeight;
}

/// The stages without copies that are to be summed over replicas, in order of
/// the time from which they can.
std::vector<Lowering::Summed> Lowering::summedStages() const {
  std::vector<Summed> stages;
  if (graph.replicas == 1)
    return stages;
  std::vector<Id> last(graph.stages.size(), kNone);
  for (Id node : timing.topological) {
    Id stage = graph.nodes[node].stage;
    if (!addsGradients(graph.nodes[node].op))
      continue;
    if (graph.stages[stage].gradientsPartitioned)
      stages.push_back({timing.end[node], stage, node});
    else
      last[stage] = node;
  }
  for (Id stage = 0; stage < last.size(); ++stage)
    if (last[stage] != kNone && copies[stage].size() == 1)
      stages.push_back({timing.end[last[stage]], stage, last[stage]});
  llvm::stable_sort(stages, [](const Summed &one, const Summed &other) {
    return one.when < other.when;
  });
  return stages;
}

/// Adds what computes and what it sends, and sums over replicas what is whole.
void Lowering::addInOrder() {
  // All lists are in order of start. A message that starts together with an
  // operation goes first if its producer does; a sum over replicas, which may
  // take long, goes after both.
  std::vector<uint32_t> position(graph.nodes.size());
  for (uint32_t i = 0; i < timing.topological.size(); ++i)
    position[timing.topological[i]] = i;
  summed = summedStages();
  Id message = 0;
  auto messagesBefore = [&](Ticks start, uint32_t place) {
    for (; message < timing.messages.size(); ++message) {
      const Message &next = timing.messages[message];
      uint32_t producer = position[graph.values[next.value].producer];
      if (next.start > start || (next.start == start && producer >= place))
        break;
      sumBefore(next.start);
      addMessage(message);
    }
    sumBefore(start);
  };
  joined = joinedNodes();
  bool joins = false; // a pair is not parted by what starts with it
  for (Id node : timing.topological) {
    if (!joins) {
      messagesBefore(timing.start[node], position[node]);
      sumForUnit(position[node]);
    }
    addCompute(node, joins);
    joins = !joined.empty() && joined[node];
  }
  messagesBefore(kMaxTicks, kNone);
  sumBefore(kMaxTicks + 1);
}

void Lowering::sumBefore(Ticks start) {
  while (nextSummed < summed.size() && summed[nextSummed].when < start)
    sumNext();
}

void Lowering::sumNext() {
  const Summed &sum = summed[nextSummed++];
  StateBuffers &state = copies[sum.stage].front();
  uint32_t made = opOfNode[sum.node];
  state.summed = made;
  bool isPart = graph.stages[sum.stage].gradientsPartitioned;
  reduceGradients(sum.stage, isPart ? graph.nodes[sum.node].microbatch : kNone,
                  state);
  unsummed[sum.stage] = false;
}

/// Before what computes at `place` of the order and runs together: what goes on
/// with the sum of the microbatch before.
void Lowering::sumForUnit(uint32_t place) {
  for (bool isMember = true; isMember; ++place) {
    Id node = timing.topological[place];
    Id stage = graph.nodes[node].stage;
    while (addsGradients(graph.nodes[node].op) && unsummed[stage])
      sumNext();
    isMember = !joined.empty() && joined[node];
  }
}

/// Makes room, so that no list grows by doubling: exact for operations, an
/// upper bound for the rest.
void Lowering::reserve() {
  std::vector<size_t> ops(schedule.ranks()), uses(schedule.ranks()),
      buffers(schedule.ranks());
  for (Id rank = 0; rank < schedule.ranks(); ++rank)
    for (Id node : schedule.rank(rank)) {
      auto [first, last] = graph.outputs(node);
      ++ops[rank];
      uses[rank] += 3 + graph.inputs(node).size() + (last - first);
      buffers[rank] += last - first;
    }
  for (const Message &message : timing.messages)
    for (Id rank : {message.source, message.destination}) {
      ++ops[rank];
      ++uses[rank];
      buffers[rank] += rank == message.destination;
    }
  for (Id rank = 0; rank < schedule.ranks(); ++rank) {
    RankPlan &list = plan.ranks[rank];
    list.ops.reserve(ops[rank] + 1);
    list.operands.reserve(uses[rank] + 4);
    list.buffers.reserve(buffers[rank] + 4);
    list.waits.reserve(ops[rank]);
  }
}

/// The ranks that hold each stage, in order.
std::vector<llvm::SmallVector<Id, 1>> Lowering::holders() const {
  std::vector<llvm::SmallVector<Id, 1>> ranks(graph.stages.size());
  for (Id rank = 0; rank < schedule.ranks(); ++rank)
    for (Id node : schedule.rank(rank)) {
      llvm::SmallVector<Id, 1> &of = ranks[graph.nodes[node].stage];
      if (of.empty() || of.back() != rank)
        of.push_back(rank);
    }
  return ranks;
}

/// Buffers that live for the whole run: the state of each stage, the norms of a
/// rank, and one workspace a rank, since only one operation of a rank computes
/// at a time; one for each stage where two stages run together.
void Lowering::makeState() {
  bool together = !schedule.joined.empty();
  std::vector<Bytes> workspace(schedule.ranks(), 0);
  copies.resize(graph.stages.size());
  std::vector<llvm::SmallVector<Id, 1>> ranks = holders();
  for (Id stage = 0; stage < graph.stages.size(); ++stage)
    for (Id rank : ranks[stage]) {
      const StageBytes &bytes = graph.stages[stage].bytes;
      StateBuffers state{};
      state.rank = rank;
      state.summed = kNone;
      state.parameters =
          addBuffer(rank, stage, BufferKind::Parameters, bytes.parameters);
      state.gradients = addBuffer(rank, stage, BufferKind::Gradients,
                                  graph.stages[stage].gradientsKept());
      state.optimizer =
          addBuffer(rank, stage, BufferKind::Optimizer, bytes.optimizer);
      if (together)
        state.workspace =
            addBuffer(rank, stage, BufferKind::Workspace, bytes.workspace);
      copies[stage].push_back(state);
      workspace[rank] = std::max(workspace[rank], bytes.workspace);
      if (graph.stages[stage].backward && bytes.norms != 0 &&
          states[rank].norms == kNone)
        states[rank].norms =
            addBuffer(rank, kNone, BufferKind::Norms, bytes.norms);
    }
  if (together)
    return;
  std::vector<Id> shared;
  for (Id rank = 0; rank < schedule.ranks(); ++rank)
    shared.push_back(
        addBuffer(rank, kNone, BufferKind::Workspace, workspace[rank]));
  for (llvm::SmallVector<StateBuffers, 1> &of : copies)
    for (StateBuffers &state : of)
      state.workspace = shared[state.rank];
}

Lowering::StateBuffers &Lowering::stateOf(Id rank, Id stage) {
  for (StateBuffers &state : copies[stage])
    if (state.rank == rank)
      return state;
  llvm_unreachable("a rank computes a stage that it does not hold");
}

PlanOp &Lowering::beginOp(Id rank, Op op, Id stage, Id microbatch,
                          uint8_t stream) {
  RankPlan &list = plan.ranks[rank];
  return list.ops.emplace_back(PlanOp{
      stage, microbatch, kNone, kNone, static_cast<uint32_t>(list.waits.size()),
      static_cast<uint32_t>(list.operands.size()), op, stream});
}

/// Makes the operation begun last wait for `op`. Compute need not wait for an
/// operation of a stream of which it has awaited a later one.
void Lowering::waitFor(Id rank, uint32_t op) {
  RankPlan &list = plan.ranks[rank];
  if (list.ops.back().stream == kComputeStream) {
    uint32_t &awaited = states[rank].awaited[list.ops[op].stream];
    if (op < awaited)
      return;
    awaited = op + 1;
  }
  list.waits.push_back(op);
}

Id Lowering::addBuffer(Id rank, Id stage, BufferKind kind, Bytes bytes) {
  std::vector<Buffer> &buffers = plan.ranks[rank].buffers;
  buffers.push_back({0, bytes, stage, kind});
  return static_cast<Id>(buffers.size() - 1);
}

const Lowering::Route &Lowering::routeOf(Id source, Id destination) {
  llvm::SmallVector<Route, 4> &routes = states[source].routes;
  for (const Route &route : routes)
    if (route.destination == destination)
      return route;
  auto channel = static_cast<Id>(plan.channels.size());
  Link link = network.between(source, destination);
  plan.channels.push_back(
      {channel, source, destination, link.latency, link.bandwidth});
  return routes.emplace_back(
      Route{destination, channel,
            addStream(source, "send-" + std::to_string(destination)),
            addStream(destination, "receive-" + std::to_string(source))});
}

/// A new stream of `rank`. Should a rank have more channels than it can have
/// streams, the last one carries all that are left.
uint8_t Lowering::addStream(Id rank, std::string name) {
  std::vector<std::string> &streams = plan.ranks[rank].streams;
  if (streams.size() < kMaxStreams) {
    streams.push_back(std::move(name));
    states[rank].awaited.push_back(0);
  }
  return static_cast<uint8_t>(streams.size() - 1);
}

static BufferKind bufferKind(ValueKind kind) {
  switch (kind) {
  case ValueKind::Activation:
    return BufferKind::Activation;
  case ValueKind::Gradient:
    return BufferKind::Gradient;
  case ValueKind::Saved:
    return BufferKind::Saved;
  case ValueKind::Checkpoint:
    return BufferKind::Checkpoint;
  case ValueKind::Kept:
  case ValueKind::Order:
    return BufferKind::Kept;
  }
  return BufferKind::Kept;
}

/// How an operation uses what an earlier one left for it: the backward by
/// inputs works in place on what it finds.
static Access accessOf(Op op, ValueKind kind) {
  bool inPlace = kind == ValueKind::Saved || kind == ValueKind::Kept;
  bool isBackward = op == Op::Backward || op == Op::BackwardInput;
  return inPlace && isBackward ? Access::Update : Access::Read;
}

void Lowering::addInput(Id rank, Id node, Id value) {
  const Value &info = graph.values[value];
  if (timing.rankOf[info.producer] == rank) {
    if (info.kind != ValueKind::Order)
      addOperand(rank, bufferOfValue[value],
                 accessOf(graph.nodes[node].op, info.kind));
    return; // same stream, in order
  }
  Id message = newestMessage[value];
  while (timing.messages[message].destination != rank)
    message = nextMessage[message];
  waitFor(rank, receiveOf[message]);
  if (info.kind != ValueKind::Order)
    addOperand(rank, bufferOfMessage[message], Access::Read);
}

void Lowering::addOutput(Id rank, Id node, Id value) {
  const Value &info = graph.values[value];
  if (info.kind == ValueKind::Order)
    return;
  Id buffer = addBuffer(rank, graph.nodes[node].stage, bufferKind(info.kind),
                        info.bytes);
  bufferOfValue[value] = buffer;
  addOperand(rank, buffer, Access::Write);
}

/// The nodes that run together with the one after them; empty without any.
std::vector<bool> Lowering::joinedNodes() const {
  std::vector<bool> joined(schedule.joined.empty() ? 0 : graph.nodes.size());
  for (size_t at = 0; at < schedule.joined.size(); ++at)
    if (schedule.joined[at])
      joined[schedule.order[at]] = true;
  return joined;
}

/// The gradients of a microbatch of a stage that keeps a part of them: who
/// computes the last of them adds the sum of those before, once it is there.
void Lowering::addWhole(Id rank, const Node &node, StateBuffers &state) {
  bufferOfWhole.resize(graph.stages.size() * size_t(graph.microbatches), kNone);
  Id &whole =
      bufferOfWhole[size_t(node.stage) * graph.microbatches + node.microbatch];
  bool begins = node.op != Op::BackwardWeight;
  if (begins)
    whole = addBuffer(rank, node.stage, BufferKind::WholeGradients,
                      graph.stages[node.stage].bytes.gradients);
  addOperand(rank, whole, begins ? Access::Write : Access::Update);
  if (!addsGradients(node.op))
    return;
  if (state.summed != kNone)
    waitFor(rank, state.summed);
  unsummed[node.stage] = true;
}

/// Adds `node`; `joins` makes it one unit with the operation before it.
void Lowering::addCompute(Id node, bool joins) {
  const Node &info = graph.nodes[node];
  Id rank = timing.rankOf[node];
  opOfNode[node] = static_cast<uint32_t>(plan.ranks[rank].ops.size());
  PlanOp &op =
      beginOp(rank, info.op, info.stage, info.microbatch, kComputeStream);
  if (joins)
    op.group = (&op - 1)->group = opOfNode[node] - 1;
  StateBuffers &state = stateOf(rank, info.stage);
  bool isPart = graph.stages[info.stage].gradientsPartitioned;
  bool forward = info.op == Op::Forward || info.op == Op::Recompute;
  if (info.op != Op::BackwardWeight)
    addOperand(rank, state.parameters, Access::Read);
  if (!forward && !isPart)
    addOperand(rank, state.gradients, Access::Update);
  if (addsGradients(info.op) && isPart)
    addOperand(rank, state.gradients, Access::Read);
  addOperand(rank, state.workspace, Access::Update);
  for (Id value : graph.inputs(node))
    addInput(rank, node, value);
  if (!forward && isPart)
    addWhole(rank, info, state);
  auto [first, last] = graph.outputs(node);
  for (Id value = first; value < last; ++value)
    addOutput(rank, node, value);
}

void Lowering::addMessage(Id number) {
  const Message &message = timing.messages[number];
  const Value &value = graph.values[message.value];
  const Node &producer = graph.nodes[value.producer];
  // The consumer on that rank names the stage at the other end.
  const Node *consumer = nullptr;
  for (Id use : graph.consumers(message.value))
    if (timing.rankOf[use] == message.destination)
      consumer = &graph.nodes[use];
  Op send =
      value.kind == ValueKind::Gradient ? Op::SendBackward : Op::SendForward;
  const Route &route = routeOf(message.source, message.destination);

  beginOp(message.source, send, producer.stage, producer.microbatch,
          route.sendStream)
      .channel = route.channel;
  waitFor(message.source, opOfNode[value.producer]);
  addOperand(message.source, bufferOfValue[message.value], Access::Read);

  receiveOf[number] =
      static_cast<uint32_t>(plan.ranks[message.destination].ops.size());
  beginOp(message.destination, info(send).mate, consumer->stage,
          consumer->microbatch, route.receiveStream)
      .channel = route.channel;
  bufferOfMessage[number] = addBuffer(message.destination, consumer->stage,
                                      bufferKind(value.kind), value.bytes);
  addOperand(message.destination, bufferOfMessage[number], Access::Write);
  nextMessage[number] = newestMessage[message.value];
  newestMessage[message.value] = number;
}

bool passes::LowerToPlan(Compilation &c) {
  Network network = c.network();
  c.plan = Lowering(*c.graph, *c.schedule, *c.timing, network).lower();
  return true;
}

} // namespace sluice
