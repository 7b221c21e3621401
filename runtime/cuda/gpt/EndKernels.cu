//===- runtime/cuda/gpt/EndKernels.cu - Embedding, loss, optimizer --------===//
#include "runtime/cuda/gpt/Kernels.h"

#include "runtime/cuda/Launch.h"

#include <cmath>

namespace sluice::runtime::cuda::kernels {

using gpt::BFloat16;

//===----------------------------------------------------------------------===//
// Ends
//===----------------------------------------------------------------------===//

template <typename Real> struct Embed {
  const uint8_t *inputs;
  const Real *token, *position;
  Real *output;
  size_t sequence, width;
  SLUICE_DEVICE void operator()(size_t i) const {
    const size_t column = i % width, row = i / width;
    output[i] = Real(float(token[inputs[row] * width + column]) +
                     float(position[row % sequence * width + column]));
  }
};

template <typename Real>
cudaError_t embed(cudaStream_t stream, const uint8_t *inputs, const Real *token,
                  const Real *position, Real *output, size_t tokens,
                  size_t sequence, size_t width) {
  return forEach(stream, tokens * width,
                 Embed<Real>{inputs, token, position, output, sequence, width},
                 {reads(inputs, tokens), reads(token, width),
                  reads(position, sequence * width),
                  writes(output, tokens * width)});
}

template <typename Real> struct EmbedTokensBackward {
  BatchData batch;
  const Real *gradient;
  float *token;
  size_t width;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t value, const Team &team) const {
    const uint32_t begin = batch.starts[value], end = batch.starts[value + 1];
    if (begin == end)
      return;
    for (size_t column = team.thread(); column < width; column += team.size()) {
      float sum = token[value * width + column];
      for (uint32_t i = begin; i < end; ++i)
        sum += float(gradient[batch.order[i] * width + column]);
      token[value * width + column] = sum;
    }
  }
};

template <typename Real>
cudaError_t embedTokensBackward(cudaStream_t stream, const BatchData &batch,
                                const Real *outputGradient, float *token,
                                size_t tokens, size_t values, size_t width) {
  return forEachRow(
      stream, values,
      EmbedTokensBackward<Real>{batch, outputGradient, token, width},
      {reads(outputGradient, tokens * width),
       reads(batch.starts, kTokenValues + 1), reads(batch.order, tokens),
       writes(token, values * width)});
}

template <typename Real> struct EmbedPositionsBackward {
  const Real *gradient;
  float *position;
  size_t tokens, step; ///< elements of a sequence
  size_t width;
  SLUICE_DEVICE void operator()(size_t i) const {
    float sum = position[i];
    for (size_t at = i; at < tokens * width; at += step)
      sum += float(gradient[at]);
    position[i] = sum;
  }
};

template <typename Real>
cudaError_t embedPositionsBackward(cudaStream_t stream,
                                   const Real *outputGradient, float *position,
                                   size_t tokens, size_t sequence,
                                   size_t width) {
  const size_t step = sequence * width;
  return forEach(
      stream, step,
      EmbedPositionsBackward<Real>{outputGradient, position, tokens, step,
                                   width},
      {reads(outputGradient, tokens * width), writes(position, step)});
}

template <typename Real> struct CrossEntropy {
  Real *logits;
  const uint8_t *targets;
  float *losses;
  size_t vocab;
  float scale;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t row, const Team &team) const {
    Real *of = logits + row * vocab;
    const size_t target = targets[row];
    float peak = of[0];
    for (size_t i = team.thread(); i < vocab; i += team.size())
      peak = float(of[i]) > peak ? float(of[i]) : peak;
    peak = team.largest(peak);
    const float chosen = of[target];
    float sum = 0;
    for (size_t i = team.thread(); i < vocab; i += team.size())
      sum += expf(float(of[i]) - peak);
    sum = team.sum(sum); // behind it all have read what is chosen
    const float factor = scale / sum;
    for (size_t i = team.thread(); i < vocab; i += team.size())
      of[i] = Real(expf(float(of[i]) - peak) * factor -
                   (i == target ? scale : 0.0f));
    if (losses && team.thread() == 0)
      losses[row] = logf(sum) + (peak - chosen);
  }
};

template <typename Real>
cudaError_t crossEntropy(cudaStream_t stream, Real *logits,
                         const uint8_t *targets, float *losses, size_t tokens,
                         size_t vocab, float scale) {
  return forEachRow(stream, tokens,
                    CrossEntropy<Real>{logits, targets, losses, vocab, scale},
                    {writes(logits, tokens * vocab), reads(targets, tokens),
                     writes(losses, tokens)});
}

/// The sum of `count` numbers in double precision, known to all of the team.
template <typename Number, typename Team>
SLUICE_DEVICE double total(const Number *of, size_t count, const Team &team) {
  double sum = 0;
  for (size_t i = team.thread(); i < count; i += team.size())
    sum += double(of[i]);
  return team.sum(sum);
}

struct CountLoss {
  const float *losses;
  size_t tokens;
  StepData *step;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t, const Team &team) const {
    const double sum = total(losses, tokens, team);
    if (team.thread() != 0)
      return;
    step->lossSum += sum / double(tokens);
    step->lossCount += 1;
  }
};

cudaError_t countLoss(cudaStream_t stream, const float *losses, size_t tokens,
                      StepData *step) {
  return forEachRow(stream, 1, CountLoss{losses, tokens, step},
                    {reads(losses, tokens), writes(step, 1)});
}

