//===- runtime/cuda/gpt/DevicePrimitives.cpp - The model on a GPU ---------===//
//
// What the host tells the device for a step, and what the device tells it,
// lies in memory of the host that both reach; with it, what was enqueued for a
// step can be repeated for others.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/gpt/DevicePrimitives.h"

#include "runtime/cuda/gpt/Kernels.h"
#include "runtime/cuda/gpt/Products.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace sluice::runtime::cuda {
namespace {

using gpt::Batch;
using gpt::Batches;
using gpt::Config;
using gpt::Matrix;
using gpt::Scratch;
using gpt::Text;

/// Through which memory is copied between host and device, between steps.
constexpr uint64_t kStagingBytes = uint64_t(1) << 18;

/// Where the pieces of the host's memory are.
struct HostLayout {
  uint64_t staging = 0, batches = 0, losses = 0, end = 0;
  /// Within what there is of a microbatch: starts first.
  uint64_t order = 0, inputs = 0, targets = 0, batchBytes = 0;

  HostLayout() = default;
  HostLayout(uint64_t tokens, uint64_t microbatches) {
    constexpr uint64_t kAlignment = 256;
    const auto aligned = [](uint64_t bytes) {
      return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    };
    order = (kTokenValues + 1) * sizeof(uint32_t);
    inputs = order + tokens * sizeof(uint32_t);
    targets = inputs + tokens;
    batchBytes = aligned(targets + tokens);
    staging = aligned(sizeof(StepData));
    losses = staging + kStagingBytes;
    batches = losses + aligned(tokens * sizeof(float));
    end = batches + microbatches * batchBytes;
  }
};

template <typename Real>
class DevicePrimitives final : public gpt::Primitives<Real> {
public:
  ~DevicePrimitives() override {
    if (own)
      (void)cudaStreamDestroy(own);
  }

  Status prepare(const Config &config, const sluice_stage &stage) override {
    const uint32_t each = config.microbatches / std::max(1u, stage.replicas);
    firstBatch = stage.replica * each;
    batchCount = config.embedding || config.head ? each : 0;
    layout = HostLayout(config.tokens(), batchCount);
    return {};
  }
  uint64_t hostBytes() const override { return layout.end; }
  Status bind(const sluice_buffer &host) override;
  bool isImmediate() const override { return false; }
  Status upload(void *to, const void *from, uint64_t bytes) override;
  Status download(void *to, const void *from, uint64_t bytes) override;
  Status clearNow(void *data, uint64_t bytes) override {
    Answer answer =
        answerOf(cudaMemsetAsync(data, 0, bytes, own), "cudaMemsetAsync");
    if (answer.ok())
      answer = answerOf(cudaStreamSynchronize(own), "cudaStreamSynchronize");
    return answer.ok() ? Status() : Status::environment(answer.fault);
  }
  void beginStep(const Config &config, const Text &text,
                 uint64_t number) override;
  void use(void *handle) override {
    stream = static_cast<cudaStream_t>(handle);
  }
  Status status() override {
    const Answer answer = std::exchange(fault, {});
    return answer.ok() ? Status() : Status::environment(answer.fault);
  }
  bool loss(double &mean) const override {
    if (step->lossCount == 0)
      return false;
    mean = step->lossSum / static_cast<double>(step->lossCount);
    return true;
  }

  void clear(void *data, uint64_t bytes) override {
    if (bytes != 0)
      run("cudaMemsetAsync",
          [&] { return cudaMemsetAsync(data, 0, bytes, stream); });
  }
  void copy(void *to, const void *from, uint64_t bytes) override {
    if (bytes != 0)
      run("cudaMemcpyAsync", [&] {
        return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
      });
  }
  void swap(Real *a, Real *b, size_t count) override {
    launch([&] { return kernels::swap(stream, a, b, count); });
  }
  void add(float *sum, const float *a, size_t count) override {
    launch([&] { return kernels::add(stream, sum, a, count); });
  }
  void addRows(float *sum, const Real *a, size_t rows, size_t width,
               Scratch<Real> scratch) override {
    launch([&] {
      return kernels::addRows(stream, sum, a, rows, width, roomOf(scratch));
    });
  }

