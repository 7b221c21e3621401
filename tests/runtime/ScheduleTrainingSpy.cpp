//===- tests/runtime/ScheduleTrainingSpy.cpp - A module around another ---===//
#include "tests/runtime/ScheduleTraining.h"

#include "compiler/passes/PassManager.h"
#include "compiler/spec/Parser.h"

#include "tests/Catch.h"

#include <utility>

namespace sluice::tests {

namespace {

const sluice_module *inner = nullptr;
SpyHooks hooks;

struct Spy {
  void *instance = nullptr;
  Id rank = 0, stage = 0;
  uint64_t step = 0;
  sluice_state state = {};
};

Spy &self(void *instance) { return *static_cast<Spy *>(instance); }

/// Calls `body` between the hooks.
template <typename Body>
int spied(void *instance, SpyMoment::Function function, const sluice_call *call,
          Body body) {
  const Spy &spy = self(instance);
  const SpyMoment moment{function, spy.rank, spy.stage,    spy.step,
                         call,     inner,    spy.instance, &spy.state};
  if (hooks.before)
    hooks.before(moment);
  if (int code = body(spy.instance))
    return code;
  if (hooks.after)
    hooks.after(moment);
  return 0;
}

int create(const sluice_stage *stage, void **instance, sluice_error *error) {
  void *made = nullptr;
  if (int code = inner->create(stage, &made, error))
    return code;
  *instance = new Spy{made, stage->rank, stage->stage};
  return 0;
}

int bytes(void *instance, sluice_bytes *needs, sluice_error *error) {
  return inner->bytes(self(instance).instance, needs, error);
}

int bind(void *instance, const sluice_state *state, sluice_error *error) {
  self(instance).state = *state;
  return inner->bind(self(instance).instance, state, error);
}

int beginStep(void *instance, uint64_t step, sluice_error *error) {
  self(instance).step = step;
  return inner->begin_step(self(instance).instance, step, error);
}

int forward(void *instance, const sluice_call *call, sluice_error *error) {
  return spied(instance, SpyMoment::Forward, call,
               [&](void *stage) { return inner->forward(stage, call, error); });
}

int recompute(void *instance, const sluice_call *call, sluice_error *error) {
  return inner->recompute(self(instance).instance, call, error);
}

int backwardInput(void *instance, const sluice_call *call,
                  sluice_error *error) {
  return spied(instance, SpyMoment::BackwardInput, call, [&](void *stage) {
    return inner->backward_input(stage, call, error);
  });
}

int backwardWeight(void *instance, const sluice_call *call,
                   sluice_error *error) {
  return spied(instance, SpyMoment::BackwardWeight, call, [&](void *stage) {
    return inner->backward_weight(stage, call, error);
  });
}

int addGradients(void *instance, const sluice_buffer *other, void *stream,
                 sluice_error *error) {
  return spied(instance, SpyMoment::AddGradients, nullptr, [&](void *stage) {
    return inner->add_gradients(stage, other, stream, error);
  });
}

int normGradients(void *instance, const sluice_buffer *tied, void *stream,
                  sluice_error *error) {
  return inner->norm_gradients(self(instance).instance, tied, stream, error);
}

int optimizerStep(void *instance, uint64_t step, const sluice_buffer *tied,
                  void *stream, sluice_error *error) {
  return spied(instance, SpyMoment::OptimizerStep, nullptr, [&](void *stage) {
    return inner->optimizer_step(stage, step, tied, stream, error);
  });
}

int loss(void *instance, double *value, int *has, sluice_error *error) {
  return inner->loss(self(instance).instance, value, has, error);
}

uint32_t tensorCount(void *instance) {
  return inner->tensor_count(self(instance).instance);
}

int tensor(void *instance, uint32_t index, sluice_tensor *out,
           sluice_error *error) {
  return inner->tensor(self(instance).instance, index, out, error);
}

void destroy(void *instance) {
  inner->destroy(self(instance).instance);
  delete &self(instance);
}

constexpr sluice_module kSpy = {SLUICE_MODULE_VERSION,
                                "spy",
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

Plan compileSpec(const std::string &spec) {
  INFO(spec);
  Diagnostics diagnostics;
  Compilation compilation(diagnostics);
  compilation.spec = parseSpec(spec, "job.yaml", {}, diagnostics);
  const bool ok = compilation.spec && runPipeline(fullPipeline(), compilation);
  INFO(diagnostics.render());
  REQUIRE(ok);
  return std::move(*compilation.plan);
}

runtime::JobResult runSpied(const Plan &plan, const sluice_module *module,
                            uint64_t steps, SpyHooks given) {
  inner = module;
  hooks = std::move(given);
  runtime::JobOptions options;
  options.module = &kSpy;
  options.steps = steps;
  options.timeoutSeconds = 30;
  runtime::JobResult result;
  const Status status = runtime::runJob(plan, options, result);
  hooks = {};
  INFO(status.message());
  REQUIRE(status.ok());
  return result;
}

} // namespace sluice::tests
