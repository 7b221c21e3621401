//===- tests/runtime/HookedModule.cpp ------------------------------------===//
#include "tests/runtime/HookedModule.h"

#include "runtime/modules/synthetic/Synthetic.h"

#include <atomic>
#include <cstdio>
#include <vector>

namespace sluice::tests {

static ModuleHooks current;
static std::atomic<int> instances{0};

WithHooks::WithHooks(ModuleHooks hooks) { current = std::move(hooks); }
WithHooks::~WithHooks() { current = {}; }
int hookedInstances() { return instances.load(); }

int failWith(sluice_error *error, const std::string &text) {
  std::snprintf(error->message, sizeof(error->message), "%s", text.c_str());
  return 1;
}

namespace {

struct Hooked {
  void *inner = nullptr;
  Id stage = 0;
  bool last = false;
  uint64_t step = 0;
  sluice_state state = {};
  std::vector<std::string> names;
};

Hooked &self(void *instance) { return *static_cast<Hooked *>(instance); }
const sluice_module &synthetic() { return *sluice_synthetic_module(); }

int before(std::string_view function, Id stage, const sluice_call *call,
           sluice_error *error) {
  return current.before ? current.before(function, stage, call, error) : 0;
}

int create(const sluice_stage *stage, void **instance, sluice_error *error) {
  if (int code = before("create", stage->stage, nullptr, error))
    return code;
  auto *hooked = new Hooked;
  hooked->stage = stage->stage;
  hooked->last = stage->output_count == 0;
  for (const char *part : {"second", "first"})
    hooked->names.push_back(
        "stage." + std::to_string(current.sameTensors ? 0 : hooked->stage) +
        "." + part);
  ++instances;
  *instance = hooked;
  return synthetic().create(stage, &hooked->inner, error);
}

int bytes(void *, sluice_bytes *needs, sluice_error *) {
  *needs = current.needs;
  return 0;
}

int bind(void *instance, const sluice_state *state, sluice_error *error) {
  if (int code = before("bind", self(instance).stage, nullptr, error))
    return code;
  self(instance).state = *state;
  return synthetic().bind(self(instance).inner, state, error);
}

int beginStep(void *instance, uint64_t step, sluice_error *error) {
  self(instance).step = step;
  if (int code = before("begin_step", self(instance).stage, nullptr, error))
    return code;
  return synthetic().begin_step(self(instance).inner, step, error);
}

int forward(void *instance, const sluice_call *call, sluice_error *error) {
  if (int code = before("forward", self(instance).stage, call, error))
    return code;
  return synthetic().forward(self(instance).inner, call, error);
}

int recompute(void *instance, const sluice_call *call, sluice_error *error) {
  if (int code = before("recompute", self(instance).stage, call, error))
    return code;
  return synthetic().recompute(self(instance).inner, call, error);
}

int backwardInput(void *instance, const sluice_call *call,
                  sluice_error *error) {
  if (int code = before("backward_input", self(instance).stage, call, error))
    return code;
  return synthetic().backward_input(self(instance).inner, call, error);
}

int backwardWeight(void *instance, const sluice_call *call,
                   sluice_error *error) {
  if (int code = before("backward_weight", self(instance).stage, call, error))
    return code;
  return synthetic().backward_weight(self(instance).inner, call, error);
}

int addGradients(void *instance, const sluice_buffer *other, void *stream,
                 sluice_error *error) {
  if (int code = before("add_gradients", self(instance).stage, nullptr, error))
    return code;
  return synthetic().add_gradients(self(instance).inner, other, stream, error);
}

int normGradients(void *instance, const sluice_buffer *tied, void *stream,
                  sluice_error *error) {
  return synthetic().norm_gradients(self(instance).inner, tied, stream, error);
}

int optimizerStep(void *instance, uint64_t step, const sluice_buffer *tied,
                  void *stream, sluice_error *error) {
  if (int code = before("optimizer_step", self(instance).stage, nullptr, error))
    return code;
  return synthetic().optimizer_step(self(instance).inner, step, tied, stream,
                                    error);
}

int loss(void *instance, double *value, int *has, sluice_error *error) {
  *has = current.loss && self(instance).last;
  *value = static_cast<double>(self(instance).step);
  return before("loss", self(instance).stage, nullptr, error);
}

uint32_t tensorCount(void *) { return current.tensors ? 2 : 0; }

int tensor(void *instance, uint32_t index, sluice_tensor *out, sluice_error *) {
  const Hooked &hooked = self(instance);
  const sluice_buffer &parameters = hooked.state.parameters;
  const uint64_t half = parameters.bytes / 2;
  out->name = hooked.names[index].c_str();
  out->position = 2 * (current.sameTensors ? 0 : hooked.stage) + 1 - index;
  out->data = static_cast<char *>(parameters.data) + (index == 0 ? half : 0);
  out->bytes = half;
  return 0;
}

void destroy(void *instance) {
  synthetic().destroy(self(instance).inner);
  delete &self(instance);
  --instances;
}

constexpr sluice_module kModule = {SLUICE_MODULE_VERSION,
                                   "hooked",
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

const sluice_module *hookedModule() { return &kModule; }

} // namespace sluice::tests
