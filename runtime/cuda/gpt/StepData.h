//===- runtime/cuda/gpt/StepData.h - What the host tells the device ------===//
//
// Lies in memory of the host that the device reaches. The host writes it
// between steps, so that what is enqueued for a step can be repeated for the
// next.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CUDA_GPT_STEPDATA_H
#define SLUICE_RUNTIME_CUDA_GPT_STEPDATA_H

#include <cstddef>
#include <cstdint>

namespace sluice::runtime::cuda {

/// Sums of squares are made in so many parts at most.
inline constexpr size_t kPartialSums = 256;
/// Tokens are bytes.
inline constexpr size_t kTokenValues = 256;

struct StepData {
  /// Of AdamW: the learning rate, 1 / (1 - β^(step+1)) for both β, and what
  /// parameters without and with weight decay are multiplied by.
  float rate, meanCorrection, squareCorrection;
  float keep, keepDecayed;
  float factor;   ///< of gradients; the device writes it where they are clipped
  double lossSum; ///< of the microbatches that have counted; the device's
  uint64_t lossCount;
  double partialSums[kPartialSums]; ///< the device's
};

/// The tokens of a microbatch of T = sequence · rows.
struct BatchData {
  const uint8_t *inputs, *targets; ///< T each
  /// The positions of all tokens, 0 … T - 1, those of token 0 first, then those
  /// of token 1 …, each ascending; those of token v from starts[v] on.
  const uint32_t *starts, *order;
};

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_GPT_STEPDATA_H
