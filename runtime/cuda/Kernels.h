//===- runtime/cuda/Kernels.h - What the backend computes on a device -----===//
#ifndef SLUICE_RUNTIME_CUDA_KERNELS_H
#define SLUICE_RUNTIME_CUDA_KERNELS_H

#include "ir/Ops.h"
#include "ir/Units.h"

#include <cuda_runtime_api.h>

namespace sluice::runtime::cuda {

/// Enqueues target[i] += other[i] for all elements of `bytes` on `stream`, of
/// the current device. Both pointers can be reached from it.
cudaError_t addInPlace(cudaStream_t stream, Element element, void *target,
                       const void *other, Bytes bytes);

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_KERNELS_H
