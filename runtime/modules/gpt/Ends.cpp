//===- runtime/modules/gpt/Ends.cpp - Embedding and output head ----------===//
#include "runtime/modules/gpt/Ends.h"

namespace sluice::gpt {

HeadLayout::HeadLayout(const Config &config)
    : tensors(offsetsOf(headTensors(config))) {
  const size_t tokens = config.tokens();
  kept = {0, tokens * config.hidden, tokens * (config.hidden + config.vocab)};
}

template <typename Real>
void Head<Real>::forward(const Batch &batch, const Real *input,
                         bool counts) const {
  const Config &config = batch.config;
  const size_t tokens = config.tokens(), h = config.hidden;
  math.layerNorm(input, weights[HeadNormWeight], weights[HeadNormBias],
                 kept[HeadNormOutput], tokens, h);
  math.multiply(matrix<Real>(kept[HeadNormOutput], tokens, h),
                transpose(matrix(output, config.vocab, h)),
                kept[LogitGradients]);
  math.crossEntropy(batch, kept[LogitGradients],
                    1 / (double(config.microbatches) * double(tokens)), counts);
}

template <typename Real>
void Head<Real>::backwardInput(const Config &config, const Real *input,
                               Real *chain, Real *workspace) const {
  const size_t tokens = config.tokens(), h = config.hidden;
  math.multiply(matrix<Real>(kept[LogitGradients], tokens, config.vocab),
                matrix(output, config.vocab, h), workspace);
  math.layerNormBackward(input, weights[HeadNormWeight], workspace, nullptr,
                         chain, gradients[HeadNormWeight],
                         gradients[HeadNormBias], tokens, h,
                         {chain, tokens * h});
}

template <typename Real>
void Head<Real>::backwardWeight(const Config &config) const {
  const size_t tokens = config.tokens(), h = config.hidden;
  math.accumulate(
      transpose(matrix<Real>(kept[LogitGradients], tokens, config.vocab)),
      matrix<Real>(kept[HeadNormOutput], tokens, h), outputGradient);
}

template struct Head<float>;
template struct Head<double>;
template struct Head<BFloat16>;

} // namespace sluice::gpt
