//===- LowerToPlan.cpp - Messages, streams, events and buffers -----------===//
//
// Needs a graph, a schedule and its timing. Promises a plan that computes in
// the schedule's order, with one message for each value and each other rank
// that uses it, and an optimizer step for each trained stage at the end.
//
// All operations and messages are put into one global order by time, and every
// rank's host enqueues in it. Since both ends of every channel follow the same
// order and every event goes forward in it, the plan holds under the strictest
// progress model. Every channel has a communicator and, on each of its ranks,
// a stream of its own. Each buffer has bytes of its own; letting them share is
// the business of assign-buffers. Linear, as the timing is sorted already.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/PassManager.h"
#include "compiler/spec/RunSection.h"
#include "ir/PlanStructure.h"

#include "llvm/Support/Path.h"

namespace sluice {

namespace {
class Lowering {
public:
  Lowering(const Graph &graph, const Schedule &schedule,
           const ScheduleTiming &timing, const Network &network);
  Plan lower();

private:
  /// From one rank to another: the channel and its stream at both ends.
  struct Route {
    Id destination;
    Id channel;
    uint8_t sendStream, receiveStream;
  };
  /// What a rank's list is being built with.
  struct RankState {
    llvm::SmallVector<Route, 4> routes; ///< few: searched one by one
    /// Per stream, one past the last of its operations that compute waits for.
    llvm::SmallVector<uint32_t, 8> awaited{0};
    Id workspace = kNone;
  };
  struct StateBuffers {
    Id parameters, gradients, optimizer;
  };

  void makeState();
  void reserve();
  void addCompute(Id node);
  void addMessage(Id message);
  void addSteps();

  PlanOp &beginOp(Id rank, Op op, Id stage, Id microbatch, uint8_t stream);
  void waitFor(Id rank, uint32_t op);
  void addOperand(Id rank, Id buffer, Access access) {
    plan.ranks[rank].operands.push_back(operand(buffer, access));
  }
  Id addBuffer(Id rank, Id stage, BufferKind kind, Bytes bytes);
  const Route &routeOf(Id source, Id destination);
  uint8_t addStream(Id rank, std::string name);
  void addInput(Id rank, Id node, Id value);
  void addOutput(Id rank, Id node, Id value);

