//===- runtime/modules/gpt/Block.cpp - One transformer block -------------===//
#include "runtime/modules/gpt/Block.h"

#include "runtime/modules/gpt/Attention.h"

namespace sluice::gpt {
namespace {

Offsets<kBlockKept> keptOffsets(const Config &config) {
  const size_t h = config.hidden, ffn = config.ffn;
  const size_t widths[kBlockKept] = {h, h, 3 * h, h, h, h, ffn, ffn};
  Offsets<kBlockKept> offsets{};
  for (size_t i = 0; i < kBlockKept; ++i)
    offsets[i + 1] = offsets[i] + config.tokens() * widths[i];
  return offsets;
}

/// inputGradient = outputGradient · weight.
template <typename Real>
void inputGradient(Primitives<Real> &math, size_t tokens,
                   const Real *outputGradient, size_t outputs,
                   const Real *weight, size_t inputs, Real *result) {
  math.multiply(matrix(outputGradient, tokens, outputs),
                matrix(weight, outputs, inputs), result);
}

/// Adds to the gradients of a matrix and its bias.
template <typename Real>
void weightGradient(Primitives<Real> &math, size_t tokens, const Real *x,
                    size_t inputs, const Real *outputGradient, size_t outputs,
                    GradientOf<Real> *weight, GradientOf<Real> *bias,
                    Scratch<Real> scratch) {
  math.accumulate(transpose(matrix(outputGradient, tokens, outputs)),
                  matrix(x, tokens, inputs), weight);
  math.addRows(bias, outputGradient, tokens, outputs, scratch);
}

} // namespace

BlockLayout::BlockLayout(const Config &config)
    : tensors(offsetsOf(blockTensors(config))), kept(keptOffsets(config)) {}

template <typename Real>
void Block<Real>::forward(Real *output, Scratch<Real> scratch) const {
  const size_t tokens = config.tokens(), h = config.hidden, ffn = config.ffn;
  math.layerNorm(kept[Input], weights[Norm1Weight], weights[Norm1Bias],
                 kept[Norm1Output], tokens, h);
  math.linear(tokens, kept[Norm1Output], h, weights[QkvWeight],
              weights[QkvBias], 3 * h, nullptr, kept[Qkv]);
  attention<Real>(math, config, kept[Qkv], kept[AttentionOut], probabilities,
                  scratch);
  math.linear(tokens, kept[AttentionOut], h, weights[ProjectionWeight],
              weights[ProjectionBias], h, kept[Input], kept[Middle]);
  math.layerNorm(kept[Middle], weights[Norm2Weight], weights[Norm2Bias],
                 kept[Norm2Output], tokens, h);
  math.linear(tokens, kept[Norm2Output], h, weights[UpWeight], weights[UpBias],
              ffn, nullptr, kept[PreActivation]);
  math.gelu(kept[PreActivation], kept[Activation], tokens * ffn);
  if (output)
    math.linear(tokens, kept[Activation], ffn, weights[DownWeight],
                weights[DownBias], h, kept[Middle], output);
}

template <typename Real> void Block<Real>::remakeProbabilities() const {
  attentionProbabilities<Real>(math, config, kept[Qkv], probabilities);
}

template <typename Real>
void Block<Real>::backwardInput(Real *chain, Scratch<Real> scratch) const {
  const size_t tokens = config.tokens(), h = config.hidden, ffn = config.ffn;
  Real *narrow = scratch.data, *wide = narrow + tokens * h;
  const Scratch<Real> rest = scratch.after(tokens * (h + ffn));
  inputGradient(math, tokens, chain, h, weights[DownWeight], ffn, wide);
  math.geluBackward(kept[PreActivation], wide, tokens * ffn);
  inputGradient<Real>(math, tokens, kept[PreActivation], ffn, weights[UpWeight],
                      h, narrow);
  math.layerNormBackward(kept[Middle], weights[Norm2Weight], narrow, chain,
                         kept[Middle], gradients[Norm2Weight],
                         gradients[Norm2Bias], tokens, h, rest);
  inputGradient<Real>(math, tokens, kept[Middle], h, weights[ProjectionWeight],
                      h, narrow);
  attentionBackward<Real>(math, config, kept[Qkv], narrow, probabilities, rest);
  inputGradient<Real>(math, tokens, kept[Qkv], 3 * h, weights[QkvWeight], h,
                      narrow);
  math.layerNormBackward(kept[Input], weights[Norm1Weight], narrow,
                         kept[Middle], kept[Input], gradients[Norm1Weight],
                         gradients[Norm1Bias], tokens, h, rest);
  // The chain's old value is the gradient of the last matrix product.
  math.swap(chain, kept[Input], tokens * h);
}

template <typename Real>
void Block<Real>::backwardWeight(Scratch<Real> scratch) const {
  const size_t tokens = config.tokens(), h = config.hidden, ffn = config.ffn;
  weightGradient<Real>(math, tokens, kept[Norm1Output], h, kept[Qkv], 3 * h,
                       gradients[QkvWeight], gradients[QkvBias], scratch);
  weightGradient<Real>(math, tokens, kept[AttentionOut], h, kept[Middle], h,
                       gradients[ProjectionWeight], gradients[ProjectionBias],
                       scratch);
  weightGradient<Real>(math, tokens, kept[Norm2Output], h, kept[PreActivation],
                       ffn, gradients[UpWeight], gradients[UpBias], scratch);
  weightGradient<Real>(math, tokens, kept[Activation], ffn, kept[Input], h,
                       gradients[DownWeight], gradients[DownBias], scratch);
}

template struct Block<float>;
template struct Block<double>;
template struct Block<BFloat16>;

} // namespace sluice::gpt
