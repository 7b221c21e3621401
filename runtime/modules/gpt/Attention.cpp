//===- runtime/modules/gpt/Attention.cpp - Causal multi-head attention ---===//
#include "runtime/modules/gpt/Attention.h"

#include "runtime/modules/gpt/Kernels.h"
#include "runtime/modules/gpt/MatrixProduct.h"

#include <algorithm>
#include <cmath>

namespace sluice::gpt {
namespace {

/// Queries, keys and values of one head over one sequence, within qkv.
template <typename Real> struct HeadView {
  HeadView(const Config &config, Real *qkv, size_t row, size_t head)
      : size(config.headSize()), length(config.sequence),
        stride(3 * size_t(config.hidden)),
        query(qkv + row * length * stride + head * size),
        key(query + config.hidden), value(key + config.hidden),
        scale(Real(1 / std::sqrt(double(size)))) {}

  auto view(const Real *data) const {
    return matrix(data, length, size, stride);
  }

  size_t size, length, stride;
  Real *query, *key, *value;
  Real scale;
};

template <typename Real>
void probabilities(const HeadView<Real> &head, Real *result) {
  multiply(head.view(head.query), transpose(head.view(head.key)), result);
  causalSoftmax(result, head.length, head.scale);
}

/// Gradients of one head, with probabilities P and dO at its output: dV = Pᵀ
/// dO, dP = dO Vᵀ, dS by the softmax (which includes the scale), dQ = dS K, dK
/// = dSᵀ Q.
template <typename Real>
void headBackward(const HeadView<Real> &head, const Real *p,
                  Matrix<Real> outputGradient, Real *workspace) {
  const size_t length = head.length;
  Real *s = workspace, *queryGradient = s + length * length;
  multiply(outputGradient, transpose(head.view(head.value)), s);
  multiply(transpose(matrix(p, length, length)), outputGradient, head.value,
           head.stride);
  causalSoftmaxBackward(p, s, length, head.scale);
  Matrix<Real> scores = matrix(s, length, length);
  multiply(scores, head.view(head.key), queryGradient);
  multiply(transpose(scores), head.view(head.query), head.key, head.stride);
  for (size_t i = 0; i < length; ++i)
    std::copy_n(queryGradient + i * head.size, head.size,
                head.query + i * head.stride);
}

/// Calls `visit` for each head over each sequence: its view, where its part of
/// an output starts, and the number of its probabilities among all.
template <typename Real, typename Visit>
void forHeads(const Config &config, Real *qkv, Visit visit) {
  const size_t length = config.sequence, width = config.hidden;
  for (size_t row = 0; row < config.microbatchSize; ++row)
    for (size_t i = 0; i < config.heads; ++i) {
      HeadView<Real> head(config, qkv, row, i);
      visit(head, row * length * width + i * head.size,
            (row * config.heads + i) * length * length);
    }
}

} // namespace

// What is only read below is not const: HeadView serves the backward pass too.
template <typename Real>
void attention(const Config &config, const Real *qkv, Real *output,
               Real *stored, Real *workspace) {
  const size_t length = config.sequence;
  forHeads(config, const_cast<Real *>(qkv),
           [&](const HeadView<Real> &head, size_t at, size_t first) {
             Real *p = stored ? stored + first : workspace;
             probabilities(head, p);
             multiply(matrix<Real>(p, length, length), head.view(head.value),
                      output + at, config.hidden);
           });
}

template <typename Real>
void attentionProbabilities(const Config &config, const Real *qkv,
                            Real *stored) {
  forHeads(config, const_cast<Real *>(qkv),
           [&](const HeadView<Real> &head, size_t, size_t first) {
             probabilities(head, stored + first);
           });
}

template <typename Real>
void attentionBackward(const Config &config, Real *qkv,
                       const Real *outputGradient, const Real *stored,
                       Real *workspace) {
  const size_t length = config.sequence, square = length * length;
  forHeads(config, qkv,
           [&](const HeadView<Real> &head, size_t at, size_t first) {
             if (!stored)
               probabilities(head, workspace);
             headBackward(
                 head, stored ? stored + first : workspace,
                 matrix(outputGradient + at, length, head.size, config.hidden),
                 workspace + square);
           });
}

template void attention(const Config &, const float *, float *, float *,
                        float *);
template void attention(const Config &, const double *, double *, double *,
                        double *);
template void attentionProbabilities(const Config &, const float *, float *);
template void attentionProbabilities(const Config &, const double *, double *);
template void attentionBackward(const Config &, float *, const float *,
                                const float *, float *);
template void attentionBackward(const Config &, double *, const double *,
                                const double *, double *);

} // namespace sluice::gpt