  void multiply(Matrix<Real> a, Matrix<Real> b, Real *c, size_t stride,
                const Batches &batches) override {
    multiply({.a = Operand(a),
              .b = Operand(b),
              .in = kNumbers<Real>,
              .d = c,
              .stride = stride,
              .out = kNumbers<Real>,
              .batches = batches});
  }
  void accumulate(Matrix<Real> a, Matrix<Real> b, float *c) override {
    multiply({.a = Operand(a),
              .b = Operand(b),
              .in = kNumbers<Real>,
              .c = c,
              .d = c,
              .stride = b.columns,
              .out = CUDA_R_32F});
  }
  void linear(size_t tokens, const Real *x, size_t inputs, const Real *weight,
              const Real *bias, size_t outputs, const Real *residual,
              Real *y) override {
    multiply(
        {.a = Operand(gpt::matrix(x, tokens, inputs)),
         .b = Operand(gpt::transpose(gpt::matrix(weight, outputs, inputs))),
         .in = kNumbers<Real>,
         .bias = bias,
         .c = residual,
         .d = y,
         .stride = outputs,
         .out = kNumbers<Real>});
  }
  size_t atOnce(size_t most) const override { return most; }

  void layerNorm(const Real *x, const Real *weight, const Real *bias,
                 Real *output, size_t rows, size_t width) override {
    launch([&] {
      return kernels::layerNorm(stream, x, weight, bias, output, rows, width);
    });
  }
  void layerNormBackward(const Real *x, const Real *weight,
                         const Real *outputGradient, const Real *residual,
                         Real *inputGradient, float *weightGradient,
                         float *biasGradient, size_t rows, size_t width,
                         Scratch<Real> scratch) override {
    launch([&] {
      return kernels::layerNormBackward(
          stream, x, weight, outputGradient, residual, inputGradient,
          weightGradient, biasGradient, rows, width, roomOf(scratch));
    });
  }
  void gelu(const Real *x, Real *output, size_t count) override {
    launch([&] { return kernels::gelu(stream, x, output, count); });
  }
  void geluBackward(Real *x, const Real *outputGradient,
                    size_t count) override {
    launch([&] {
      return kernels::geluBackward(stream, x, outputGradient, count);
    });
  }
  void causalSoftmax(Real *scores, size_t matrices, size_t size,
                     double scale) override {
    launch([&] {
      return kernels::causalSoftmax(stream, scores, matrices, size,
                                    static_cast<float>(scale));
    });
  }
  void causalSoftmaxBackward(const Real *probabilities, Real *gradients,
                             size_t matrices, size_t size,
                             double scale) override {
    launch([&] {
      return kernels::causalSoftmaxBackward(stream, probabilities, gradients,
                                            matrices, size,
                                            static_cast<float>(scale));
    });
  }
  void placeHeads(const Real *from, Real *to, size_t heads, size_t rows,
                  size_t width, size_t stride) override {
    launch([&] {
      return kernels::placeHeads(stream, from, to, heads, rows, width, stride);
    });
  }
  void embed(const Batch &batch, const Real *token, const Real *position,
             Real *output) override {
    launch([&] {
      return kernels::embed(stream, dataOf(batch).inputs, token, position,
                            output, batch.config.tokens(),
                            batch.config.sequence, batch.config.hidden);
    });
  }
  void embedBackward(const Batch &batch, const Real *outputGradient,
                     float *token, float *position) override {
    const Config &config = batch.config;
    launch([&] {
      return kernels::embedTokensBackward(
          stream, dataOf(batch), outputGradient, token, config.tokens(),
          std::min<size_t>(kTokenValues, config.vocab), config.hidden);
    });
    launch([&] {
      return kernels::embedPositionsBackward(stream, outputGradient, position,
                                             config.tokens(), config.sequence,
                                             config.hidden);
    });
  }
  void crossEntropy(const Batch &batch, Real *logits, double scale,
                    bool counts) override {
    const size_t tokens = batch.config.tokens();
    auto *const losses = reinterpret_cast<float *>(base + layout.losses);
    launch([&] {
      return kernels::crossEntropy(
          stream, logits, dataOf(batch).targets, counts ? losses : nullptr,
          tokens, batch.config.vocab, static_cast<float>(scale));
    });
    if (counts)
      launch([&] { return kernels::countLoss(stream, losses, tokens, step); });
  }

