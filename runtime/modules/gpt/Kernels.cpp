//===- runtime/modules/gpt/Kernels.cpp - Row-wise and element-wise work --===//
#include "runtime/modules/gpt/Kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

namespace sluice::gpt {
namespace {

/// Sums are taken in this many interleaved parts, which are then added in
/// order: a fixed order that fills vector registers.
constexpr size_t kLanes = 16;

template <typename Real, typename Combine>
Real reduceLanes(const std::array<Real, kLanes> &lanes, Combine combine) {
  Real result = lanes[0];
  for (size_t lane = 1; lane < kLanes; ++lane)
    result = combine(result, lanes[lane]);
  return result;
}

/// Sum of term(0) … term(count - 1).
template <typename Real, typename Term> Real sumOf(size_t count, Term term) {
  std::array<Real, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += term(i + lane);
  for (size_t lane = 0; i + lane < count; ++lane)
    lanes[lane] += term(i + lane);
  return reduceLanes(lanes, [](Real a, Real b) { return a + b; });
}

template <typename Real> Real larger(Real a, Real b) { return a < b ? b : a; }

/// The largest of at least one value.
template <typename Real> Real largest(const Real *values, size_t count) {
  std::array<Real, kLanes> lanes;
  lanes.fill(values[0]);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = larger(lanes[lane], values[i + lane]);
  for (; i < count; ++i)
    lanes[0] = larger(lanes[0], values[i]);
  return reduceLanes(lanes, larger<Real>);
}

/// What exponential needs to know of a type. Adding `shift` (1.5 · 2^mantissa)
/// rounds to a whole number and leaves it in the low bits of the sum.
template <typename Real> struct ExponentialTraits;
template <> struct ExponentialTraits<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23, kDegree = 7;
  static constexpr float kShift = 0x1.8p23f, kLimit = 64.0f;
  static constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
};
template <> struct ExponentialTraits<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52, kDegree = 13;
  static constexpr double kShift = 0x1.8p52, kLimit = 512.0;
  static constexpr double kLn2High = 0x1.62e42feep-1;
  static constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
};

/// 1/n! for n = 0 …
template <typename Real>
constexpr auto kTaylor = [] {
  std::array<Real, ExponentialTraits<Real>::kDegree + 1> result{};
  double value = 1;
  for (size_t n = 0; n < result.size(); ++n) {
    result[n] = Real(value);
    value /= double(n + 1);
  }
  return result;
}();

template <typename Real> inline Real exponentialInline(Real x) {
  using Traits = ExponentialTraits<Real>;
  using Bits = typename Traits::Bits;
  x = x < -Traits::kLimit ? -Traits::kLimit : x;
  x = x > Traits::kLimit ? Traits::kLimit : x;
  Real shifted = x * std::numbers::log2e_v<Real> + Traits::kShift;
  Real n = shifted - Traits::kShift;
  Real r = (x - n * Traits::kLn2High) - n * Traits::kLn2Low;
  Real sum = kTaylor<Real>[Traits::kDegree];
  for (int i = Traits::kDegree - 1; i >= 0; --i)
    sum = sum * r + kTaylor<Real>[i];
  Bits power = (std::bit_cast<Bits>(shifted) << Traits::kMantissa) +
               std::bit_cast<Bits>(Real(1));
  return sum * std::bit_cast<Real>(power);
}

/// Overwrites a row by e^((x - largest) scale); returns the sum.
template <typename Real>
Real exponentials(Real *row, size_t count, Real peak, Real scale) {
  for (size_t i = 0; i < count; ++i)
    row[i] = exponentialInline((row[i] - peak) * scale);
  return sumOf<Real>(count, [row](size_t i) { return row[i]; });
}

/// Mean and inverse deviation of a row.
template <typename Real> struct Moments {
  Real mean, inverse;
  Moments(const Real *x, size_t width) {
    constexpr Real kEpsilon = Real(1e-5);
    mean = sumOf<Real>(width, [x](size_t i) { return x[i]; }) / Real(width);
    auto square = [x, m = mean](size_t i) { return (x[i] - m) * (x[i] - m); };
    Real variance = sumOf<Real>(width, square) / Real(width);
    inverse = Real(1) / std::sqrt(variance + kEpsilon);
  }
};

