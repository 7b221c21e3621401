//===- runtime/modules/gpt/Module.cpp - The stage module `gpt` -----------===//
//
// The C interface over StageState: casts, statuses to codes, exceptions to
// messages.
//
//===----------------------------------------------------------------------===//
#include "runtime/modules/gpt/Module.h"

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

template <typename Real> StageState<Real> &stateOf(void *instance) {
  return *static_cast<StageState<Real> *>(instance);
}

template <typename Real>
int create(const sluice_stage *stage, void **instance, sluice_error *error) {
  return guarded(
      error,
      [&] {
        StageState<Real> *state = nullptr;
        Status status = StageState<Real>::create(*stage, state);
        if (status.ok())
          *instance = state;
        return status;
      },
      SLUICE_ENVIRONMENT);
}

template <typename Real>
int bytes(void *instance, sluice_bytes *result, sluice_error *) {
  *result = stateOf<Real>(instance).bytes();
  return 0;
}

template <typename Real>
int bind(void *instance, const sluice_state *memory, sluice_error *error) {
  return guarded(error, [&] { return stateOf<Real>(instance).bind(*memory); });
}

template <typename Real>
int beginStep(void *instance, uint64_t, sluice_error *) {
  stateOf<Real>(instance).beginStep();
  return 0;
}

template <typename Real>
int forward(void *instance, const sluice_call *call, sluice_error *error) {
  return guarded(error, [&] {
    Status status = stateOf<Real>(instance).checkForward(*call);
    if (status.ok())
      stateOf<Real>(instance).forward(*call);
    return status;
  });
}

template <typename Real>
int recompute(void *instance, const sluice_call *call, sluice_error *error) {
  return guarded(error, [&] {
    Status status = stateOf<Real>(instance).checkRecompute(*call);
    if (status.ok())
      stateOf<Real>(instance).recompute(*call);
    return status;
  });
}

template <typename Real>
int backwardInput(void *instance, const sluice_call *call,
                  sluice_error *error) {
  return guarded(error, [&] {
    Status status = stateOf<Real>(instance).checkBackwardInput(*call);
    if (status.ok())
      stateOf<Real>(instance).backwardInput(*call);
    return status;
  });
}

template <typename Real>
int backwardWeight(void *instance, const sluice_call *call,
                   sluice_error *error) {
  return guarded(error, [&] {
    Status status = stateOf<Real>(instance).checkBackwardWeight(*call);
    if (status.ok())
      stateOf<Real>(instance).backwardWeight(*call);
    return status;
  });
}

template <typename Real>
int addGradients(void *instance, const sluice_buffer *other, void *,
                 sluice_error *error) {
  return guarded(error,
                 [&] { return stateOf<Real>(instance).addGradients(*other); });
}

template <typename Real>
int normGradients(void *instance, const sluice_buffer *tied, void *,
                  sluice_error *error) {
  return guarded(error,
                 [&] { return stateOf<Real>(instance).normGradients(tied); });
}

template <typename Real>
int optimizerStep(void *instance, uint64_t step, const sluice_buffer *tied,
                  void *, sluice_error *error) {
  return guarded(
      error, [&] { return stateOf<Real>(instance).optimizerStep(step, tied); });
}

template <typename Real>
int loss(void *instance, double *mean, int *has, sluice_error *) {
  *has = stateOf<Real>(instance).loss(*mean);
  return 0;
}

template <typename Real> uint32_t tensorCount(void *instance) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  return uint32_t(std::min(stateOf<Real>(instance).tensors(), kMost));
}

template <typename Real>
int tensor(void *instance, uint32_t index, sluice_tensor *result,
           sluice_error *error) {
  return guarded(
      error, [&] { return stateOf<Real>(instance).tensor(index, *result); });
}

template <typename Real> void destroy(void *instance) {
  delete static_cast<StageState<Real> *>(instance);
}

template <typename Real> constexpr sluice_module moduleNamed(const char *name) {
  return {SLUICE_MODULE_VERSION,
          name,
          create<Real>,
          bytes<Real>,
          bind<Real>,
          beginStep<Real>,
          forward<Real>,
          recompute<Real>,
          backwardInput<Real>,
          backwardWeight<Real>,
          addGradients<Real>,
          normGradients<Real>,
          optimizerStep<Real>,
          loss<Real>,
          tensorCount<Real>,
          tensor<Real>,
          destroy<Real>};
}

} // namespace
} // namespace sluice::gpt

const sluice_module *sluice_gpt_module() {
  static constexpr sluice_module kModule =
      sluice::gpt::moduleNamed<float>("gpt");
  return &kModule;
}

const sluice_module *sluice_gpt_double_module() {
  static constexpr sluice_module kModule =
      sluice::gpt::moduleNamed<double>("gpt-double");
  return &kModule;
}