  void sumOfSquares(gpt::Sum<float> gradients, size_t count,
                    double *sum) override {
    launch([&] {
      return kernels::sumOfSquares(stream, gradients.part, gradients.other,
                                   count, sum, step);
    });
  }
  void clip(const double *norms, size_t count, double limit) override {
    launch([&] { return kernels::clip(stream, norms, count, limit, step); });
  }
  void adamW(const gpt::Trained<Real> &of) override {
    launch([&] {
      return kernels::adamW(stream, of.parameters, of.master, of.gradients.part,
                            of.gradients.other, of.mean, of.square, of.count,
                            of.decay, step);
    });
  }

private:
  /// Nothing more is enqueued after a failure.
  template <typename Make> void run(const char *call, Make make) {
    if (fault.ok())
      fault = answerOf(make(), call);
  }
  template <typename Make> void launch(Make make) {
    run("cudaLaunchKernel", make);
  }
  void multiply(const ProductCall &call) {
    if (fault.ok())
      fault = products.multiply(stream, call);
  }
  static kernels::Room roomOf(Scratch<Real> scratch) {
    constexpr uintptr_t kAlignment = alignof(float);
    const auto begin = reinterpret_cast<uintptr_t>(scratch.data);
    const auto first = (begin + kAlignment - 1) / kAlignment * kAlignment;
    const auto end = begin + scratch.elements * sizeof(Real);
    if (first >= end)
      return {};
    return {reinterpret_cast<float *>(first), (end - first) / sizeof(float)};
  }
  BatchData dataOf(const Batch &batch) const {
    std::byte *const data = batchAt(batch.microbatch);
    return {reinterpret_cast<uint8_t *>(data + layout.inputs),
            reinterpret_cast<uint8_t *>(data + layout.targets),
            reinterpret_cast<uint32_t *>(data),
            reinterpret_cast<uint32_t *>(data + layout.order)};
  }
  std::byte *batchAt(uint32_t microbatch) const {
    return base + layout.batches +
           (microbatch - firstBatch) * layout.batchBytes;
  }
  void drawBatch(const Batch &batch);
  template <typename Copy> Status pass(uint64_t bytes, Copy copyPiece);

  HostLayout layout;
  uint32_t firstBatch = 0, batchCount = 0; ///< microbatches of a step
  Products products;
  cudaStream_t own = nullptr, stream = nullptr;
  int device = 0;
  std::byte *base = nullptr; ///< of the host's memory
  StepData *step = nullptr;
  Answer fault;
};

template <typename Real>
Status DevicePrimitives<Real>::bind(const sluice_buffer &host) {
  base = static_cast<std::byte *>(host.data);
  step = new (base) StepData();
  Answer answer = answerOf(cudaGetDevice(&device), "cudaGetDevice");
  if (answer.ok())
    answer = answerOf(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking),
                      "cudaStreamCreateWithFlags");
  if (answer.ok())
    answer = products.open();
  stream = own;
  return answer.ok() ? Status() : Status::environment(answer.fault);
}

/// Calls copyPiece(offset, count) for as much as the staging memory holds at a
/// time. Whatever thread it is, the device is made current.
template <typename Real>
template <typename Copy>
Status DevicePrimitives<Real>::pass(uint64_t bytes, Copy copyPiece) {
  Answer answer = answerOf(cudaSetDevice(device), "cudaSetDevice");
  for (uint64_t done = 0; done < bytes && answer.ok(); done += kStagingBytes)
    answer = copyPiece(done, std::min(kStagingBytes, bytes - done));
  return answer.ok() ? Status() : Status::environment(answer.fault);
}