/// One row of layerNormBackward, without the residual. With g the output's
/// gradient times weight and n the normed row, the gradient at the input is
/// (g - mean(g) - n mean(g n)) / deviation.
template <typename Real>
void layerNormBackwardRow(Real *x, const Real *weight, const Real *gradient,
                          Real *weightGradient, Real *biasGradient,
                          size_t width) {
  const Moments<Real> moments(x, width);
  const Real mean = moments.mean, inverse = moments.inverse;
  Real shift =
      sumOf<Real>(width, [=](size_t i) { return gradient[i] * weight[i]; });
  Real slope = sumOf<Real>(width, [=](size_t i) {
    return gradient[i] * weight[i] * ((x[i] - mean) * inverse);
  });
  shift /= Real(width);
  slope /= Real(width);
  for (size_t i = 0; i < width; ++i) {
    Real normed = (x[i] - mean) * inverse;
    weightGradient[i] += gradient[i] * normed;
    biasGradient[i] += gradient[i];
    x[i] = inverse * (gradient[i] * weight[i] - shift - normed * slope);
  }
}

/// gelu(x) = x / (1 + e^-2u), since 1 + tanh(u) = 2 / (1 + e^-2u).
template <typename Real>
constexpr Real kGeluScale =
    Real(2) * std::numbers::sqrt2_v<Real> *std::numbers::inv_sqrtpi_v<Real>;
template <typename Real> constexpr Real kGeluCubic = Real(0.044715);

/// 1 / (1 + e^-2u).
template <typename Real> inline Real geluGate(Real x) {
  Real twice = kGeluScale<Real> * (x + kGeluCubic<Real> * x * x * x);
  return Real(1) / (Real(1) + exponentialInline(-twice));
}

} // namespace

template <typename Real> Real exponential(Real x) {
  return exponentialInline(x);
}

template <typename Real>
void layerNorm(const Real *x, const Real *weight, const Real *bias,
               Real *output, size_t rows, size_t width) {
  for (size_t row = 0; row < rows; ++row, x += width, output += width) {
    const Moments<Real> moments(x, width);
    for (size_t i = 0; i < width; ++i)
      output[i] = (x[i] - moments.mean) * moments.inverse * weight[i] + bias[i];
  }
}

template <typename Real>
void layerNormBackward(Real *x, const Real *weight, const Real *outputGradient,
                       const Real *residual, Real *weightGradient,
                       Real *biasGradient, size_t rows, size_t width) {
  for (size_t row = 0; row < rows; ++row) {
    size_t at = row * width;
    layerNormBackwardRow(x + at, weight, outputGradient + at, weightGradient,
                         biasGradient, width);
    if (residual)
      addTo(x + at, residual + at, width);
  }
}

template <typename Real> void gelu(const Real *x, Real *output, size_t count) {
  for (size_t i = 0; i < count; ++i)
    output[i] = x[i] * geluGate(x[i]);
}

template <typename Real>
void geluBackward(Real *x, const Real *outputGradient, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Real gate = geluGate(x[i]);
    Real slope =
        kGeluScale<Real> * (Real(1) + Real(3) * kGeluCubic<Real> * x[i] * x[i]);
    x[i] = outputGradient[i] * (gate + x[i] * gate * (Real(1) - gate) * slope);
  }
}

template <typename Real>
void causalSoftmax(Real *scores, size_t size, Real scale) {
  for (size_t row = 0; row < size; ++row, scores += size) {
    size_t visible = row + 1;
    Real peak = largest(scores, visible);
    Real inverse = Real(1) / exponentials(scores, visible, peak, scale);
    for (size_t i = 0; i < visible; ++i)
      scores[i] *= inverse;
    std::fill(scores + visible, scores + size, Real(0));
  }
}

template <typename Real>
void causalSoftmaxBackward(const Real *probabilities, Real *gradients,
                           size_t size, Real scale) {
  for (size_t row = 0; row < size; ++row) {
    const Real *p = probabilities + row * size;
    Real *g = gradients + row * size;
    size_t visible = row + 1;
    Real mean = sumOf<Real>(visible, [=](size_t i) { return p[i] * g[i]; });
    for (size_t i = 0; i < visible; ++i)
      g[i] = p[i] * (g[i] - mean) * scale;
    std::fill(g + visible, g + size, Real(0));
  }
}

template <typename Real>
double crossEntropy(Real *logits, size_t count, size_t target, Real scale) {
  Real peak = largest(logits, count);
  Real chosen = logits[target];
  Real sum = exponentials(logits, count, peak, Real(1));
  Real factor = scale / sum;
  for (size_t i = 0; i < count; ++i)
    logits[i] *= factor;
  logits[target] -= scale;
  return std::log(double(sum)) + (double(peak) - double(chosen));
}

