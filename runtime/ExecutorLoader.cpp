//===- runtime/ExecutorLoader.cpp - From a plan to flat records ----------===//
#include "runtime/Executor.h"
#include "runtime/ModuleCall.h"
#include "runtime/Standing.h"

#include <algorithm>

namespace sluice::runtime {

/// Builds one executor. Every function returns at the first fault.
class ExecutorLoader {
public:
  ExecutorLoader(const Plan &wholePlan, Id ownRank,
                 const sluice_module &stageModule, Executor &target)
      : plan(wholePlan), rank(ownRank), list(wholePlan.ranks[ownRank]),
        module(stageModule), executor(target) {}

  Status run(Backend &device);

private:
  Status makeStages();
  Status makeStage(Id stage);
  void fillFacts(Executor::StageSlot &slot, Id stage) const;
  Status checkLists() const;
  Status checkGroup(uint32_t first, uint32_t end) const;
  RankNeeds countNeeds() const;
  void makeSteps();
  Status bindStages();
  Status bindStage(Executor::StageSlot &slot);
  Status prepareOps();
  Status prepareMessage(uint32_t op);
  Status prepareCompute(uint32_t op);
  Status prepareForward(uint32_t op, sluice_call &call);
  Status prepareBackward(uint32_t op, sluice_call &call);
  Status prepareKept(uint32_t op, sluice_call &call);

  uint32_t groupEnd(uint32_t first) const;
  sluice_buffer bufferAt(Id id) const;
  sluice_buffer stateBuffer(BufferKind kind, Id stage) const;
  Status need(Id stage, std::string_view what, Bytes needs, Bytes has) const;
  Status needAt(uint32_t op, std::string_view what, Bytes needs,
                Bytes has) const;
  Status single(uint32_t op, BufferKind kind, bool write,
                sluice_buffer &buffer) const;
  Status edgeBuffers(uint32_t op, BufferKind kind, bool write, bool inputs,
                     Bytes needs, const sluice_buffer *&array);
  std::string opText(uint32_t op) const {
    return "rank " + std::to_string(rank) + ", operation " +
           describeOp(plan, rank, op);
  }

  const Plan &plan;
  const Id rank;
  const RankPlan &list;
  const sluice_module &module;
  Executor &executor;
  std::vector<uint32_t> slotOfStage; ///< kNone: not on this rank
  std::byte *base = nullptr;
};

static bool writes(Operand use) {
  return static_cast<Access>(use.access) != Access::Read;
}

Status ExecutorLoader::run(Backend &device) {
  if (Status s = checkLists(); !s.ok())
    return s;
  if (Status s = makeStages(); !s.ok())
    return s;
  makeSteps();
  if (Status s = device.prepare(countNeeds()); !s.ok())
    return s;
  base = static_cast<std::byte *>(device.arena());
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
    if (op.op == Op::Recompute)
      return Status::input(opText(i) +
                           ": the interface of stage modules cannot recompute");
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
    if (list.ops[i].stream != list.ops[first].stream)
      return Status::input(opText(i) + ": a group on two streams");
    if (!isMessage(list.ops[i].op))
      return Status::input(opText(i) + ": a group may hold messages only");
  }
  return {};
}

RankNeeds ExecutorLoader::countNeeds() const {
  RankNeeds needs;
  needs.arenaBytes = list.arenaBytes;
  needs.commands.resize(list.streams.size());
  for (const Executor::Step &step : executor.steps) {
    needs.commands[step.stream] +=
        1 + (step.lastWait - step.firstWait) + (step.event != kNone);
    needs.events += step.event != kNone;
  }
  for (uint32_t i = 0; i < list.ops.size(); i = groupEnd(i))
    needs.commands[list.ops[i].stream] += groupEnd(i) > i + 1;
  needs.compute = &executor;
  needs.progress = &executor.progress;
  return needs;
}

