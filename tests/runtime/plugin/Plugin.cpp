//===- tests/runtime/plugin/Plugin.cpp - A module in a shared library ----===//
#include "runtime/sluice.h"

static int nothing(void *, sluice_error *) { return 0; }
static int create(const sluice_stage *, void **instance, sluice_error *) {
  *instance = nullptr;
  return 0;
}
static int bytes(void *, sluice_bytes *needs, sluice_error *) {
  *needs = {};
  return 0;
}
static int bind(void *, const sluice_state *, sluice_error *error) {
  return nothing(nullptr, error);
}
static int beginStep(void *, uint64_t, sluice_error *) { return 0; }
static int compute(void *, const sluice_call *, sluice_error *) { return 0; }
static int add(void *, const sluice_buffer *, void *, sluice_error *) {
  return 0;
}
static int norm(void *, const sluice_buffer *, void *, sluice_error *) {
  return 0;
}
static int optimize(void *, uint64_t, const sluice_buffer *, void *,
                    sluice_error *) {
  return 0;
}
static int loss(void *, double *value, int *has, sluice_error *) {
  *value = 0.25;
  *has = 1;
  return 0;
}
static uint32_t tensorCount(void *) { return 0; }
static int tensor(void *, uint32_t, sluice_tensor *, sluice_error *) {
  return 1;
}
static void destroy(void *) {}

static const sluice_module kPlugin = {SLUICE_MODULE_VERSION,
                                      "plugin",
                                      create,
                                      bytes,
                                      bind,
                                      beginStep,
                                      compute,
                                      nullptr,
                                      compute,
                                      compute,
                                      add,
                                      norm,
                                      optimize,
                                      loss,
                                      tensorCount,
                                      tensor,
                                      destroy};

extern "C" const sluice_module *sluice_module_entry() { return &kPlugin; }