template <typename Real>
void repeatRow(const Real *row, Real *output, size_t rows, size_t width) {
  for (size_t i = 0; i < rows; ++i)
    std::copy_n(row, width, output + i * width);
}

template <typename Real>
void addRow(const Real *a, const Real *row, Real *output, size_t rows,
            size_t width) {
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < width; ++j)
      output[i * width + j] = a[i * width + j] + row[j];
}

template <typename Real> void addTo(Real *sum, const Real *a, size_t count) {
  for (size_t i = 0; i < count; ++i)
    sum[i] += a[i];
}

template <typename Real>
void addRows(Real *sum, const Real *a, size_t rows, size_t width) {
  for (size_t i = 0; i < rows; ++i)
    addTo(sum, a + i * width, width);
}

template <typename Real>
double sumOfSquares(Sum<Real> gradients, size_t count) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  auto add = [&](size_t begin, size_t size) {
    for (size_t lane = 0; lane < size; ++lane) {
      Real gradient = gradients.part[begin + lane];
      if (gradients.other)
        gradient += gradients.other[begin + lane];
      sums[lane] += double(gradient) * double(gradient);
    }
  };
  size_t begin = 0;
  for (; begin + kSums <= count; begin += kSums)
    add(begin, kSums);
  add(begin, count - begin);
  double total = 0;
  for (double sum : sums)
    total += sum;
  return total;
}

double clipFactor(double norm, double limit) {
  constexpr double kEpsilon = 1e-6;
  return std::min(1.0, limit / (norm + kEpsilon));
}

AdamW::AdamW(double rate, uint64_t step, double factor)
    : learningRate(rate), gradientFactor(factor),
      meanCorrection(1 / (1 - std::pow(kMeanRate, double(step) + 1))),
      squareCorrection(1 / (1 - std::pow(kSquareRate, double(step) + 1))) {}

template <typename Real>
void AdamW::update(Real *parameters, Sum<Real> gradients, Real *mean,
                   Real *square, size_t count, bool decay) const {
  const Real rate1 = Real(kMeanRate), new1 = Real(1 - kMeanRate);
  const Real rate2 = Real(kSquareRate), new2 = Real(1 - kSquareRate);
  const Real correct1 = Real(meanCorrection);
  const Real correct2 = Real(squareCorrection);
  const Real step = Real(learningRate), epsilon = Real(kEpsilon);
  const Real factor = Real(gradientFactor);
  const Real keep = Real(1 - (decay ? learningRate * kDecay : 0));
  for (size_t i = 0; i < count; ++i) {
    Real gradient = gradients.part[i];
    if (gradients.other)
      gradient += gradients.other[i];
    gradient *= factor;
    mean[i] = rate1 * mean[i] + new1 * gradient;
    square[i] = rate2 * square[i] + new2 * gradient * gradient;
    parameters[i] =
        keep * parameters[i] - step * (mean[i] * correct1) /
                                   (std::sqrt(square[i] * correct2) + epsilon);
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): a type
#define SLUICE_INSTANTIATE(Real)                                               \
  template Real exponential(Real);                                             \
  template void layerNorm(const Real *, const Real *, const Real *, Real *,    \
                          size_t, size_t);                                     \
  template void layerNormBackward(Real *, const Real *, const Real *,          \
                                  const Real *, Real *, Real *, size_t,        \
                                  size_t);                                     \
  template void gelu(const Real *, Real *, size_t);                            \
  template void geluBackward(Real *, const Real *, size_t);                    \
  template void causalSoftmax(Real *, size_t, Real);                           \
  template void causalSoftmaxBackward(const Real *, Real *, size_t, Real);     \
  template double crossEntropy(Real *, size_t, size_t, Real);                  \
  template void repeatRow(const Real *, Real *, size_t, size_t);               \
  template void addRow(const Real *, const Real *, Real *, size_t, size_t);    \
  template void addTo(Real *, const Real *, size_t);                           \
  template void addRows(Real *, const Real *, size_t, size_t);                 \
  template double sumOfSquares(Sum<Real>, size_t);                             \
  template void AdamW::update(Real *, Sum<Real>, Real *, Real *, size_t, bool) \
      const;

SLUICE_INSTANTIATE(float)
SLUICE_INSTANTIATE(double)
#undef SLUICE_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

} // namespace sluice::gpt
