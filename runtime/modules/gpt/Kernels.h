//===- runtime/modules/gpt/Kernels.h - Row-wise and element-wise work ----===//
//
// All for float and double. Sums run in a fixed order that does not depend on
// addresses, so that results are the same bit for bit wherever buffers lie.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_KERNELS_H
#define SLUICE_RUNTIME_MODULES_GPT_KERNELS_H

#include <cstddef>
#include <cstdint>

namespace sluice::gpt {

/// e^x with a relative error of a few units in the last place; x is first cut
/// to ±64 (for double ±512), so that the result times usual numbers is a normal
/// number: others are slow. Without branches, so that compilers vectorise it:
/// x = n ln 2 + r, 2^n by its bits, e^r by Taylor's series.
template <typename Real> Real exponential(Real x);

/// output = (x - mean) / sqrt(variance + 1e-5) · weight + bias, row by row.
template <typename Real>
void layerNorm(const Real *x, const Real *weight, const Real *bias,
               Real *output, size_t rows, size_t width);

/// Replaces x by the gradient at the norm's input, given that at its output,
/// plus `residual` if that is not null (not x itself). Mean and deviation are
/// computed again. Adds to the gradients of weight and bias, row after row.
template <typename Real>
void layerNormBackward(Real *x, const Real *weight, const Real *outputGradient,
                       const Real *residual, Real *weightGradient,
                       Real *biasGradient, size_t rows, size_t width);

/// gelu(x) = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))): Hendrycks and Gimpel,
/// "Gaussian error linear units", 2016, the tanh form.
template <typename Real> void gelu(const Real *x, Real *output, size_t count);

/// Replaces x by the gradient at gelu's input.
template <typename Real>
void geluBackward(Real *x, const Real *outputGradient, size_t count);

/// Causal softmax of the square matrix `scores` · scale, in place: row i over
/// its first i + 1 elements, the others become 0. scale > 0.
template <typename Real>
void causalSoftmax(Real *scores, size_t size, Real scale);

/// Replaces `gradients` at the probabilities by those at the scores.
template <typename Real>
void causalSoftmaxBackward(const Real *probabilities, Real *gradients,
                           size_t size, Real scale);

/// Cross entropy of one row, in nats. Replaces the logits by their gradients
/// times `scale`.
template <typename Real>
double crossEntropy(Real *logits, size_t count, size_t target, Real scale);

/// Each of the rows of `output` becomes `row`.
template <typename Real>
void repeatRow(const Real *row, Real *output, size_t rows, size_t width);

/// output = a + row, for each row of a.
template <typename Real>
void addRow(const Real *a, const Real *row, Real *output, size_t rows,
            size_t width);

/// sum += a, element by element.
template <typename Real> void addTo(Real *sum, const Real *a, size_t count);

/// sum += each row of a, in order.
template <typename Real>
void addRows(Real *sum, const Real *a, size_t rows, size_t width);

/// Gradients that stand in one place, or in two whose sum they are.
template <typename Real> struct Sum {
  const Real *part, *other; ///< other: null for one place
};

/// Sum of the squares of gradients, in a fixed order, by eight sums that are
/// then added.
template <typename Real> double sumOfSquares(Sum<Real> gradients, size_t count);

/// By what gradients of norm `norm` are multiplied, so that it is at most
/// `limit`: limit / (norm + 1e-6) where that is below 1 (PyTorch,
/// clip_grad_norm_, which takes it from Pascanu et al., "On the difficulty of
/// training recurrent neural networks", 2013).
double clipFactor(double norm, double limit);

/// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization",
/// 2019): β = 0.9 and 0.95, ε = 1e-8, of gradients times `factor`. `step`
/// counts from 0.
struct AdamW {
  AdamW(double rate, uint64_t step, double factor = 1);

  template <typename Real>
  void update(Real *parameters, Sum<Real> gradients, Real *mean, Real *square,
              size_t count, bool decay) const;

  static constexpr double kMeanRate = 0.9, kSquareRate = 0.95;
  static constexpr double kEpsilon = 1e-8, kDecay = 0.1;

private:
  double learningRate, gradientFactor;
  double meanCorrection, squareCorrection; ///< 1 / (1 - β^(step+1))
};

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_KERNELS_H