template <typename Real>
Status DevicePrimitives<Real>::upload(void *to, const void *from,
                                      uint64_t bytes) {
  std::byte *const staging = base + layout.staging;
  return pass(bytes, [&](uint64_t at, uint64_t count) {
    std::memcpy(staging, static_cast<const std::byte *>(from) + at, count);
    Answer answer =
        answerOf(cudaMemcpyAsync(static_cast<std::byte *>(to) + at, staging,
                                 count, cudaMemcpyDefault, own),
                 "cudaMemcpyAsync");
    return answer.ok()
               ? answerOf(cudaStreamSynchronize(own), "cudaStreamSynchronize")
               : answer;
  });
}

template <typename Real>
Status DevicePrimitives<Real>::download(void *to, const void *from,
                                        uint64_t bytes) {
  std::byte *const staging = base + layout.staging;
  return pass(bytes, [&](uint64_t at, uint64_t count) {
    Answer answer = answerOf(
        cudaMemcpyAsync(staging, static_cast<const std::byte *>(from) + at,
                        count, cudaMemcpyDefault, own),
        "cudaMemcpyAsync");
    if (answer.ok())
      answer = answerOf(cudaStreamSynchronize(own), "cudaStreamSynchronize");
    if (answer.ok())
      std::memcpy(static_cast<std::byte *>(to) + at, staging, count);
    return answer;
  });
}

/// The tokens of a microbatch, and their positions sorted by token (a counting
/// sort).
template <typename Real>
void DevicePrimitives<Real>::drawBatch(const Batch &batch) {
  std::byte *const data = batchAt(batch.microbatch);
  auto *const starts = reinterpret_cast<uint32_t *>(data);
  auto *const order = reinterpret_cast<uint32_t *>(data + layout.order);
  auto *const inputs = reinterpret_cast<uint8_t *>(data + layout.inputs);
  auto *const targets = reinterpret_cast<uint8_t *>(data + layout.targets);
  const size_t length = batch.config.sequence;
  for (uint32_t row = 0; row < batch.config.microbatchSize; ++row) {
    const uint8_t *const tokens = batch.row(row);
    std::copy_n(tokens, length, inputs + row * length);
    std::copy_n(tokens + 1, length, targets + row * length);
  }
  const auto count = static_cast<uint32_t>(batch.config.tokens());
  uint32_t next[kTokenValues] = {};
  for (uint32_t i = 0; i < count; ++i)
    ++next[inputs[i]];
  uint32_t begin = 0;
  for (size_t value = 0; value < kTokenValues; ++value) {
    starts[value] = begin;
    begin += std::exchange(next[value], begin);
  }
  starts[kTokenValues] = begin;
  for (uint32_t i = 0; i < count; ++i)
    order[next[inputs[i]]++] = i;
}

template <typename Real>
void DevicePrimitives<Real>::beginStep(const Config &config, const Text &text,
                                       uint64_t number) {
  const double rate = config.learningRate;
  const auto correction = [number](double decay) {
    return static_cast<float>(
        1 / (1 - std::pow(decay, static_cast<double>(number) + 1)));
  };
  step->rate = static_cast<float>(rate);
  step->meanCorrection = correction(gpt::AdamW::kMeanRate);
  step->squareCorrection = correction(gpt::AdamW::kSquareRate);
  step->keep = 1;
  step->keepDecayed = static_cast<float>(1 - rate * gpt::AdamW::kDecay);
  step->factor = 1;
  step->lossSum = 0;
  step->lossCount = 0;
  for (uint32_t i = 0; i < batchCount; ++i)
    drawBatch({config, text, number, firstBatch + i});
}

} // namespace

template <typename Real>
std::unique_ptr<gpt::Primitives<Real>> makeDevicePrimitives() {
  return std::make_unique<DevicePrimitives<Real>>();
}
template std::unique_ptr<gpt::Primitives<float>> makeDevicePrimitives();
template std::unique_ptr<gpt::Primitives<gpt::BFloat16>> makeDevicePrimitives();

} // namespace sluice::runtime::cuda
