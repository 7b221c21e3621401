//===- runtime/modules/gpt/Block.h - One transformer block ---------------===//
//
//   n = norm1(x)   a = attention(n)   y = x + a·P   z = norm2(y)
//   output = y + gelu(z·U)·D
//
// The forward pass leaves in `kept` what the gradients need. backwardInput
// overwrites what only it needs with the gradients that the weights need, so
// that no byte is held twice. Without flash attention the probabilities of the
// attention are left apart from `kept`; they can be made again of it.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_BLOCK_H
#define SLUICE_RUNTIME_MODULES_GPT_BLOCK_H

#include "runtime/modules/gpt/Config.h"
#include "runtime/modules/gpt/Parameters.h"
#include "runtime/modules/gpt/Primitives.h"

namespace sluice::gpt {

/// What a block keeps of a microbatch, T(8h + 2ffn) elements: after the forward
/// pass / after backwardInput.
enum BlockKept : uint8_t {
  Input,         ///< x / gradient at the block's output
  Norm1Output,   ///< n
  Qkv,           ///< queries, keys and values / their gradients
  AttentionOut,  ///< a
  Middle,        ///< y / its gradient
  Norm2Output,   ///< z
  PreActivation, ///< z·U / its gradient
  Activation,    ///< gelu(z·U)
  kBlockKept
};

/// Where the parameters, gradients and kept values of a block lie.
struct BlockLayout {
  explicit BlockLayout(const Config &config);
  Offsets<kBlockTensors> tensors;
  Offsets<kBlockKept> kept;
};

/// A block within a stage's buffers. `gradients` are not touched by forward.
template <typename Real> struct Block {
  Primitives<Real> &math;
  const Config &config;
  Pieces<const Real, kBlockTensors> weights;
  Pieces<GradientOf<Real>, kBlockTensors> gradients;
  Pieces<Real, kBlockKept> kept;
  Real *probabilities; ///< T·heads·s; null: made again where they are needed

  /// From kept[Input] to `output`, which may be kept[Input] if no backward
  /// follows, or null if only what is kept is wanted. Scratch: s².
  void forward(Real *output, Scratch<Real> scratch) const;
  /// The probabilities of kept[Qkv].
  void remakeProbabilities() const;
  /// Turns `chain` from the gradient at the output into that at the input, and
  /// adds to the gradients of the norms. Scratch: T(h + ffn) + 2s² + s·h.
  void backwardInput(Real *chain, Scratch<Real> scratch) const;
  /// Adds to the gradients of the four matrices and their biases. Scratch:
  /// none needed.
  void backwardWeight(Scratch<Real> scratch) const;
};

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_BLOCK_H
