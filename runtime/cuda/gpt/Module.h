//===- runtime/cuda/gpt/Module.h - The stage module gpt on GPUs -----------===//
#ifndef SLUICE_RUNTIME_CUDA_GPT_MODULE_H
#define SLUICE_RUNTIME_CUDA_GPT_MODULE_H

#include "runtime/sluice.h"

namespace sluice::runtime::cuda {

/// The module `gpt` as it computes on the backend's devices (dtype=fp32, or
/// bf16 with 32-bit gradients and master weights): the same model with the same
/// tensors and initial values.
const sluice_module *gptOnDevice();

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_GPT_MODULE_H
