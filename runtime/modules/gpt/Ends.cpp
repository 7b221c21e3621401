//===- runtime/modules/gpt/Ends.cpp - Embedding and output head ----------===//
#include "runtime/modules/gpt/Ends.h"

#include "runtime/modules/gpt/Kernels.h"
#include "runtime/modules/gpt/MatrixProduct.h"

#include <algorithm>

namespace sluice::gpt {

template <typename Real>
void Embedding<Real>::forward(const Batch &batch, Real *output) const {
  const size_t width = batch.config.hidden;
  for (uint32_t row = 0; row < batch.config.microbatchSize; ++row) {
    const uint8_t *tokens = batch.row(row);
    for (size_t i = 0; i < batch.config.sequence; ++i, output += width)
      addRow(weights[Token] + tokens[i] * width, weights[Position] + i * width,
             output, 1, width);
  }
}

template <typename Real>
void Embedding<Real>::backward(const Batch &batch,
                               const Real *outputGradient) const {
  const size_t width = batch.config.hidden;
  for (uint32_t row = 0; row < batch.config.microbatchSize; ++row) {
    const uint8_t *tokens = batch.row(row);
    for (size_t i = 0; i < batch.config.sequence; ++i) {
      addTo(gradients[Token] + tokens[i] * width, outputGradient, width);
      addTo(gradients[Position] + i * width, outputGradient, width);
      outputGradient += width;
    }
  }
}

HeadLayout::HeadLayout(const Config &config)
    : tensors(offsetsOf(headTensors(config))) {
  const size_t tokens = config.tokens();
  kept = {0, tokens * config.hidden, tokens * (config.hidden + config.vocab)};
}

template <typename Real>
double Head<Real>::forward(const Batch &batch, const Real *input) const {
  const Config &config = batch.config;
  const size_t tokens = config.tokens(), h = config.hidden;
  const size_t vocab = config.vocab;
  layerNorm(input, weights[HeadNormWeight], weights[HeadNormBias],
            kept[HeadNormOutput], tokens, h);
  Real *logits = kept[LogitGradients];
  multiply(matrix<Real>(kept[HeadNormOutput], tokens, h),
           transpose(matrix(output, vocab, h)), logits);
  const Real scale = Real(1 / (double(config.microbatches) * double(tokens)));
  double sum = 0;
  for (uint32_t row = 0; row < config.microbatchSize; ++row) {
    const uint8_t *targets = batch.row(row) + 1;
    for (size_t i = 0; i < config.sequence; ++i, logits += vocab)
      sum += crossEntropy(logits, vocab, targets[i], scale);
  }
  return sum / double(tokens);
}

template <typename Real>
void Head<Real>::backwardInput(const Config &config, const Real *input,
                               Real *chain, Real *workspace) const {
  const size_t tokens = config.tokens(), h = config.hidden;
  multiply(matrix<Real>(kept[LogitGradients], tokens, config.vocab),
           matrix(output, config.vocab, h), workspace);
  std::copy_n(input, tokens * h, chain);
  layerNormBackward<Real>(chain, weights[HeadNormWeight], workspace, nullptr,
                          gradients[HeadNormWeight], gradients[HeadNormBias],
                          tokens, h);
}

template <typename Real>
void Head<Real>::backwardWeight(const Config &config) const {
  const size_t tokens = config.tokens(), h = config.hidden;
  multiply(transpose(matrix<Real>(kept[LogitGradients], tokens, config.vocab)),
           matrix<Real>(kept[HeadNormOutput], tokens, h), outputGradient,
           Into::Add);
}

template struct Embedding<float>;
template struct Embedding<double>;
template struct Head<float>;
template struct Head<double>;

} // namespace sluice::gpt