/// Everything of the steps that needs no memory.
void ExecutorLoader::makeSteps() {
  std::vector<Executor::Step> &steps = executor.steps;
  steps.resize(list.ops.size());
  uint32_t events = 0;
  for (const uint32_t wait : list.waits)
    if (steps[wait].event == kNone)
      steps[wait].event = events++;
  executor.waitEvents.reserve(list.waits.size());
  for (uint32_t i = 0; i < steps.size(); ++i) {
    Executor::Step &step = steps[i];
    step.op = list.ops[i].op;
    step.stream = list.ops[i].stream;
    step.groupEnd = groupEnd(i);
    step.stage = slotOfStage[list.ops[i].stage];
    step.firstWait = static_cast<uint32_t>(executor.waitEvents.size());
    for (const uint32_t wait : list.waitsOf(i))
      executor.waitEvents.push_back(steps[wait].event);
    step.lastWait = static_cast<uint32_t>(executor.waitEvents.size());
  }
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

Status ExecutorLoader::makeStages() {
  slotOfStage.assign(plan.stages.size(), kNone);
  for (const PlanOp &op : list.ops) {
    if (isMessage(op.op) || slotOfStage[op.stage] != kNone)
      continue;
    slotOfStage[op.stage] = static_cast<uint32_t>(executor.stages.size());
    if (Status s = makeStage(op.stage); !s.ok())
      return s;
  }
  return {};
}

void ExecutorLoader::fillFacts(Executor::StageSlot &slot, Id stage) const {
  const Stage &planStage = plan.stages[stage];
  for (const StageEdge &edge : plan.edges) {
    if (edge.to == stage)
      slot.inputs.push_back(edge.from);
    if (edge.from == stage)
      slot.outputs.push_back(edge.to);
  }
  slot.description = planStage.description;
  for (const auto &[key, value] : plan.run)
    slot.run.append(key).append("=").append(value).append("\n");
  sluice_stage &facts = slot.facts;
  facts.stage = stage;
  facts.stages = static_cast<uint32_t>(plan.stages.size());
  facts.rank = rank;
  facts.ranks = static_cast<uint32_t>(plan.ranks.size());
  facts.microbatches = plan.microbatches;
  facts.input_stages = slot.inputs.data();
  facts.output_stages = slot.outputs.data();
  facts.input_count = static_cast<uint32_t>(slot.inputs.size());
  facts.output_count = static_cast<uint32_t>(slot.outputs.size());
  facts.description = slot.description.c_str();
  facts.run = slot.run.c_str();
  if (plan.timeUnit == TimeUnit::Unit)
    return;
  const double perTick = 1.0 / static_cast<double>(ticksPer(plan.timeUnit));
  facts.forward_seconds = perTick * static_cast<double>(planStage.forward);
  facts.backward_input_seconds =
      perTick * static_cast<double>(planStage.backwardInput);
  facts.backward_weight_seconds =
      perTick * static_cast<double>(planStage.backwardWeight);
}

static std::string moduleOf(const sluice_module &module, Id stage) {
  return "module " + escaped(module.name) + ", stage " + std::to_string(stage);
}

Status ExecutorLoader::makeStage(Id stage) {
  executor.stages.push_back(std::make_unique<Executor::StageSlot>());
  Executor::StageSlot &slot = *executor.stages.back();
  fillFacts(slot, stage);
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

/// Memory of the stage for the whole run; empty where the plan has none.
sluice_buffer ExecutorLoader::stateBuffer(BufferKind kind, Id stage) const {
  for (Id id = 0; id < list.buffers.size(); ++id)
    if (list.buffers[id].kind == kind && list.buffers[id].stage == stage)
      return bufferAt(id);
  return {base, 0};
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
  slot.state = {stateBuffer(BufferKind::Parameters, stage),
                stateBuffer(BufferKind::Gradients, stage),
                stateBuffer(BufferKind::Optimizer, stage),
                stateBuffer(BufferKind::Workspace, kNone)};
  const sluice_bytes &needs = slot.needs;
  const std::pair<BufferKind, std::pair<Bytes, Bytes>> rows[] = {
      {BufferKind::Parameters, {needs.parameters, slot.state.parameters.bytes}},
      {BufferKind::Gradients, {needs.gradients, slot.state.gradients.bytes}},
      {BufferKind::Optimizer, {needs.optimizer, slot.state.optimizer.bytes}},
      {BufferKind::Workspace, {needs.workspace, slot.state.workspace.bytes}}};
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
  for (const auto &slot : executor.stages)
    if (Status s = bindStage(*slot); !s.ok())
      return s;
  return {};
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

sluice_buffer ExecutorLoader::bufferAt(Id id) const {
  const Buffer &buffer = list.buffers[id];
  return {base + buffer.offset, buffer.bytes};
}

/// The operand of `kind` that `op` writes (or only reads); empty if it has
/// none.
Status ExecutorLoader::single(uint32_t op, BufferKind kind, bool write,
                              sluice_buffer &buffer) const {
  buffer = {base, 0};
  bool found = false;
  for (const Operand use : list.operandsOf(op)) {
    if (list.buffers[use.buffer].kind != kind || (write && !writes(use)))
      continue;
    if (found)
      return Status::input(opText(op) + ": has two operands of kind " +
                           std::string(info(kind).text));
    found = true;
    buffer = bufferAt(use.buffer);
  }
  return {};
}

/// Fills `array`, one entry an edge into (or out of) the stage, in order of
/// the other stage, with the operands of `kind`. A gradient flows where both
/// stages have a backward; elsewhere the entry is empty.
Status ExecutorLoader::edgeBuffers(uint32_t op, BufferKind kind, bool write,
                                   bool inputs, Bytes needs,
                                   const sluice_buffer *&array) {
  std::vector<sluice_buffer> &out = executor.callBuffers;
  const size_t first = out.size();
  const Id stage = list.ops[op].stage;
  const Executor::StageSlot &slot = *executor.stages[slotOfStage[stage]];
  const std::span<const Operand> operands = list.operandsOf(op);
  size_t next = 0;
  size_t flows = 0;
  size_t found = 0;
  const auto advance = [&] {
    while (next < operands.size() &&
           (list.buffers[operands[next].buffer].kind != kind ||
            writes(operands[next]) != write))
      ++next;
    return next < operands.size();
  };
  for (const Id other : inputs ? slot.inputs : slot.outputs) {
    const bool flow =
        kind == BufferKind::Activation ||
        (plan.stages[stage].backward && plan.stages[other].backward);
    flows += flow;
    out.push_back({base, 0});
    if (!flow || !advance())
      continue;
    ++found;
    out.back() = bufferAt(operands[next++].buffer);
    if (Status s = needAt(op, info(kind).text, needs, out.back().bytes);
        !s.ok())
      return s;
  }
  while (advance()) {
    ++next;
    ++found;
  }
  if (found != flows)
    return Status::input(opText(op) + ": " + (write ? "writes " : "reads ") +
                         std::to_string(found) + " buffers of kind " +
                         std::string(info(kind).text) + ", its stage has " +
                         std::to_string(flows));
  array = out.data() + first;
  return {};
}

Status ExecutorLoader::prepareForward(uint32_t op, sluice_call &call) {
  const sluice_bytes &needs = executor.stages[executor.steps[op].stage]->needs;
  if (Status s = edgeBuffers(op, BufferKind::Activation, false, true,
                             needs.input, call.inputs);
      !s.ok())
    return s;
  if (Status s = edgeBuffers(op, BufferKind::Activation, true, false,
                             needs.output, call.outputs);
      !s.ok())
    return s;
  if (Status s = single(op, BufferKind::Saved, true, call.saved); !s.ok())
    return s;
  if (Status s = needAt(op, info(BufferKind::Saved).text, needs.saved,
                        call.saved.bytes);
      !s.ok())
    return s;
  return prepareKept(op, call);
}

Status ExecutorLoader::prepareBackward(uint32_t op, sluice_call &call) {
  const sluice_bytes &needs = executor.stages[executor.steps[op].stage]->needs;
  if (Status s = edgeBuffers(op, BufferKind::Gradient, false, false,
                             needs.output, call.output_gradients);
      !s.ok())
    return s;
  if (Status s = edgeBuffers(op, BufferKind::Gradient, true, true, needs.input,
                             call.input_gradients);
      !s.ok())
    return s;
  if (Status s = single(op, BufferKind::Saved, false, call.saved); !s.ok())
    return s;
  if (Status s = needAt(op, info(BufferKind::Saved).text, needs.saved,
                        call.saved.bytes);
      !s.ok())
    return s;
  return prepareKept(op, call);
}

Status ExecutorLoader::prepareKept(uint32_t op, sluice_call &call) {
  const sluice_bytes &needs = executor.stages[executor.steps[op].stage]->needs;
  if (Status s = single(op, BufferKind::Kept, false, call.kept); !s.ok())
    return s;
  return needAt(op, info(BufferKind::Kept).text, needs.kept, call.kept.bytes);
}

Status ExecutorLoader::prepareCompute(uint32_t op) {
  Executor::Step &step = executor.steps[op];
  const sluice_stage &facts = executor.stages[step.stage]->facts;
  step.index = static_cast<uint32_t>(executor.calls.size());
  sluice_call call = {};
  call.microbatch = list.ops[op].microbatch;
  call.input_count = facts.input_count;
  call.output_count = facts.output_count;
  call.saved = call.kept = {base, 0};
  Status status;
  if (step.op == Op::Forward)
    status = prepareForward(op, call);
  else if (step.op == Op::BackwardWeight)
    status = prepareKept(op, call);
  else
    status = prepareBackward(op, call);
  executor.calls.push_back(call);
  return status;
}

Status ExecutorLoader::prepareMessage(uint32_t op) {
  const std::span<const Operand> operands = list.operandsOf(op);
  if (operands.size() != 1)
    return Status::input(opText(op) + ": has " +
                         std::to_string(operands.size()) +
                         " operands, a message has one");
  const sluice_buffer buffer = bufferAt(operands[0].buffer);
  executor.steps[op].index = list.ops[op].channel;
  executor.steps[op].data = buffer.data;
  executor.steps[op].bytes = buffer.bytes;
  return {};
}

Status ExecutorLoader::prepareOps() {
  size_t buffers = 0;
  size_t calls = 0;
  for (const PlanOp &op : list.ops) {
    if (!isCompute(op.op))
      continue;
    const sluice_stage &facts = executor.stages[slotOfStage[op.stage]]->facts;
    buffers += facts.input_count + facts.output_count;
    ++calls;
  }
  executor.callBuffers.reserve(buffers); // calls hold pointers into it
  executor.calls.reserve(calls);
  for (uint32_t i = 0; i < list.ops.size(); ++i) {
    Status status;
    if (isMessage(list.ops[i].op))
      status = prepareMessage(i);
    else if (isCompute(list.ops[i].op))
      status = prepareCompute(i);
    if (!status.ok())
      return status;
  }
  return {};
}

Status Executor::load(const Plan &plan, Id rank, const sluice_module &module,
                      Backend &backend, RankProgress &progress,
                      std::unique_ptr<Executor> &executor) {
  executor.reset(new Executor(module, backend, progress));
  return ExecutorLoader(plan, rank, module, *executor).run(backend);
}

} // namespace sluice::runtime
