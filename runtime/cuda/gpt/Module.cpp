//===- runtime/cuda/gpt/Module.cpp - The stage module gpt on GPUs ---------===//
#include "runtime/cuda/gpt/Module.h"

#include "runtime/cuda/gpt/DevicePrimitives.h"
#include "runtime/modules/gpt/StageState.h"

#include <string_view>

namespace sluice::runtime::cuda {
namespace {

template <typename Real>
Status makeStage(const sluice_stage &stage,
                 std::unique_ptr<gpt::Stage> &result) {
  return gpt::StageState<Real>::create(stage, makeDevicePrimitives<Real>(),
                                       result);
}

/// By the line of the description that names the type; what is neither is
/// refused as not fp32.
int create(const sluice_stage *stage, void **instance, sluice_error *error) {
  const std::string_view text = stage->description ? stage->description : "";
  const bool isHalf =
      ("\n" + std::string(text)).find("\ndtype=bf16\n") != std::string::npos;
  return gpt::createStage(isHalf ? makeStage<gpt::BFloat16> : makeStage<float>,
                          stage, instance, error);
}

} // namespace

const sluice_module *gptOnDevice() {
  static const sluice_module kModule = gpt::stageModule("gpt", create);
  return &kModule;
}

} // namespace sluice::runtime::cuda
