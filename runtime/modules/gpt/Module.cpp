//===- runtime/modules/gpt/Module.cpp - The stage module `gpt` -----------===//
//
// The C interface over stages: casts, statuses to codes, exceptions to
// messages.
//
//===----------------------------------------------------------------------===//
#include "runtime/modules/gpt/Module.h"

#include "runtime/modules/gpt/Stage.h"
#include "runtime/modules/gpt/StageState.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <string_view>

namespace sluice::gpt {
namespace {

constexpr int kFailure = 1;

/// Writes the message as far as it fits; a cut one ends in "...".
int fail(sluice_error *error, std::string_view message) {
  if (!error)
    return kFailure;
  constexpr std::string_view kCut = "...";
  constexpr size_t kRoom = sizeof(error->message) - 1;
  size_t length = std::min(message.size(), kRoom);
  std::memcpy(error->message, message.data(), length);
  if (message.size() > kRoom)
    std::memcpy(error->message + kRoom - kCut.size(), kCut.data(), kCut.size());
  error->message[length] = '\0';
  return kFailure;
}

/// Runs `body`, which returns a Status; nothing but std::bad_alloc is thrown to
/// the caller. A fault of the machine's is returned as `environment`.
template <typename Body>
int guarded(sluice_error *error, Body body, int environment = kFailure) {
  try {
    Status status = body();
    if (status.ok())
      return 0;
    fail(error, status.message());
    return status.fault() == Fault::Environment ? environment : kFailure;
  } catch (const std::bad_alloc &) {
    throw; // the environment's fault, which the runtime tells apart
  } catch (const std::exception &exception) {
    return fail(error, exception.what());
  }
}

Stage &stageOf(void *instance) { return *static_cast<Stage *>(instance); }

int bytes(void *instance, sluice_bytes *result, sluice_error *) {
  *result = stageOf(instance).bytes();
  return 0;
}

int bind(void *instance, const sluice_state *memory, sluice_error *error) {
  return guarded(error, [&] { return stageOf(instance).bind(*memory); });
}

int beginStep(void *instance, uint64_t step, sluice_error *error) {
  return guarded(error, [&] { return stageOf(instance).beginStep(step); });
}

int forward(void *instance, const sluice_call *call, sluice_error *error) {
  return guarded(error, [&] { return stageOf(instance).forward(*call); });
}

int recompute(void *instance, const sluice_call *call, sluice_error *error) {
  return guarded(error, [&] { return stageOf(instance).recompute(*call); });
}

int backwardInput(void *instance, const sluice_call *call,
                  sluice_error *error) {
  return guarded(error, [&] { return stageOf(instance).backwardInput(*call); });
}

int backwardWeight(void *instance, const sluice_call *call,
                   sluice_error *error) {
  return guarded(error,
                 [&] { return stageOf(instance).backwardWeight(*call); });
}

int addGradients(void *instance, const sluice_buffer *other, void *stream,
                 sluice_error *error) {
  return guarded(
      error, [&] { return stageOf(instance).addGradients(*other, stream); });
}

int normGradients(void *instance, const sluice_buffer *tied, void *stream,
                  sluice_error *error) {
  return guarded(error,
                 [&] { return stageOf(instance).normGradients(tied, stream); });
}

/// The step's number is that of begin_step.
int optimizerStep(void *instance, uint64_t, const sluice_buffer *tied,
                  void *stream, sluice_error *error) {
  return guarded(error,
                 [&] { return stageOf(instance).optimizerStep(tied, stream); });
}

int loss(void *instance, double *mean, int *has, sluice_error *) {
  *has = stageOf(instance).loss(*mean);
  return 0;
}

uint32_t tensorCount(void *instance) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  return uint32_t(std::min(stageOf(instance).tensors(), kMost));
}

int tensor(void *instance, uint32_t index, sluice_tensor *result,
           sluice_error *error) {
  return guarded(error,
                 [&] { return stageOf(instance).tensor(index, *result); });
}

void destroy(void *instance) { delete static_cast<Stage *>(instance); }

template <typename Real>
Status makeOnHost(const sluice_stage &stage, std::unique_ptr<Stage> &result) {
  return StageState<Real>::create(stage, makeHostPrimitives<Real>(), result);
}

template <typename Real>
int createOnHost(const sluice_stage *stage, void **instance,
                 sluice_error *error) {
  return createStage(makeOnHost<Real>, stage, instance, error);
}

} // namespace

int createStage(MakeStage make, const sluice_stage *stage, void **instance,
                sluice_error *error) {
  return guarded(
      error,
      [&] {
        std::unique_ptr<Stage> made;
        Status status = make(*stage, made);
        if (status.ok())
          *instance = made.release();
        return status;
      },
      SLUICE_ENVIRONMENT);
}

sluice_module stageModule(const char *name,
                          int (*create)(const sluice_stage *, void **,
                                        sluice_error *)) {
  return {SLUICE_MODULE_VERSION,
          name,
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
}

} // namespace sluice::gpt

const sluice_module *sluice_gpt_module() {
  static const sluice_module kModule =
      sluice::gpt::stageModule("gpt", sluice::gpt::createOnHost<float>);
  return &kModule;
}

const sluice_module *sluice_gpt_double_module() {
  static const sluice_module kModule =
      sluice::gpt::stageModule("gpt-double", sluice::gpt::createOnHost<double>);
  return &kModule;
}
