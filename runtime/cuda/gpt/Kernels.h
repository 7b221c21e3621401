//===- runtime/cuda/gpt/Kernels.h - The model's own kernels ---------------===//
//
// All enqueue on `stream`, of the current device, and are deterministic. What
// they compute is said at Primitives.h; numbers are computed in float, norms
// and losses are summed in double. Float and BFloat16.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CUDA_GPT_KERNELS_H
#define SLUICE_RUNTIME_CUDA_GPT_KERNELS_H

#include "runtime/cuda/gpt/StepData.h"
#include "runtime/modules/gpt/BFloat16.h"

#include <cuda_runtime_api.h>

namespace sluice::runtime::cuda::kernels {

/// Floats that sums over rows may be made in; none of them is needed.
struct Room {
  float *data = nullptr;
  size_t count = 0;
};

template <typename Real>
cudaError_t swap(cudaStream_t stream, Real *a, Real *b, size_t count);
cudaError_t add(cudaStream_t stream, float *sum, const float *a, size_t count);
template <typename Real>
cudaError_t addRows(cudaStream_t stream, float *sum, const Real *a, size_t rows,
                    size_t width, Room room);

template <typename Real>
cudaError_t layerNorm(cudaStream_t stream, const Real *x, const Real *weight,
                      const Real *bias, Real *output, size_t rows,
                      size_t width);
template <typename Real>
cudaError_t layerNormBackward(cudaStream_t stream, const Real *x,
                              const Real *weight, const Real *outputGradient,
                              const Real *residual, Real *inputGradient,
                              float *weightGradient, float *biasGradient,
                              size_t rows, size_t width, Room room);
template <typename Real>
cudaError_t gelu(cudaStream_t stream, const Real *x, Real *output,
                 size_t count);
template <typename Real>
cudaError_t geluBackward(cudaStream_t stream, Real *x,
                         const Real *outputGradient, size_t count);
template <typename Real>
cudaError_t causalSoftmax(cudaStream_t stream, Real *scores, size_t matrices,
                          size_t size, float scale);
template <typename Real>
cudaError_t causalSoftmaxBackward(cudaStream_t stream,
                                  const Real *probabilities, Real *gradients,
                                  size_t matrices, size_t size, float scale);
template <typename Real>
cudaError_t placeHeads(cudaStream_t stream, const Real *from, Real *to,
                       size_t heads, size_t rows, size_t width, size_t stride);

template <typename Real>
cudaError_t embed(cudaStream_t stream, const uint8_t *inputs, const Real *token,
                  const Real *position, Real *output, size_t tokens,
                  size_t sequence, size_t width);
/// Of the first `values` tokens; others do not occur.
template <typename Real>
cudaError_t embedTokensBackward(cudaStream_t stream, const BatchData &batch,
                                const Real *outputGradient, float *token,
                                size_t tokens, size_t values, size_t width);
template <typename Real>
cudaError_t embedPositionsBackward(cudaStream_t stream,
                                   const Real *outputGradient, float *position,
                                   size_t tokens, size_t sequence,
                                   size_t width);
/// Leaves each token's loss in `losses`, unless that is null.
template <typename Real>
cudaError_t crossEntropy(cudaStream_t stream, Real *logits,
                         const uint8_t *targets, float *losses, size_t tokens,
                         size_t vocab, float scale);
cudaError_t countLoss(cudaStream_t stream, const float *losses, size_t tokens,
                      StepData *step);

/// Squares of part + other, unless that is null.
cudaError_t sumOfSquares(cudaStream_t stream, const float *part,
                         const float *other, size_t count, double *sum,
                         StepData *step);
cudaError_t clip(cudaStream_t stream, const double *norms, size_t count,
                 double limit, StepData *step);
/// master is null where the parameters are floats.
template <typename Real>
cudaError_t adamW(cudaStream_t stream, Real *parameters, float *master,
                  const float *gradients, const float *other, float *mean,
                  float *square, size_t count, bool decay,
                  const StepData *step);

} // namespace sluice::runtime::cuda::kernels

#endif // SLUICE_RUNTIME_CUDA_GPT_KERNELS_H
