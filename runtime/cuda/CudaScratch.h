//===- runtime/cuda/CudaScratch.h - Memory beside the arena ---------------===//
#ifndef SLUICE_RUNTIME_CUDA_CUDASCRATCH_H
#define SLUICE_RUNTIME_CUDA_CUDASCRATCH_H

#include "ir/Plan.h"

namespace sluice::runtime::cuda {

/// Of each collective of a rank, for what the others send; what is larger is
/// moved in pieces of this.
inline constexpr Bytes kScratchBytes = Bytes(1) << 20;
/// Bytes that stand for messages of none.
inline constexpr Bytes kPadBytes = kBufferAlignment;

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_CUDASCRATCH_H
