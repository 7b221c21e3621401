//===- tests/cli/FaultModule.cpp - A stage module with a fault to order ---===//
//
// Needs no memory and computes nothing, a millisecond each call. Where the
// variable SLUICE_TEST_FAULT says "ACTION STAGE CALL MICROBATCH STEP", such as
// "kill 2 F 3 1", the process ends (kill), stops (stop), fails or hangs there.
// CALL is create, F, B or step; the last has microbatch 0.
//
//===----------------------------------------------------------------------===//
#include "runtime/sluice.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

namespace {
struct Stage {
  uint32_t number;
  uint64_t step = 0;
};

int at(void *instance, const char *call, uint32_t microbatch,
       sluice_error *error) {
  const auto &stage = *static_cast<const Stage *>(instance);
  ::usleep(1000);
  const char *ordered = std::getenv("SLUICE_TEST_FAULT");
  const std::string fault = ordered ? ordered : "";
  const std::string here = " " + std::to_string(stage.number) + " " + call +
                           " " + std::to_string(microbatch) + " " +
                           std::to_string(stage.step);
  if (fault.size() < here.size() || !fault.ends_with(here))
    return 0;
  const std::string action = fault.substr(0, fault.size() - here.size());
  if (action == "kill")
    ::raise(SIGKILL);
  if (action == "stop")
    ::raise(SIGSTOP);
  while (action == "hang")
    ::pause();
  std::snprintf(error->message, sizeof error->message, "out of luck");
  return action == "fail" ? 1 : 0;
}

int create(const sluice_stage *stage, void **instance, sluice_error *error) {
  auto *made = new Stage{stage->stage};
  *instance = made;
  return at(made, "create", 0, error);
}
int bytes(void *, sluice_bytes *need, sluice_error *) {
  *need = {};
  return 0;
}
int bind(void *, const sluice_state *, sluice_error *) { return 0; }
int beginStep(void *instance, uint64_t step, sluice_error *) {
  static_cast<Stage *>(instance)->step = step;
  return 0;
}
int forward(void *instance, const sluice_call *call, sluice_error *error) {
  return at(instance, "F", call->microbatch, error);
}
int backward(void *instance, const sluice_call *call, sluice_error *error) {
  return at(instance, "B", call->microbatch, error);
}
int nothing(void *, const sluice_call *, sluice_error *) { return 0; }
int addGradients(void *, const sluice_buffer *, void *, sluice_error *) {
  return 0;
}
int normGradients(void *, const sluice_buffer *, void *, sluice_error *) {
  return 0;
}
int optimizerStep(void *instance, uint64_t, const sluice_buffer *, void *,
                  sluice_error *error) {
  return at(instance, "step", 0, error);
}
int loss(void *, double *, int *has, sluice_error *) {
  *has = 0;
  return 0;
}
uint32_t tensorCount(void *) { return 0; }
int tensor(void *, uint32_t, sluice_tensor *, sluice_error *) { return 1; }
void destroy(void *instance) { delete static_cast<Stage *>(instance); }

const sluice_module kModule = {SLUICE_MODULE_VERSION,
                               "fault",
                               create,
                               bytes,
                               bind,
                               beginStep,
                               forward,
                               nullptr,
                               backward,
                               nothing,
                               addGradients,
                               normGradients,
                               optimizerStep,
                               loss,
                               tensorCount,
                               tensor,
                               destroy};
} // namespace

extern "C" const sluice_module *sluice_module_entry() { return &kModule; }
