//===- runtime/Executor.cpp ----------------------------------------------===//
#include "runtime/Executor.h"

#include "runtime/Clock.h"
#include "runtime/ModuleCall.h"

namespace sluice::runtime {

/// Calls the module and adds the time to `cost`, if there is one.
template <typename Call>
static bool timedCall(CostSum *cost, Failure &failure, Call &&call) {
  sluice_error error;
  const int64_t start = cost ? nowNanoseconds() : 0;
  if (!callModule(error, call)) {
    failure.message = messageOf(error);
    return false;
  }
  if (cost) {
    cost->nanoseconds += nowNanoseconds() - start;
    ++cost->calls;
  }
  return true;
}

Executor::~Executor() {
  for (const std::unique_ptr<StageSlot> &stage : stages)
    if (stage->instance)
      destroyInstance(module, stage->instance);
}

//===----------------------------------------------------------------------===//
// Enqueueing a step
//===----------------------------------------------------------------------===//

Outcome Executor::step(uint64_t number, Failure &failure) {
  current = number;
  progress.beginStep(number);
  for (const std::unique_ptr<StageSlot> &stage : stages) {
    const bool ok = timedCall(nullptr, failure, [&](sluice_error *error) {
      return module.begin_step(stage->instance, number, error);
    });
    if (!ok) {
      failure.message = "begin_step of stage " +
                        std::to_string(stage->facts.stage) + ": " +
                        failure.message;
      return Outcome::Failed;
    }
  }
  if (backend.beginStep())
    for (uint32_t i = 0; i < steps.size();)
      i = enqueue(i);
  return backend.synchronize(failure);
}

/// Enqueues the operation at `position` with its whole group; returns the
/// position after them.
uint32_t Executor::enqueue(uint32_t position) {
  const uint32_t end = steps[position].groupEnd;
  const uint8_t stream = steps[position].stream;
  const std::span<const Join> joined = joinsOf(position);
  for (const Join &join : joined) {
    backend.record(join.stream, join.came);
    backend.wait(stream, join.came);
  }
  for (uint32_t w = steps[position].firstWait; w < steps[end - 1].lastWait; ++w)
    backend.wait(stream, waitEvents[w]);
  if (end == position + 1 || isCompute(steps[position].op)) {
    for (uint32_t i = position; i < end; ++i) // a pair: side by side
      enqueueOp(i);
  } else {
    backend.beginGroup(stream);
    for (uint32_t i = position; i < end; ++i)
      enqueueOp(i);
    backend.endGroup(stream);
  }
  for (uint32_t i = position; i < end; ++i)
    if (steps[i].event != kNone)
      backend.record(stream, steps[i].event);
  for (const Join &join : joined) {
    backend.record(stream, join.left);
    backend.wait(join.stream, join.left);
  }
  return end;
}

void Executor::enqueueOp(uint32_t position) {
  const Step &s = steps[position];
  switch (s.op) {
  case Op::Forward:
  case Op::Backward:
  case Op::BackwardInput:
  case Op::BackwardWeight:
  case Op::Recompute:
  case Op::AddGradients:
  case Op::NormGradients:
  case Op::OptimizerStep:
    backend.launch(s.stream, position);
    break;
  case Op::SendForward:
  case Op::SendBackward:
  case Op::SendGradients:
  case Op::SendTied:
    backend.send(s.stream, position, s.index, s.data, s.bytes);
    break;
  case Op::RecvForward:
  case Op::RecvBackward:
  case Op::RecvGradients:
  case Op::RecvTied:
    backend.receive(s.stream, position, s.index, s.data, s.bytes);
    break;
  case Op::AllReduceGradients:
  case Op::ReduceScatterGradients:
  case Op::ReduceScatterMicrobatch:
  case Op::AllGatherParameters:
  case Op::AllReduceNorms:
    backend.collective(s.stream, position, s.index, info(s.op).pattern,
                       info(s.op).element, s.data, s.bytes, s.part);
    break;
  case Op::Offload:
  case Op::Reload:
    backend.copy(s.stream, position,
                 std::span(pieces).subspan(s.index, s.pieces));
    break;
  }
}

//===----------------------------------------------------------------------===//
// Computing
//===----------------------------------------------------------------------===//

bool Executor::stepOptimizer(const Step &step, void *stream, CostSum *cost,
                             Failure &failure) {
  const sluice_buffer tied = {step.data, step.bytes};
  return timedCall(cost, failure, [&](sluice_error *error) {
    return module.optimizer_step(stages[step.stage]->instance, current,
                                 step.data ? &tied : nullptr, stream, error);
  });
}

bool Executor::compute(uint32_t op, void *stream, Failure &failure) {
  failure.op = op;
  const Step &s = steps[op];
  const StageSlot &stage = *stages[s.stage];
  StageCostSums *costs = costSums ? &costSums[s.stage] : nullptr;
  const auto cost = [costs](CostSum StageCostSums::*function) {
    return costs ? &(costs->*function) : nullptr;
  };
  const auto invoke = [&](CallFunction function, CostSum *sum) {
    sluice_call &call = calls[s.index];
    call.step = current;
    call.stream = stream;
    return timedCall(sum, failure, [&](sluice_error *error) {
      return function(stage.instance, &call, error);
    });
  };
  CostSum *const inputCost = cost(&StageCostSums::backwardInput);
  CostSum *const weightCost = cost(&StageCostSums::backwardWeight);
  switch (s.op) {
  case Op::Forward:
    return invoke(module.forward, cost(&StageCostSums::forward));
  case Op::Recompute:
    return invoke(module.recompute, cost(&StageCostSums::recompute));
  case Op::Backward:
    return invoke(module.backward_input, inputCost) &&
           invoke(module.backward_weight, weightCost);
  case Op::BackwardInput:
    return invoke(module.backward_input, inputCost);
  case Op::BackwardWeight:
    return invoke(module.backward_weight, weightCost);
  case Op::AddGradients:
    return timedCall(nullptr, failure, [&](sluice_error *error) {
      const sluice_buffer other = {s.data, s.bytes};
      return module.add_gradients(stage.instance, &other, stream, error);
    });
  case Op::NormGradients:
    return timedCall(nullptr, failure, [&](sluice_error *error) {
      const sluice_buffer tied = {s.data, s.bytes};
      return module.norm_gradients(stage.instance, s.data ? &tied : nullptr,
                                   stream, error);
    });
  case Op::OptimizerStep:
    return stepOptimizer(s, stream, cost(&StageCostSums::optimizerStep),
                         failure);
  case Op::SendForward:
  case Op::RecvForward:
  case Op::SendBackward:
  case Op::RecvBackward:
  case Op::SendGradients:
  case Op::RecvGradients:
  case Op::SendTied:
  case Op::RecvTied:
  case Op::AllReduceGradients:
  case Op::AllReduceNorms:
  case Op::ReduceScatterGradients:
  case Op::ReduceScatterMicrobatch:
  case Op::AllGatherParameters:
  case Op::Offload:
  case Op::Reload:
    break; // never launched
  }
  failure.message = "is not a computation";
  return false;
}

bool Executor::loss(Loss &result, Failure &failure) {
  for (const std::unique_ptr<StageSlot> &stage : stages) {
    double value = 0;
    int has = 0;
    const bool ok = timedCall(nullptr, failure, [&](sluice_error *error) {
      return module.loss(stage->instance, &value, &has, error);
    });
    if (!ok) {
      failure.op = kNone;
      failure.message = "loss of stage " + std::to_string(stage->facts.stage) +
                        ": " + failure.message;
      return false;
    }
    if (has)
      result = {value, true};
  }
  return true;
}

} // namespace sluice::runtime