//===----------------------------------------------------------------------===//
// The optimizer
//===----------------------------------------------------------------------===//

struct SumSquares {
  const float *part, *other;
  size_t count, each;
  double *sums;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t row, const Team &team) const {
    const size_t begin = row * each;
    const size_t end = begin + each < count ? begin + each : count;
    double sum = 0;
    for (size_t i = begin + team.thread(); i < end; i += team.size()) {
      const float gradient = other ? part[i] + other[i] : part[i];
      sum += double(gradient) * double(gradient);
    }
    sum = team.sum(sum);
    if (team.thread() == 0)
      sums[row] = sum;
  }
};

struct SumParts {
  const double *parts;
  size_t count;
  double *sum;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t, const Team &team) const {
    const double all = total(parts, count, team);
    if (team.thread() == 0)
      *sum = all;
  }
};

cudaError_t sumOfSquares(cudaStream_t stream, const float *part,
                         const float *other, size_t count, double *sum,
                         StepData *step) {
  constexpr size_t kLeast = 16384; // elements that are worth a part
  size_t parts = (count + kLeast - 1) / kLeast;
  parts = parts < 1 ? 1 : parts < kPartialSums ? parts : kPartialSums;
  const size_t each = (count + parts - 1) / parts;
  double *const sums = parts == 1 ? sum : step->partialSums;
  const cudaError_t code = forEachRow(
      stream, parts, SumSquares{part, other, count, each, sums},
      {reads(part, count), reads(other, count), writes(sums, parts)});
  if (code != cudaSuccess || parts == 1)
    return code;
  return forEachRow(stream, 1, SumParts{sums, parts, sum},
                    {reads(sums, parts), writes(sum, 1)});
}

struct Clip {
  const double *norms;
  size_t count;
  double limit;
  StepData *step;
  template <typename Team>
  SLUICE_DEVICE void operator()(size_t, const Team &team) const {
    const double factor = limit / (sqrt(total(norms, count, team)) + 1e-6);
    if (team.thread() == 0)
      step->factor = float(factor < 1.0 ? factor : 1.0);
  }
};

cudaError_t clip(cudaStream_t stream, const double *norms, size_t count,
                 double limit, StepData *step) {
  return forEachRow(stream, 1, Clip{norms, count, limit, step},
                    {reads(norms, count), writes(&step->factor, 1)});
}

SLUICE_DEVICE static void store(float *, float *parameters, size_t i,
                                float value) {
  parameters[i] = value;
}
SLUICE_DEVICE static void store(float *master, BFloat16 *parameters, size_t i,
                                float value) {
  master[i] = value;
  parameters[i] = BFloat16(value);
}

/// Kernels.h of the module has the formula and where it comes from.
template <typename Real> struct AdamW {
  Real *parameters;
  float *master;
  const float *gradients, *other;
  float *mean, *square;
  bool decay;
  const StepData *step;
  SLUICE_DEVICE void operator()(size_t i) const {
    float gradient = other ? gradients[i] + other[i] : gradients[i];
    gradient *= step->factor;
    const float m = 0.9f * mean[i] + float(1 - 0.9) * gradient;
    const float v = 0.95f * square[i] + float(1 - 0.95) * gradient * gradient;
    mean[i] = m;
    square[i] = v;
    const float old = master ? master[i] : float(parameters[i]);
    store(master, parameters, i,
          (decay ? step->keepDecayed : step->keep) * old -
              step->rate * (m * step->meanCorrection) /
                  (sqrtf(v * step->squareCorrection) + 1e-8f));
  }
};

template <typename Real>
cudaError_t adamW(cudaStream_t stream, Real *parameters, float *master,
                  const float *gradients, const float *other, float *mean,
                  float *square, size_t count, bool decay,
                  const StepData *step) {
  return forEach(stream, count,
                 AdamW<Real>{parameters, master, gradients, other, mean, square,
                             decay, step},
                 {writes(parameters, count), writes(master, count),
                  reads(gradients, count), reads(other, count),
                  writes(mean, count), writes(square, count), reads(step, 1)});
}

//===----------------------------------------------------------------------===//
// For both types
//===----------------------------------------------------------------------===//

// NOLINTBEGIN(bugprone-macro-parentheses): a type
#define SLUICE_INSTANTIATE(Real)                                               \
  template cudaError_t embed(cudaStream_t, const uint8_t *, const Real *,      \
                             const Real *, Real *, size_t, size_t, size_t);    \
  template cudaError_t embedTokensBackward(cudaStream_t, const BatchData &,    \
                                           const Real *, float *, size_t,      \
                                           size_t, size_t);                    \
  template cudaError_t embedPositionsBackward(                                 \
      cudaStream_t, const Real *, float *, size_t, size_t, size_t);            \
  template cudaError_t crossEntropy(cudaStream_t, Real *, const uint8_t *,     \
                                    float *, size_t, size_t, float);           \
  template cudaError_t adamW(cudaStream_t, Real *, float *, const float *,     \
                             const float *, float *, float *, size_t, bool,    \
                             const StepData *);
SLUICE_INSTANTIATE(float)
SLUICE_INSTANTIATE(BFloat16)
#undef SLUICE_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

} // namespace sluice::runtime::cuda::kernels
