//===- runtime/cuda/gpt/DevicePrimitives.h - The model on a GPU -----------===//
#ifndef SLUICE_RUNTIME_CUDA_GPT_DEVICEPRIMITIVES_H
#define SLUICE_RUNTIME_CUDA_GPT_DEVICEPRIMITIVES_H

#include "runtime/modules/gpt/Primitives.h"

namespace sluice::runtime::cuda {

/// Enqueues on the stream of each call, on the device that is current at
/// `bind`; float and BFloat16.
template <typename Real>
std::unique_ptr<gpt::Primitives<Real>> makeDevicePrimitives();

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_GPT_DEVICEPRIMITIVES_H