  const Graph &graph;
  const Schedule &schedule;
  const ScheduleTiming &timing;
  const Network &network;
  Plan plan;
  std::vector<RankState> states;
  std::vector<StateBuffers> stateOfStage;
  std::vector<Id> rankOfStage;
  std::vector<uint32_t> opOfNode; ///< position in its rank's list
  std::vector<Id> bufferOfValue;  ///< on its producer's rank
  /// Received copies of a value: a chain of messages, the newest first.
  std::vector<Id> newestMessage, nextMessage;
  std::vector<Id> bufferOfMessage;
  std::vector<uint32_t> receiveOf; ///< position in the receiver's list
};
} // namespace

Lowering::Lowering(const Graph &g, const Schedule &s, const ScheduleTiming &t,
                   const Network &n)
    : graph(g), schedule(s), timing(t), network(n), states(s.ranks()),
      opOfNode(g.nodes.size()), bufferOfValue(g.values.size(), kNone),
      newestMessage(g.values.size(), kNone),
      nextMessage(t.messages.size(), kNone),
      bufferOfMessage(t.messages.size(), kNone), receiveOf(t.messages.size()) {}

Plan Lowering::lower() {
  plan.schedule = schedule.name;
  plan.warmup = schedule.warmup;
  plan.timeUnit = graph.timeUnit;
  plan.microbatches = graph.microbatches;
  plan.stages = graph.stages;
  plan.edges = graph.edges;
  plan.ranks.resize(schedule.ranks());
  for (RankPlan &rank : plan.ranks)
    rank.streams.push_back("compute");
  reserve();
  makeState();

  // Both lists are in order of start; a message that starts together with an
  // operation goes first if its producer does.
  std::vector<uint32_t> position(graph.nodes.size());
  for (uint32_t i = 0; i < timing.topological.size(); ++i)
    position[timing.topological[i]] = i;
  Id message = 0;
  auto messagesBefore = [&](Ticks start, uint32_t place) {
    for (; message < timing.messages.size(); ++message) {
      const Message &next = timing.messages[message];
      uint32_t producer = position[graph.values[next.value].producer];
      if (next.start > start || (next.start == start && producer >= place))
        return;
      addMessage(message);
    }
  };
  for (Id node : timing.topological) {
    messagesBefore(timing.start[node], position[node]);
    addCompute(node);
  }
  messagesBefore(kMaxTicks, kNone);
  addSteps();
  for (RankPlan &rank : plan.ranks)
    placeApart(rank);
  return std::move(plan);
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

/// Buffers that live for the whole run: the state of each stage, and one
/// workspace a rank, since only one operation of a rank computes at a time.
void Lowering::makeState() {
  rankOfStage.assign(graph.stages.size(), kNone);
  for (Id node = 0; node < graph.nodes.size(); ++node)
    rankOfStage[graph.nodes[node].stage] = timing.rankOf[node];
  stateOfStage.resize(graph.stages.size());
  std::vector<Bytes> workspace(schedule.ranks(), 0);
  for (Id stage = 0; stage < graph.stages.size(); ++stage) {
    Id rank = rankOfStage[stage];
    const StageBytes &bytes = graph.stages[stage].bytes;
    stateOfStage[stage] = {
        addBuffer(rank, stage, BufferKind::Parameters, bytes.parameters),
        addBuffer(rank, stage, BufferKind::Gradients, bytes.gradients),
        addBuffer(rank, stage, BufferKind::Optimizer, bytes.optimizer)};
    workspace[rank] = std::max(workspace[rank], bytes.workspace);
  }
  for (Id rank = 0; rank < schedule.ranks(); ++rank)
    states[rank].workspace =
        addBuffer(rank, kNone, BufferKind::Workspace, workspace[rank]);
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
  return inPlace && op != Op::BackwardWeight ? Access::Update : Access::Read;
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

void Lowering::addCompute(Id node) {
  const Node &info = graph.nodes[node];
  Id rank = timing.rankOf[node];
  opOfNode[node] = static_cast<uint32_t>(plan.ranks[rank].ops.size());
  beginOp(rank, info.op, info.stage, info.microbatch, kComputeStream);
  const StateBuffers &state = stateOfStage[info.stage];
  bool forward = info.op == Op::Forward || info.op == Op::Recompute;
  if (info.op != Op::BackwardWeight)
    addOperand(rank, state.parameters, Access::Read);
  if (!forward)
    addOperand(rank, state.gradients, Access::Update);
  addOperand(rank, states[rank].workspace, Access::Update);
  for (Id value : graph.inputs(node))
    addInput(rank, node, value);
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

void Lowering::addSteps() {
  for (Id stage = 0; stage < graph.stages.size(); ++stage) {
    if (!graph.stages[stage].backward)
      continue;
    Id rank = rankOfStage[stage];
    beginOp(rank, Op::OptimizerStep, stage, kNone, kComputeStream);
    addOperand(rank, stateOfStage[stage].parameters, Access::Update);
    addOperand(rank, stateOfStage[stage].gradients, Access::Read);
    addOperand(rank, stateOfStage[stage].optimizer, Access::Update);
  }
}

/// What a CUDA context and NCCL's own buffers take from a device before the
/// first byte of the arena: an allowance, not a measurement.
static constexpr Bytes kDeviceAllowance = Bytes(1) << 30;

static void setMemoryLimit(const Spec &spec, Plan &plan,
                           Diagnostics &diagnostics) {
  const std::optional<DeviceSpec> &device = spec.cluster.device;
  const Located<Bytes> &limit = spec.pipeline.memoryLimit;
  if (device)
    plan.memoryAllowance = kDeviceAllowance;
  if (device)
    plan.memoryLimit = device->memory;
  if (!limit.given)
    return;
  plan.memoryLimit = limit;
  if (device && device->memory.given && limit > device->memory)
    diagnostics.warning(limit.where, "pipeline.memory_limit is " +
                                         formatBytes(limit) +
                                         ", more than the device's " +
                                         formatBytes(device->memory));
}

bool passes::LowerToPlan(Compilation &c) {
  Network network = c.network();
  c.plan = Lowering(*c.graph, *c.schedule, *c.timing, network).lower();
  if (!c.spec)
    return true;
  const Spec &spec = *c.spec;
  c.plan->model = c.model ? c.model->name : spec.model.name.value;
  c.plan->source = llvm::sys::path::filename(spec.file).str();
  c.plan->run = runEntries(spec.run);
  setMemoryLimit(spec, *c.plan, c.diagnostics);
  return true;
}

} // namespace sluice
