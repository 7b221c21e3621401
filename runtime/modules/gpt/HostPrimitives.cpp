//===- runtime/modules/gpt/HostPrimitives.cpp - On the CPU, at once -------===//
#include "runtime/modules/gpt/Primitives.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice::gpt {
namespace {

template <typename Real> class HostPrimitives final : public Primitives<Real> {
public:
  Status prepare(const Config &, const sluice_stage &stage) override {
    return prepareMatrixProducts(stage.ranks * stage.replicas);
  }
  Status upload(void *to, const void *from, uint64_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Status download(void *to, const void *from, uint64_t bytes) override {
    return upload(to, from, bytes);
  }
  Status clearNow(void *data, uint64_t bytes) override {
    std::memset(data, 0, bytes);
    return {};
  }
  void beginStep(const Config &config, const Text &, uint64_t step) override {
    rate = config.learningRate;
    number = step;
    factor = 1;
    lossSum = 0;
    lossCount = 0;
  }
  bool loss(double &mean) const override {
    if (lossCount == 0)
      return false;
    mean = lossSum / double(lossCount);
    return true;
  }

  void clear(void *data, uint64_t bytes) override {
    std::memset(data, 0, bytes);
  }
  void copy(void *to, const void *from, uint64_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void swap(Real *a, Real *b, size_t count) override {
    std::swap_ranges(a, a + count, b);
  }
  void add(Real *sum, const Real *a, size_t count) override {
    addTo(sum, a, count);
  }
  void addRows(Real *sum, const Real *a, size_t rows, size_t width,
               Scratch<Real>) override {
    gpt::addRows(sum, a, rows, width);
  }

  using Primitives<Real>::multiply;
  void multiply(Matrix<Real> a, Matrix<Real> b, Real *c, size_t stride,
                const Batches &batches) override {
    for (size_t i = 0; i < batches.count; ++i) {
      gpt::multiply(a, b, c, stride);
      a.data += batches.a;
      b.data += batches.b;
      c += batches.c;
    }
  }
  void accumulate(Matrix<Real> a, Matrix<Real> b, Real *c) override {
    gpt::multiply(a, b, c, Into::Add);
  }
  void linear(size_t tokens, const Real *x, size_t inputs, const Real *weight,
              const Real *bias, size_t outputs, const Real *residual,
              Real *y) override {
    if (residual)
      addRow(residual, bias, y, tokens, outputs);
    else
      repeatRow(bias, y, tokens, outputs);
    gpt::multiply(matrix(x, tokens, inputs),
                  transpose(matrix(weight, outputs, inputs)), y, Into::Add);
  }
  /// What one leaves in the caches the next step finds there.
  size_t atOnce(size_t) const override { return 1; }

  void layerNorm(const Real *x, const Real *weight, const Real *bias,
                 Real *output, size_t rows, size_t width) override {
    gpt::layerNorm(x, weight, bias, output, rows, width);
  }
  void layerNormBackward(const Real *x, const Real *weight,
                         const Real *outputGradient, const Real *residual,
                         Real *inputGradient, Real *weightGradient,
                         Real *biasGradient, size_t rows, size_t width,
                         Scratch<Real>) override {
    if (x != inputGradient)
      std::copy_n(x, rows * width, inputGradient);
    gpt::layerNormBackward(inputGradient, weight, outputGradient, residual,
                           weightGradient, biasGradient, rows, width);
  }
  void gelu(const Real *x, Real *output, size_t count) override {
    gpt::gelu(x, output, count);
  }
  void geluBackward(Real *x, const Real *outputGradient,
                    size_t count) override {
    gpt::geluBackward(x, outputGradient, count);
  }
  void causalSoftmax(Real *scores, size_t matrices, size_t size,
                     double scale) override {
    for (size_t i = 0; i < matrices; ++i)
      gpt::causalSoftmax(scores + i * size * size, size, Real(scale));
  }
  void causalSoftmaxBackward(const Real *probabilities, Real *gradients,
                             size_t matrices, size_t size,
                             double scale) override {
    for (size_t i = 0; i < matrices; ++i)
      gpt::causalSoftmaxBackward(probabilities + i * size * size,
                                 gradients + i * size * size, size,
                                 Real(scale));
  }
  void placeHeads(const Real *from, Real *to, size_t heads, size_t rows,
                  size_t width, size_t stride) override {
    for (size_t head = 0; head < heads; ++head)
      for (size_t i = 0; i < rows; ++i)
        std::copy_n(from + (head * rows + i) * width, width,
                    to + head * width + i * stride);
  }

  void embed(const Batch &batch, const Real *token, const Real *position,
             Real *output) override {
    const size_t width = batch.config.hidden;
    for (uint32_t row = 0; row < batch.config.microbatchSize; ++row) {
      const uint8_t *tokens = batch.row(row);
      for (size_t i = 0; i < batch.config.sequence; ++i, output += width)
        addRow(token + tokens[i] * width, position + i * width, output, 1,
               width);
    }
  }
  void embedBackward(const Batch &batch, const Real *outputGradient,
                     Real *token, Real *position) override {
    const size_t width = batch.config.hidden;
    for (uint32_t row = 0; row < batch.config.microbatchSize; ++row) {
      const uint8_t *tokens = batch.row(row);
      for (size_t i = 0; i < batch.config.sequence; ++i) {
        addTo(token + tokens[i] * width, outputGradient, width);
        addTo(position + i * width, outputGradient, width);
        outputGradient += width;
      }
    }
  }
  void crossEntropy(const Batch &batch, Real *logits, double scale,
                    bool counts) override {
    const size_t vocab = batch.config.vocab;
    double sum = 0;
    for (uint32_t row = 0; row < batch.config.microbatchSize; ++row) {
      const uint8_t *targets = batch.row(row) + 1;
      for (size_t i = 0; i < batch.config.sequence; ++i, logits += vocab)
        sum += gpt::crossEntropy(logits, vocab, targets[i], Real(scale));
    }
    if (!counts)
      return;
    lossSum += sum / double(batch.config.tokens());
    ++lossCount;
  }

  void sumOfSquares(Sum<Real> gradients, size_t count, double *sum) override {
    *sum = gpt::sumOfSquares(gradients, count);
  }
  /// Over the tensors in order of the model.
  void clip(const double *norms, size_t count, double limit) override {
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
      sum += norms[i];
    factor = clipFactor(std::sqrt(sum), limit);
  }
  void adamW(const Trained<Real> &of) override {
    AdamW(rate, number, factor)
        .update(of.parameters, of.gradients, of.mean, of.square, of.count,
                of.decay);
  }

private:
  double rate = 0, factor = 1;
  uint64_t number = 0; ///< of the step
  double lossSum = 0;
  uint64_t lossCount = 0;
};

} // namespace

template <typename Real>
std::unique_ptr<Primitives<Real>> makeHostPrimitives() {
  return std::make_unique<HostPrimitives<Real>>();
}
template std::unique_ptr<Primitives<float>> makeHostPrimitives();
template std::unique_ptr<Primitives<double>> makeHostPrimitives();

} // namespace sluice::gpt
