//===- runtime/modules/gpt/Block.cpp - One transformer block -------------===//
#include "runtime/modules/gpt/Block.h"

#include "runtime/modules/gpt/Attention.h"
#include "runtime/modules/gpt/Kernels.h"
#include "runtime/modules/gpt/MatrixProduct.h"

#include <algorithm>

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

/// Adds x · weightᵀ, weight being stored `outputs` x `inputs`, to y.
template <typename Real>
void addProduct(size_t tokens, const Real *x, size_t inputs, const Real *weight,
                size_t outputs, Real *y) {
  multiply(matrix(x, tokens, inputs),
           transpose(matrix(weight, outputs, inputs)), y, Into::Add);
}

/// inputGradient = outputGradient · weight.
template <typename Real>
void inputGradient(size_t tokens, const Real *outputGradient, size_t outputs,
                   const Real *weight, size_t inputs, Real *result) {
  multiply(matrix(outputGradient, tokens, outputs),
           matrix(weight, outputs, inputs), result);
}

/// Adds to the gradients of a matrix and its bias.
template <typename Real>
void weightGradient(size_t tokens, const Real *x, size_t inputs,
                    const Real *outputGradient, size_t outputs, Real *weight,
                    Real *bias) {
  multiply(transpose(matrix(outputGradient, tokens, outputs)),
           matrix(x, tokens, inputs), weight, Into::Add);
  addRows(bias, outputGradient, tokens, outputs);
}

} // namespace

BlockLayout::BlockLayout(const Config &config)
    : tensors(offsetsOf(blockTensors(config))), kept(keptOffsets(config)) {}

template <typename Real>
void Block<Real>::forward(const Config &config, Real *output,
                          Real *workspace) const {
  const size_t tokens = config.tokens(), h = config.hidden, ffn = config.ffn;
  layerNorm(kept[Input], weights[Norm1Weight], weights[Norm1Bias],
            kept[Norm1Output], tokens, h);
  repeatRow(weights[QkvBias], kept[Qkv], tokens, 3 * h);
  addProduct(tokens, kept[Norm1Output], h, weights[QkvWeight], 3 * h,
             kept[Qkv]);
  attention<Real>(config, kept[Qkv], kept[AttentionOut], probabilities,
                  workspace);
  addRow<Real>(kept[Input], weights[ProjectionBias], kept[Middle], tokens, h);
  addProduct(tokens, kept[AttentionOut], h, weights[ProjectionWeight], h,
             kept[Middle]);
  layerNorm(kept[Middle], weights[Norm2Weight], weights[Norm2Bias],
            kept[Norm2Output], tokens, h);
  repeatRow(weights[UpBias], kept[PreActivation], tokens, ffn);
  addProduct(tokens, kept[Norm2Output], h, weights[UpWeight], ffn,
             kept[PreActivation]);
  gelu(kept[PreActivation], kept[Activation], tokens * ffn);
  if (!output)
    return;
  addRow<Real>(kept[Middle], weights[DownBias], output, tokens, h);
  addProduct(tokens, kept[Activation], ffn, weights[DownWeight], h, output);
}

template <typename Real>
void Block<Real>::remakeProbabilities(const Config &config) const {
  attentionProbabilities<Real>(config, kept[Qkv], probabilities);
}

template <typename Real>
void Block<Real>::backwardInput(const Config &config, Real *chain,
                                Real *workspace) const {
  const size_t tokens = config.tokens(), h = config.hidden, ffn = config.ffn;
  Real *narrow = workspace, *wide = narrow + tokens * h;
  Real *scratch = wide + tokens * ffn;
  inputGradient(tokens, chain, h, weights[DownWeight], ffn, wide);
  geluBackward(kept[PreActivation], wide, tokens * ffn);
  inputGradient(tokens, kept[PreActivation], ffn, weights[UpWeight], h, narrow);
  layerNormBackward<Real>(kept[Middle], weights[Norm2Weight], narrow, chain,
                          gradients[Norm2Weight], gradients[Norm2Bias], tokens,
                          h);
  inputGradient(tokens, kept[Middle], h, weights[ProjectionWeight], h, narrow);
  attentionBackward<Real>(config, kept[Qkv], narrow, probabilities, scratch);
  inputGradient(tokens, kept[Qkv], 3 * h, weights[QkvWeight], h, narrow);
  layerNormBackward<Real>(kept[Input], weights[Norm1Weight], narrow,
                          kept[Middle], gradients[Norm1Weight],
                          gradients[Norm1Bias], tokens, h);
  // The chain's old value is the gradient of the last matrix product.
  std::swap_ranges(chain, chain + tokens * h, kept[Input]);
}

template <typename Real>
void Block<Real>::backwardWeight(const Config &config) const {
  const size_t tokens = config.tokens(), h = config.hidden, ffn = config.ffn;
  weightGradient<Real>(tokens, kept[Norm1Output], h, kept[Qkv], 3 * h,
                       gradients[QkvWeight], gradients[QkvBias]);
  weightGradient<Real>(tokens, kept[AttentionOut], h, kept[Middle], h,
                       gradients[ProjectionWeight], gradients[ProjectionBias]);
  weightGradient<Real>(tokens, kept[Norm2Output], h, kept[PreActivation], ffn,
                       gradients[UpWeight], gradients[UpBias]);
  weightGradient<Real>(tokens, kept[Activation], ffn, kept[Input], h,
                       gradients[DownWeight], gradients[DownBias]);
}

template struct Block<float>;
template struct Block<double>;

} // namespace sluice::gpt
