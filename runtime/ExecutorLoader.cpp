//===- runtime/ExecutorLoader.cpp - From a plan to flat records ----------===//
#include "runtime/ExecutorLoader.h"

#include "runtime/ModuleCall.h"

#include <algorithm>

namespace sluice::runtime {

static_assert(SLUICE_NO_STAGE == kNone);
static_assert(SLUICE_RECOMPUTE_NONE ==
                  static_cast<int>(RecomputePolicy::None) &&
              SLUICE_RECOMPUTE_SELECTIVE ==
                  static_cast<int>(RecomputePolicy::Selective) &&
              SLUICE_RECOMPUTE_FULL == static_cast<int>(RecomputePolicy::Full));

Status ExecutorLoader::run(Backend &device) {
  if (Status s = checkLists(); !s.ok())
    return s;
  if (Status s = makeStages(); !s.ok())
    return s;
  makeSteps();
  if (Status s = device.prepare(countNeeds()); !s.ok())
    return s;
  base = static_cast<std::byte *>(device.arena());
  hostBase = static_cast<std::byte *>(device.hostArena());
  if (Status s = bindStages(); !s.ok())
    return s;
  return prepareOps();
}

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

uint32_t ExecutorLoader::groupEnd(uint32_t first) const {
  const Id group = list.ops[first].group;
  uint32_t end = first + 1;
  if (group != kNone)
    while (end < list.ops.size() && list.ops[end].group == group)
      ++end;
  return end;
}

/// What the plan's structure allows but this runtime does not do.
Status ExecutorLoader::checkLists() const {
  std::vector<uint8_t> streamOfChannel(plan.channels.size());
  std::vector<bool> used(plan.channels.size());
  for (uint32_t i = 0; i < list.ops.size(); ++i) {
    const PlanOp &op = list.ops[i];
    if (op.op == Op::Recompute && !module.recompute)
      return Status::input(opText(i) + ": module " + escaped(module.name) +
                           " has no recompute");
    if (!isMessage(op.op))
      continue;
    if (used[op.channel] && streamOfChannel[op.channel] != op.stream)
      return Status::input(opText(i) + ": channel " +
                           std::to_string(op.channel) +
                           " is used from two streams");
    used[op.channel] = true;
    streamOfChannel[op.channel] = op.stream;
  }
  for (uint32_t i = 0, end; i < list.ops.size(); i = end) {
    end = groupEnd(i);
    if (Status s = checkGroup(i, end); !s.ok())
      return s;
  }
  return {};
}

Status ExecutorLoader::checkGroup(uint32_t first, uint32_t end) const {
  if (end == first + 1)
    return {};
  for (uint32_t i = first; i < end; ++i) {
    if (isCommunication(list.ops[i].op) != isCommunication(list.ops[first].op))
      return Status::input(opText(i) +
                           ": a group holds what communicates, or what "
                           "computes");
  }
  return {};
}

/// Behind what the plan offloads, the host's memory of each stage.
static Bytes aligned(Bytes bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

static Bytes hostEnd(Bytes begin, Bytes bytes) {
  return bytes == 0 ? begin : aligned(begin) + bytes;
}

RankNeeds ExecutorLoader::countNeeds() const {
  RankNeeds needs;
  needs.arenaBytes = list.arenaBytes;
  needs.hostArenaBytes = list.hostArenaBytes;
  for (const auto &slot : executor.stages)
    needs.hostArenaBytes = hostEnd(needs.hostArenaBytes, slot->needs.host);
  needs.commands.resize(list.streams.size());
  for (const Executor::Step &step : executor.steps) {
    needs.commands[step.stream] += 1 + (step.lastWait - step.firstWait) +
                                   (step.event != kNone) +
                                   2 * (step.lastJoin - step.firstJoin);
  }
  for (const Executor::Join &join : executor.joins)
    needs.commands[join.stream] += 2;
  for (uint32_t i = 0, end; i < list.ops.size(); i = end) {
    end = executor.steps[i].groupEnd;
    needs.commands[list.ops[i].stream] +=
        end > i + 1 && isCommunication(list.ops[i].op);
  }
  needs.events = events;
  needs.compute = &executor;
  needs.progress = &executor.progress;
  return needs;
}

/// Everything of the steps that needs no memory.
void ExecutorLoader::makeSteps() {
  std::vector<Executor::Step> &steps = executor.steps;
  steps.resize(list.ops.size());
  for (const uint32_t wait : list.waits)
    if (steps[wait].event == kNone)
      steps[wait].event = events++;
  executor.waitEvents.reserve(list.waits.size());
  for (uint32_t i = 0; i < steps.size(); ++i) {
    Executor::Step &step = steps[i];
    step.op = list.ops[i].op;
    step.stream = list.ops[i].stream;
    step.stage = slotOfStage[list.ops[i].stage];
    step.firstWait = static_cast<uint32_t>(executor.waitEvents.size());
    for (const uint32_t wait : list.waitsOf(i))
      executor.waitEvents.push_back(steps[wait].event);
    step.lastWait = static_cast<uint32_t>(executor.waitEvents.size());
  }
  for (uint32_t i = 0, end; i < steps.size(); i = end) {
    end = groupEnd(i);
    makeGroup(i, end);
  }
}

/// A group runs on the stream of its first operation, which the streams of the
/// others join for its time.
void ExecutorLoader::makeGroup(uint32_t first, uint32_t end) {
  Executor::Step &leader = executor.steps[first];
  leader.firstJoin = static_cast<uint32_t>(executor.joins.size());
  for (uint32_t member = first; member < end; ++member) {
    Executor::Step &step = executor.steps[member];
    step.groupEnd = end;
    const auto known = std::find_if(
        executor.joins.begin() + leader.firstJoin, executor.joins.end(),
        [&](const Executor::Join &join) { return join.stream == step.stream; });
    if (step.stream != leader.stream && known == executor.joins.end()) {
      executor.joins.push_back({events, events + 1, step.stream});
      events += 2;
    }
    step.stream = leader.stream;
  }
  leader.lastJoin = static_cast<uint32_t>(executor.joins.size());
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

Status ExecutorLoader::makeStages() {
  addSlots();
  addNeighbours();
  for (const auto &[key, value] : plan.run)
    executor.run.append(key).append("=").append(value).append("\n");
  for (const auto &slot : executor.stages)
    if (Status s = makeStage(*slot); !s.ok())
      return s;
  return {};
}

/// A slot for each stage that the rank computes, in order of the list.
void ExecutorLoader::addSlots() {
  slotOfStage.assign(plan.stages.size(), kNone);
  for (const PlanOp &op : list.ops) {
    const uint32_t slot = slotOfStage[op.stage];
    if (isCollective(op.op) && slot != kNone)
      addCollective(executor.stages[slot]->facts, op);
    if (isCommunication(op.op) || slot != kNone)
      continue;
    slotOfStage[op.stage] = static_cast<uint32_t>(executor.stages.size());
    executor.stages.push_back(std::make_unique<Executor::StageSlot>());
    executor.stages.back()->facts.stage = op.stage;
    executor.stages.back()->facts.reduced_ranks = 1;
    executor.stages.back()->facts.optimizer_parts = 1;
    executor.stages.back()->facts.gradient_parts = 1;
  }
}

/// How a stage takes part in what sums its gradients or gathers its parameters.
void ExecutorLoader::addCollective(sluice_stage &facts,
                                   const PlanOp &op) const {
  const Collective &of = plan.collectives[op.channel];
  const auto members = static_cast<uint32_t>(membersOf(plan, of));
  const Payload payload = info(op.op).payload;
  if (payload == Payload::WeightGradients)
    facts.reduced_ranks = members;
  if (payload == Payload::WeightGradients &&
      info(op.op).pattern == Pattern::ReduceScatter)
    facts.gradient_parts = members;
  if (payload != Payload::Parameters)
    return;
  const auto seat = std::lower_bound(of.ranks.begin(), of.ranks.end(), rank);
  facts.optimizer_parts = members;
  facts.optimizer_part =
      static_cast<uint32_t>(seat - of.ranks.begin() +
                            (of.overReplicas ? replica * of.ranks.size() : 0));
}

/// Edges are sorted, so the neighbours come in order.
void ExecutorLoader::addNeighbours() {
  for (const StageEdge &edge : plan.edges) {
    if (const uint32_t slot = slotOfStage[edge.to]; slot != kNone)
      executor.stages[slot]->inputs.push_back(edge.from);
    if (const uint32_t slot = slotOfStage[edge.from]; slot != kNone)
      executor.stages[slot]->outputs.push_back(edge.to);
  }
}

void ExecutorLoader::fillFacts(Executor::StageSlot &slot) const {
  sluice_stage &facts = slot.facts;
  const Stage &planStage = plan.stages[facts.stage];
  slot.description = planStage.description;
  facts.stages = static_cast<uint32_t>(plan.stages.size());
  facts.rank = rank;
  facts.ranks = static_cast<uint32_t>(plan.ranks.size());
  facts.replica = replica;
  facts.replicas = plan.replicas;
  facts.microbatches = plan.microbatches * plan.replicas;
  facts.input_stages = slot.inputs.data();
  facts.output_stages = slot.outputs.data();
  facts.input_count = static_cast<uint32_t>(slot.inputs.size());
  facts.output_count = static_cast<uint32_t>(slot.outputs.size());
  facts.trained = planStage.backward;
  facts.recompute = static_cast<uint32_t>(planStage.recomputePolicy);
  facts.gradients_partitioned = planStage.gradientsPartitioned;
  facts.tied_stage = planStage.tiedTo;
  facts.tied_bytes = planStage.bytes.tied;
  facts.description = slot.description.c_str();
  facts.run = executor.run.c_str();
  if (plan.timeUnit == TimeUnit::Unit)
    return;
  const double perTick = 1.0 / static_cast<double>(ticksPer(plan.timeUnit));
  facts.forward_seconds = perTick * static_cast<double>(planStage.forward);
  facts.backward_input_seconds =
      perTick * static_cast<double>(planStage.backwardInput);
  facts.backward_weight_seconds =
      perTick * static_cast<double>(planStage.backwardWeight);
  facts.recompute_seconds = perTick * static_cast<double>(planStage.recompute);
}

static std::string moduleOf(const sluice_module &module, Id stage) {
  return "module " + escaped(module.name) + ", stage " + std::to_string(stage);
}

Status ExecutorLoader::makeStage(Executor::StageSlot &slot) {
  const Id stage = slot.facts.stage;
  fillFacts(slot);
  sluice_error error;
  if (!callModule(error, [&](sluice_error *e) {
        return module.create(&slot.facts, &slot.instance, e);
      }))
    return Status::input(moduleOf(module, stage) + ": " + messageOf(error));
  if (!callModule(error, [&](sluice_error *e) {
        return module.bytes(slot.instance, &slot.needs, e);
      }))
    return Status::input(moduleOf(module, stage) + ": " + messageOf(error));
  return {};
}

/// Where a stage keeps what lives for the whole run; null for other kinds.
static sluice_buffer *stateOf(sluice_state &state, BufferKind kind) {
  switch (kind) {
  case BufferKind::Parameters:
    return &state.parameters;
  case BufferKind::Gradients:
    return &state.gradients;
  case BufferKind::Optimizer:
    return &state.optimizer;
  case BufferKind::Workspace:
    return &state.workspace;
  case BufferKind::Norms:
    return &state.norms;
  case BufferKind::Saved:
  case BufferKind::Kept:
  case BufferKind::Checkpoint:
  case BufferKind::Activation:
  case BufferKind::Gradient:
  case BufferKind::CopyGradients:
  case BufferKind::TiedGradients:
  case BufferKind::WholeGradients:
  case BufferKind::Offloaded:
    return nullptr;
  }
  return nullptr; // not reached: the switch is complete
}

/// What is cut into parts is not longer than what is cut.
void ExecutorLoader::takeParts(Executor::StageSlot &slot) const {
  const StageBytes &bytes = plan.stages[slot.facts.stage].bytes;
  const auto cut = [](sluice_buffer &buffer, uint32_t parts, Bytes whole) {
    if (parts > 1)
      buffer.bytes = std::min(buffer.bytes, whole);
  };
  cut(slot.state.parameters, slot.facts.optimizer_parts, bytes.parameters);
  cut(slot.state.gradients, slot.facts.gradient_parts,
      plan.stages[slot.facts.stage].gradientsKept());
}

/// Gives every stage its memory for the whole run, by the first buffer of each
/// kind; empty where the plan has none. What is of no stage is for all.
void ExecutorLoader::findState() {
  const sluice_buffer none = {base, 0};
  sluice_state shared = {none, none, none, none, none, none};
  for (const auto &slot : executor.stages)
    slot->state = shared;
  for (Id id = static_cast<Id>(list.buffers.size()); id-- > 0;) {
    const Buffer &buffer = list.buffers[id];
    if (buffer.stage == kNone)
      *stateOf(shared, buffer.kind) = bufferAt(id);
    else if (const uint32_t slot = slotOfStage[buffer.stage]; slot != kNone)
      if (sluice_buffer *at =
              stateOf(executor.stages[slot]->state, buffer.kind))
        *at = bufferAt(id);
  }
  Bytes end = list.hostArenaBytes;
  for (const auto &slot : executor.stages) {
    end = hostEnd(end, slot->needs.host);
    slot->state.host = {hostBase + (end - slot->needs.host), slot->needs.host};
    slot->state.norms = shared.norms;
    if (slot->state.workspace.bytes == 0)
      slot->state.workspace = shared.workspace;
    takeParts(*slot);
  }
}

Status ExecutorLoader::need(Id stage, std::string_view what, Bytes needs,
                            Bytes has) const {
  if (has >= needs)
    return {};
  return Status::input(moduleOf(module, stage) + ": needs " +
                       std::to_string(needs) + " bytes for " +
                       std::string(what) + ", the plan gives " +
                       std::to_string(has));
}

Status ExecutorLoader::needAt(uint32_t op, std::string_view what, Bytes needs,
                              Bytes has) const {
  if (has >= needs)
    return {};
  return need(list.ops[op].stage,
              std::string(what) + " at " + describeOp(plan, rank, op), needs,
              has);
}

Status ExecutorLoader::bindStage(Executor::StageSlot &slot) {
  const Id stage = slot.facts.stage;
  const sluice_bytes &needs = slot.needs;
  const Bytes kept = slot.facts.gradients_partitioned
                         ? needs.gradients / slot.facts.gradient_parts
                         : needs.gradients;
  const std::pair<BufferKind, std::pair<Bytes, Bytes>> rows[] = {
      {BufferKind::Parameters, {needs.parameters, slot.state.parameters.bytes}},
      {BufferKind::Gradients, {kept, slot.state.gradients.bytes}},
      {BufferKind::Optimizer, {needs.optimizer, slot.state.optimizer.bytes}},
      {BufferKind::Workspace, {needs.workspace, slot.state.workspace.bytes}},
      {BufferKind::Norms, {needs.norms, slot.state.norms.bytes}}};
  for (const auto &[kind, bytes] : rows)
    if (Status s = need(stage, info(kind).text, bytes.first, bytes.second);
        !s.ok())
      return s;
  sluice_error error;
  if (!callModule(error, [&](sluice_error *e) {
        return module.bind(slot.instance, &slot.state, e);
      }))
    return Status::environment(moduleOf(module, stage) + ": " +
                               messageOf(error));
  return {};
}

Status ExecutorLoader::bindStages() {
  findState();
  for (const auto &slot : executor.stages)
    if (Status s = bindStage(*slot); !s.ok())
      return s;
  return {};
}

Status Executor::load(const Plan &plan, GlobalRank self,
                      const sluice_module &module, Backend &backend,
                      RankProgress &progress,
                      std::unique_ptr<Executor> &executor) {
  executor.reset(new Executor(module, backend, progress));
  return ExecutorLoader(plan, self, module, *executor).run(backend);
}

} // namespace sluice::runtime
