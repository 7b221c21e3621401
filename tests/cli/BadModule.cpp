//===- tests/cli/BadModule.cpp - A stage module that fails ----------------===//
//
// Needs no memory and computes nothing; its stage 2 misbehaves at microbatch 2
// in the way that the macro SLUICE_BAD names.
//
//===----------------------------------------------------------------------===//
#include "runtime/sluice.h"

#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <unistd.h>

namespace {
constexpr std::string_view kBehaviour = SLUICE_BAD;

int create(const sluice_stage *stage, void **instance, sluice_error *) {
  *instance = new uint32_t(stage->stage);
  return 0;
}
int bytes(void *, sluice_bytes *need, sluice_error *) {
  *need = {};
  return 0;
}
int bind(void *, const sluice_state *, sluice_error *) { return 0; }
int beginStep(void *, uint64_t, sluice_error *) { return 0; }

int forward(void *instance, const sluice_call *call, sluice_error *error) {
  if (*static_cast<uint32_t *>(instance) != 2 || call->microbatch != 2)
    return 0;
  if (kBehaviour == "throw")
    throw std::runtime_error("thrown away");
  while (kBehaviour == "hang")
    ::pause();
  std::snprintf(error->message, sizeof error->message, "out of luck");
  return 1;
}
int backward(void *, const sluice_call *, sluice_error *) { return 0; }
int addGradients(void *, const sluice_buffer *, void *, sluice_error *) {
  return 0;
}
int normGradients(void *, const sluice_buffer *, void *, sluice_error *) {
  return 0;
}
int optimizerStep(void *, uint64_t, const sluice_buffer *, void *,
                  sluice_error *) {
  return 0;
}
int loss(void *, double *, int *has, sluice_error *) {
  *has = 0;
  return 0;
}
uint32_t tensorCount(void *) { return 0; }
int tensor(void *, uint32_t, sluice_tensor *, sluice_error *) { return 1; }
void destroy(void *instance) { delete static_cast<uint32_t *>(instance); }

const sluice_module kModule = {SLUICE_MODULE_VERSION,
                               "bad",
                               create,
                               bytes,
                               bind,
                               beginStep,
                               forward,
                               nullptr,
                               backward,
                               backward,
                               addGradients,
                               normGradients,
                               optimizerStep,
                               loss,
                               tensorCount,
                               tensor,
                               destroy};
} // namespace

extern "C" const sluice_module *sluice_module_entry() { return &kModule; }
