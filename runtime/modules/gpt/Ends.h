//===- runtime/modules/gpt/Ends.h - Embedding and output head ------------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_ENDS_H
#define SLUICE_RUNTIME_MODULES_GPT_ENDS_H

#include "runtime/modules/gpt/Config.h"
#include "runtime/modules/gpt/Parameters.h"
#include "runtime/modules/gpt/Primitives.h"

#include <cstdint>

namespace sluice::gpt {

/// Token plus learned position; keeps nothing, since its tokens are drawn
/// again.
template <typename Real> struct Embedding {
  Primitives<Real> &math;
  Pieces<const Real, kEmbeddingTensors> weights;
  Pieces<GradientOf<Real>, kEmbeddingTensors> gradients;

  void forward(const Batch &batch, Real *output) const {
    math.embed(batch, weights[Token], weights[Position], output);
  }
  /// Adds to the gradients, given that at the output.
  void backward(const Batch &batch, const Real *outputGradient) const {
    math.embedBackward(batch, outputGradient, gradients[Token],
                       gradients[Position]);
  }
};

/// What the head keeps of a microbatch, T(h + vocab) elements.
enum HeadKept : uint8_t {
  HeadNormOutput,
  LogitGradients, ///< times 1 / (microbatches T), from the forward pass on
  kHeadKept
};

/// Where the parameters, gradients and kept values of the head lie.
struct HeadLayout {
  explicit HeadLayout(const Config &config);
  Offsets<kHeadTensors> tensors;
  Offsets<kHeadKept> kept;
};

/// Final norm, output matrix (its own, or the table of the tokens), cross
/// entropy.
template <typename Real> struct Head {
  Primitives<Real> &math;
  Pieces<const Real, kHeadTensors> weights;
  Pieces<GradientOf<Real>, kHeadTensors> gradients;
  const Real *output; ///< the output matrix, vocab x h
  GradientOf<Real> *outputGradient;
  Pieces<Real, kHeadKept> kept;

  /// From the norm's input to the mean loss of the microbatch, in nats, which
  /// may count.
  void forward(const Batch &batch, const Real *input, bool counts) const;
  /// chain = gradient at the norm's input; adds to the gradients of the norm.
  /// workspace: T·h.
  void backwardInput(const Config &config, const Real *input, Real *chain,
                     Real *workspace) const;
  /// Adds to the gradient of the output matrix.
  void backwardWeight(const Config &config) const;
};

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_ENDS_H
