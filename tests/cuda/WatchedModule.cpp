//===- tests/cuda/WatchedModule.cpp ---------------------------------------===//
#include "tests/cuda/WatchedModule.h"

#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/cuda/double/Double.h"

#include <cmath>
#include <span>
#include <string>
#include <vector>

namespace sluice::tests {

static const Plan *watched = nullptr;

Watching::Watching(const Plan &plan) { watched = &plan; }
Watching::~Watching() { watched = nullptr; }

namespace {

struct Watched {
  sluice_stage facts;
  void *inner = nullptr;
  sluice_state state = {};
  bool splits = false; ///< its backward
};

Watched &self(void *instance) { return *static_cast<Watched *>(instance); }
const sluice_module &synthetic() { return *sluice_synthetic_module(); }

void reads(const sluice_buffer &buffer) {
  cudadouble::touches(buffer.data, buffer.bytes, false);
}
void writes(const sluice_buffer &buffer) {
  cudadouble::touches(buffer.data, buffer.bytes, true);
}
void readsAll(const sluice_buffer *buffers, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    reads(buffers[i]);
}
void writesAll(const sluice_buffer *buffers, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    writes(buffers[i]);
}

void spend(double seconds) { cudadouble::spend(std::llround(seconds * 1e12)); }

void name(const Watched &of, Op op, Id microbatch) {
  cudadouble::label(opName(op, of.facts.stage, microbatch));
}

bool splitsBackward(Id stage) {
  for (const RankPlan &rank : watched->ranks)
    for (const PlanOp &op : rank.ops)
      if (op.stage == stage && op.op == Op::BackwardInput)
        return true;
  return false;
}

int create(const sluice_stage *stage, void **instance, sluice_error *error) {
  auto *made = new Watched{*stage, nullptr, {}, splitsBackward(stage->stage)};
  *instance = made;
  sluice_stage timeless = *stage;
  timeless.forward_seconds = timeless.recompute_seconds = 0;
  timeless.backward_input_seconds = timeless.backward_weight_seconds = 0;
  return synthetic().create(&timeless, &made->inner, error);
}

int bytes(void *instance, sluice_bytes *needs, sluice_error *error) {
  return synthetic().bytes(self(instance).inner, needs, error);
}

int bind(void *instance, const sluice_state *state, sluice_error *error) {
  self(instance).state = *state;
  return synthetic().bind(self(instance).inner, state, error);
}

int beginStep(void *instance, uint64_t step, sluice_error *error) {
  return synthetic().begin_step(self(instance).inner, step, error);
}

int forward(void *instance, const sluice_call *call, sluice_error *error) {
  const Watched &of = self(instance);
  name(of, Op::Forward, call->microbatch);
  reads(of.state.parameters);
  writes(of.state.workspace);
  readsAll(call->inputs, call->input_count);
  writesAll(call->outputs, call->output_count);
  for (const sluice_buffer &each : {call->saved, call->kept, call->checkpoint})
    writes(each);
  spend(of.facts.forward_seconds);
  return synthetic().forward(of.inner, call, error);
}

int recompute(void *instance, const sluice_call *call, sluice_error *error) {
  const Watched &of = self(instance);
  name(of, Op::Recompute, call->microbatch);
  reads(of.state.parameters);
  writes(of.state.workspace);
  reads(call->checkpoint);
  writes(call->saved);
  writes(call->kept);
  spend(of.facts.recompute_seconds);
  return synthetic().recompute(of.inner, call, error);
}

int backwardInput(void *instance, const sluice_call *call,
                  sluice_error *error) {
  const Watched &of = self(instance);
  name(of, of.splits ? Op::BackwardInput : Op::Backward, call->microbatch);
  reads(of.state.parameters);
  writes(of.state.workspace);
  readsAll(call->output_gradients, call->output_count);
  writesAll(call->input_gradients, call->input_count);
  writes(call->saved);
  writes(call->kept);
  spend(of.facts.backward_input_seconds);
  return synthetic().backward_input(of.inner, call, error);
}

int backwardWeight(void *instance, const sluice_call *call,
                   sluice_error *error) {
  const Watched &of = self(instance);
  name(of, of.splits ? Op::BackwardWeight : Op::Backward, call->microbatch);
  writes(of.state.gradients);
  writes(of.state.workspace);
  reads(call->kept);
  spend(of.facts.backward_weight_seconds);
  return synthetic().backward_weight(of.inner, call, error);
}

int addGradients(void *instance, const sluice_buffer *other, void *stream,
                 sluice_error *error) {
  const Watched &of = self(instance);
  name(of, Op::AddGradients, kNone);
  reads(*other);
  writes(of.state.gradients);
  return synthetic().add_gradients(of.inner, other, stream, error);
}

int normGradients(void *instance, const sluice_buffer *tied, void *stream,
                  sluice_error *error) {
  const Watched &of = self(instance);
  name(of, Op::NormGradients, kNone);
  reads(of.state.gradients);
  writes(of.state.norms);
  return synthetic().norm_gradients(of.inner, tied, stream, error);
}

int optimizerStep(void *instance, uint64_t step, const sluice_buffer *tied,
                  void *stream, sluice_error *error) {
  const Watched &of = self(instance);
  name(of, Op::OptimizerStep, kNone);
  writes(of.state.parameters);
  writes(of.state.optimizer);
  reads(of.state.gradients);
  if (tied)
    reads(*tied);
  return synthetic().optimizer_step(of.inner, step, tied, stream, error);
}

int loss(void *instance, double *value, int *has, sluice_error *error) {
  return synthetic().loss(self(instance).inner, value, has, error);
}

uint32_t tensorCount(void *) { return 0; }

int tensor(void *instance, uint32_t index, sluice_tensor *out,
           sluice_error *error) {
  return synthetic().tensor(self(instance).inner, index, out, error);
}

void destroy(void *instance) {
  synthetic().destroy(self(instance).inner);
  delete &self(instance);
}

constexpr sluice_module kModule = {SLUICE_MODULE_VERSION,
                                   "watched",
                                   create,
                                   bytes,
                                   bind,
                                   beginStep,
                                   forward,
                                   recompute,
                                   backwardInput,
                                   backwardWeight,
                                   addGradients,
                                   normGradients,
                                   optimizerStep,
                                   loss,
                                   tensorCount,
                                   tensor,
                                   destroy};

} // namespace

const sluice_module *watchedModule() { return &kModule; }

} // namespace sluice::tests
