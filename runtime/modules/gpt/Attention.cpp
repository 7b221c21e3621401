//===- runtime/modules/gpt/Attention.cpp - Causal multi-head attention ---===//
#include "runtime/modules/gpt/Attention.h"

#include <algorithm>
#include <cmath>

namespace sluice::gpt {
namespace {

/// Queries, keys and values of some heads side by side over one sequence,
/// within qkv.
template <typename Real> struct HeadsView {
  HeadsView(const Config &config, Real *qkv, size_t row, size_t firstHead,
            size_t heads)
      : count(heads), size(config.headSize()), length(config.sequence),
        stride(3 * size_t(config.hidden)),
        query(qkv + row * length * stride + firstHead * size),
        key(query + config.hidden), value(key + config.hidden),
        scale(1 / std::sqrt(double(size))) {}

  /// Of the first head; the next one's is `size` further on.
  auto view(const Real *data) const {
    return matrix(data, length, size, stride);
  }
  size_t square() const { return length * length; }

  size_t count, size, length, stride;
  Real *query, *key, *value;
  double scale;
};

template <typename Real>
void probabilities(Primitives<Real> &math, const HeadsView<Real> &heads,
                   Real *result) {
  math.multiply(heads.view(heads.query), transpose(heads.view(heads.key)),
                result, heads.length,
                {heads.count, heads.size, heads.size, heads.square()});
  math.causalSoftmax(result, heads.count, heads.length, heads.scale);
}

/// Gradients of some heads, with probabilities P and dO at their output: dV =
/// Pᵀ dO, dP = dO Vᵀ, dS by the softmax (which includes the scale), dQ = dS K,
/// dK = dSᵀ Q.
template <typename Real>
void headsBackward(Primitives<Real> &math, const HeadsView<Real> &heads,
                   const Real *p, Matrix<Real> outputGradient, Real *scratch) {
  const size_t length = heads.length, size = heads.size;
  const size_t square = heads.square();
  Real *s = scratch, *queryGradient = s + heads.count * square;
  math.multiply(outputGradient, transpose(heads.view(heads.value)), s, length,
                {heads.count, size, size, square});
  math.multiply(transpose(matrix(p, length, length)), outputGradient,
                heads.value, heads.stride, {heads.count, square, size, size});
  math.causalSoftmaxBackward(p, s, heads.count, length, heads.scale);
  Matrix<Real> scores = matrix<Real>(s, length, length);
  math.multiply(scores, heads.view(heads.key), queryGradient, size,
                {heads.count, square, size, length * size});
  math.multiply(transpose(scores), heads.view(heads.query), heads.key,
                heads.stride, {heads.count, square, size, size});
  math.placeHeads(queryGradient, heads.query, heads.count, length, size,
                  heads.stride);
}

/// Calls `visit` for some heads over each sequence at a time, as many as
/// `room` has elements for, each taking `each`: their view, where their part of
/// an output starts, and where their probabilities are among all.
template <typename Real, typename Visit>
void forHeads(const Primitives<Real> &math, const Config &config, Real *qkv,
              size_t room, size_t each, Visit visit) {
  const size_t length = config.sequence, width = config.hidden;
  const size_t most = math.atOnce(std::clamp<size_t>(
      each == 0 ? config.heads : room / each, 1, config.heads));
  for (size_t row = 0; row < config.microbatchSize; ++row)
    for (size_t first = 0; first < config.heads; first += most) {
      const HeadsView<Real> heads(config, qkv, row, first,
                                  std::min(most, config.heads - first));
      visit(heads, row * length * width + first * heads.size,
            (row * config.heads + first) * length * length);
    }
}

} // namespace

// What is only read below is not const: HeadsView serves the backward pass too.
template <typename Real>
void attention(Primitives<Real> &math, const Config &config, const Real *qkv,
               Real *output, Real *stored, Scratch<Real> scratch) {
  const size_t length = config.sequence, square = length * length;
  forHeads(math, config, const_cast<Real *>(qkv), scratch.elements,
           stored ? 0 : square,
           [&](const HeadsView<Real> &heads, size_t at, size_t first) {
             Real *p = stored ? stored + first : scratch.data;
             probabilities(math, heads, p);
             math.multiply(matrix<Real>(p, length, length),
                           heads.view(heads.value), output + at, config.hidden,
                           {heads.count, square, heads.size, heads.size});
           });
}

template <typename Real>
void attentionProbabilities(Primitives<Real> &math, const Config &config,
                            const Real *qkv, Real *stored) {
  forHeads(math, config, const_cast<Real *>(qkv), 0, 0,
           [&](const HeadsView<Real> &heads, size_t, size_t first) {
             probabilities(math, heads, stored + first);
           });
}

template <typename Real>
void attentionBackward(Primitives<Real> &math, const Config &config, Real *qkv,
                       const Real *outputGradient, const Real *stored,
                       Scratch<Real> scratch) {
  const size_t length = config.sequence, square = length * length;
  forHeads(math, config, qkv, scratch.elements,
           (stored ? 1 : 2) * square + length * config.headSize(),
           [&](const HeadsView<Real> &heads, size_t at, size_t first) {
             Real *again = scratch.data;
             Real *rest = stored ? again : again + heads.count * square;
             if (!stored)
               probabilities(math, heads, again);
             headsBackward(
                 math, heads, stored ? stored + first : again,
                 matrix(outputGradient + at, length, heads.size, config.hidden),
                 rest);
           });
}

// NOLINTBEGIN(bugprone-macro-parentheses): a type
#define SLUICE_INSTANTIATE(Real)                                               \
  template void attention(Primitives<Real> &, const Config &, const Real *,    \
                          Real *, Real *, Scratch<Real>);                      \
  template void attentionProbabilities(Primitives<Real> &, const Config &,     \
                                       const Real *, Real *);                  \
  template void attentionBackward(Primitives<Real> &, const Config &, Real *,  \
                                  const Real *, const Real *, Scratch<Real>);
SLUICE_INSTANTIATE(float)
SLUICE_INSTANTIATE(double)
SLUICE_INSTANTIATE(BFloat16)
#undef SLUICE_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

} // namespace sluice::gpt
