//===- runtime/modules/gpt/Attention.h - Causal multi-head attention -----===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_ATTENTION_H
#define SLUICE_RUNTIME_MODULES_GPT_ATTENTION_H

#include "runtime/modules/gpt/Config.h"
#include "runtime/modules/gpt/Primitives.h"

namespace sluice::gpt {

/// output (T x h) = for each sequence and head, softmax(Q Kᵀ / √d) V over the
/// positions up to one's own; d = h / heads. qkv is T x 3h: a token's queries,
/// keys and values, each head by head. Leaves the probabilities in `stored`
/// (T·heads·s), unless that is null. Scratch, where it is: s², more for more
/// heads at once.
template <typename Real>
void attention(Primitives<Real> &math, const Config &config, const Real *qkv,
               Real *output, Real *stored, Scratch<Real> scratch);

/// The probabilities alone.
template <typename Real>
void attentionProbabilities(Primitives<Real> &math, const Config &config,
                            const Real *qkv, Real *stored);

/// Replaces qkv by its gradients, given those of the output (T x h). The
/// probabilities are computed again where `stored` is null. Scratch: 2s² + s·d,
/// more for more heads at once.
template <typename Real>
void attentionBackward(Primitives<Real> &math, const Config &config, Real *qkv,
                       const Real *outputGradient, const Real *stored,
                       Scratch<Real> scratch);

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_ATTENTION_H
