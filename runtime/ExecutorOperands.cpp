//===- runtime/ExecutorOperands.cpp - What an operation works on ---------===//
#include "runtime/ExecutorLoader.h"

#include <algorithm>

namespace sluice::runtime {

static bool writes(Operand use) {
  return static_cast<Access>(use.access) != Access::Read;
}

sluice_buffer ExecutorLoader::bufferAt(Id id) const {
  const Buffer &buffer = list.buffers[id];
  return {(isOnHost(buffer.kind) ? hostBase : base) + buffer.offset,
          buffer.bytes};
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
  const Stage &stage = plan.stages[list.ops[op].stage];
  if (stage.hasCheckpoint())
    return prepareCheckpoint(op, call);
  if (stage.savedBy() == Op::Forward)
    if (Status s = prepareSaved(op, call); !s.ok())
      return s;
  return prepareKept(op, call);
}

Status ExecutorLoader::prepareRecompute(uint32_t op, sluice_call &call) {
  if (plan.stages[list.ops[op].stage].hasCheckpoint())
    if (Status s = prepareCheckpoint(op, call); !s.ok())
      return s;
  if (Status s = prepareSaved(op, call); !s.ok())
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
  if (Status s = prepareSaved(op, call); !s.ok())
    return s;
  if (Status s = prepareGradients(op, call); !s.ok())
    return s;
  return prepareKept(op, call);
}

Status ExecutorLoader::prepareWeight(uint32_t op, sluice_call &call) {
  if (Status s = prepareGradients(op, call); !s.ok())
    return s;
  return prepareKept(op, call);
}

/// Those of one microbatch, where the stage keeps a part alone.
Status ExecutorLoader::prepareGradients(uint32_t op, sluice_call &call) {
  const Stage &stage = plan.stages[list.ops[op].stage];
  if (!stage.gradientsPartitioned)
    return {};
  const sluice_bytes &needs = executor.stages[executor.steps[op].stage]->needs;
  if (Status s = single(op, BufferKind::WholeGradients, false, call.gradients);
      !s.ok())
    return s;
  // Parts do not depend on how large a buffer is.
  call.gradients.bytes = std::min(call.gradients.bytes, stage.bytes.gradients);
  return needAt(op, info(BufferKind::WholeGradients).text, needs.gradients,
                call.gradients.bytes);
}

Status ExecutorLoader::prepareSaved(uint32_t op, sluice_call &call) {
  const sluice_bytes &needs = executor.stages[executor.steps[op].stage]->needs;
  if (Status s = single(op, BufferKind::Saved, false, call.saved); !s.ok())
    return s;
  return needAt(op, info(BufferKind::Saved).text, needs.saved,
                call.saved.bytes);
}

Status ExecutorLoader::prepareCheckpoint(uint32_t op, sluice_call &call) {
  const sluice_bytes &needs = executor.stages[executor.steps[op].stage]->needs;
  if (Status s = single(op, BufferKind::Checkpoint, false, call.checkpoint);
      !s.ok())
    return s;
  return needAt(op, info(BufferKind::Checkpoint).text, needs.checkpoint,
                call.checkpoint.bytes);
}

Status ExecutorLoader::prepareKept(uint32_t op, sluice_call &call) {
  const sluice_bytes &needs = executor.stages[executor.steps[op].stage]->needs;
  if (Status s = single(op, BufferKind::Kept, false, call.kept); !s.ok())
    return s;
  return needAt(op, info(BufferKind::Kept).text, needs.kept, call.kept.bytes);
}

Status ExecutorLoader::prepareCompute(uint32_t op, Prepare prepare) {
  Executor::Step &step = executor.steps[op];
  const sluice_stage &facts = executor.stages[step.stage]->facts;
  step.index = static_cast<uint32_t>(executor.calls.size());
  sluice_call call = {};
  call.microbatch = replica * plan.microbatches + list.ops[op].microbatch;
  call.input_count = facts.input_count;
  call.output_count = facts.output_count;
  call.saved = call.kept = call.checkpoint = call.gradients = {base, 0};
  Status status = (this->*prepare)(op, call);
  executor.calls.push_back(call);
  return status;
}

/// A message or a collective.
Status ExecutorLoader::prepareCommunication(uint32_t op) {
  const std::span<const Operand> operands = list.operandsOf(op);
  const size_t wanted = list.ops[op].op == Op::ReduceScatterMicrobatch ? 2 : 1;
  if (operands.size() != wanted)
    return Status::input(opText(op) + ": has " +
                         std::to_string(operands.size()) + " operands, not " +
                         std::to_string(wanted));
  const sluice_buffer buffer = bufferAt(operands.back().buffer);
  if (wanted == 2) // the part that the rank keeps stands first
    executor.steps[op].part = bufferAt(operands[0].buffer).data;
  const Id path = list.ops[op].channel;
  executor.steps[op].index = isMessage(list.ops[op].op)
                                 ? channelOf(plan, replica, path)
                                 : collectives[path];
  executor.steps[op].data = buffer.data;
  executor.steps[op].bytes = messageBytes(plan, list, list.ops[op]);
  return {};
}

Status ExecutorLoader::prepareAdd(uint32_t op) {
  const sluice_bytes &needs = executor.stages[executor.steps[op].stage]->needs;
  sluice_buffer other;
  if (Status s = single(op, BufferKind::CopyGradients, false, other); !s.ok())
    return s;
  executor.steps[op].data = other.data;
  executor.steps[op].bytes = other.bytes;
  return needAt(op, info(BufferKind::CopyGradients).text, needs.gradients,
                other.bytes);
}

/// Between the buffers on the device, one behind the other, and that of the
/// host.
Status ExecutorLoader::prepareCopy(uint32_t op) {
  sluice_buffer host;
  if (Status s = single(op, BufferKind::Offloaded, false, host); !s.ok())
    return s;
  const bool out = list.ops[op].op == Op::Offload;
  executor.steps[op].index = static_cast<uint32_t>(executor.pieces.size());
  Bytes done = 0;
  for (const Operand use : list.operandsOf(op)) {
    if (isOnHost(list.buffers[use.buffer].kind))
      continue;
    const sluice_buffer device = bufferAt(use.buffer);
    if (device.bytes > host.bytes - done)
      return Status::input(opText(op) + ": moves more than the " +
                           std::to_string(host.bytes) +
                           " bytes of host memory that it has");
    std::byte *const there = static_cast<std::byte *>(host.data) + done;
    executor.pieces.push_back(
        out ? CopyPiece{there, device.data, device.bytes}
            : CopyPiece{device.data, there, device.bytes});
    ++executor.steps[op].pieces;
    done += device.bytes;
  }
  return {};
}

/// Of a step or of norms: the gradients of the stage that its own is tied to,
/// received, or those that its rank has summed.
Status ExecutorLoader::prepareTied(uint32_t op) {
  const Stage &stage = plan.stages[list.ops[op].stage];
  if (stage.tiedTo == kNone)
    return {};
  for (const Operand use : list.operandsOf(op)) {
    const Buffer &buffer = list.buffers[use.buffer];
    if (buffer.kind == BufferKind::TiedGradients ||
        (buffer.kind == BufferKind::Gradients && buffer.stage == stage.tiedTo))
      executor.steps[op].data = bufferAt(use.buffer).data;
  }
  executor.steps[op].bytes = stage.bytes.tied;
  return executor.steps[op].data
             ? Status()
             : Status::input(opText(op) + ": reads no gradients of stage " +
                             std::to_string(stage.tiedTo) +
                             ", which its stage is tied to");
}

Status ExecutorLoader::prepareOp(uint32_t op) {
  switch (list.ops[op].op) {
  case Op::Forward:
    return prepareCompute(op, &ExecutorLoader::prepareForward);
  case Op::Recompute:
    return prepareCompute(op, &ExecutorLoader::prepareRecompute);
  case Op::Backward:
  case Op::BackwardInput:
    return prepareCompute(op, &ExecutorLoader::prepareBackward);
  case Op::BackwardWeight:
    return prepareCompute(op, &ExecutorLoader::prepareWeight);
  case Op::SendForward:
  case Op::RecvForward:
  case Op::SendBackward:
  case Op::RecvBackward:
  case Op::SendGradients:
  case Op::RecvGradients:
  case Op::SendTied:
  case Op::RecvTied:
  case Op::AllReduceGradients:
  case Op::ReduceScatterGradients:
  case Op::ReduceScatterMicrobatch:
  case Op::AllGatherParameters:
  case Op::AllReduceNorms:
    return prepareCommunication(op);
  case Op::Offload:
  case Op::Reload:
    return prepareCopy(op);
  case Op::AddGradients:
    return prepareAdd(op);
  case Op::NormGradients:
  case Op::OptimizerStep:
    return prepareTied(op);
  }
  return {}; // not reached: the switch is complete
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
  for (uint32_t i = 0; i < list.ops.size(); ++i)
    if (Status s = prepareOp(i); !s.ok())
      return s;
  return {};
}

} // namespace sluice::runtime
