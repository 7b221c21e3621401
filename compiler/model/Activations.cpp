//===- compiler/model/Activations.cpp - Bytes that layers save ------------===//
//
// h hidden, q = heads * head_dim, k = kv_heads * head_dim, a heads, T tokens of
// a microbatch on one device: sequence * microbatch_size / context_parallel;
// e bytes of a number, t tensor_parallel.
//
// Saved by a block's forward, numbers per token (Korthikanti et al., arXiv
// 2205.05198, section 4.1 and equations 1 to 6):
//   of which every device of the group holds all, unless sequence parallelism
//   divides them by t: input h, first norm h, residual h, second norm h;
//   divided by t: queries q, keys and values 2k, attention output q, MLP 2f
//   (before and after the activation; gated: gate, up and product 3f).
// With q = k = h, f = 4h: 16h numbers, 32h bytes in 16 bits; two dropout masks
// of a byte each, held as the first kind, make it 34h: (10 + 24/t) h, with
// sequence parallelism 34h/t. Without flash attention also the attention
// matrix before and after dropout, and with dropout its mask: a/t * sequence *
// (2e + 1) bytes, 5as/t. W needs all of it but the masks and the matrix.
//
// Variants: qk_norm saves queries and keys before the norm too; post_norms the
// inputs of those two norms. MLA saves both ranks before and after their norm
// and the rotated key's qk_rope, held as the first kind, and the heads'
// queries, keys, values and output. A block with experts saves the router's
// scores and, for each of topk experts, a copy of the token's h numbers, its
// output of h, and an MLP of moe_ffn; shared experts an MLP each. Every expert
// is taken to get the same number of tokens, so that expert parallelism changes
// none of this.
//
// Recomputation (section 5): selective makes the attention matrix and its mask
// again; full all, from the stage's input, which is that of its first layer, h
// numbers a token. A forward that leaves only that works through a layer in its
// workspace, with the matrix of one head.
//
// Head: input and output of the norm, and the scores of the vocabulary, which
// are divided by t, per prediction.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Activations.h"

namespace sluice {

namespace {

/// Numbers per token that a block saves on one device.
struct Saved {
  Wide whole = 0;   ///< divided only by sequence parallelism
  Wide divided = 0; ///< what is left of it after tensor parallelism
  Wide scratch = 0; ///< of the MLP, divided
};

void addAttention(const Shape &x, Saved &saved) {
  Wide queries = x.queries() / x.t, attended = x.attended() / x.t;
  saved.divided += queries + attended;
  if (x.kvRank) {
    saved.whole += 2 * (x.qRank + x.kvRank) + x.rope;
    saved.divided += queries + attended; // keys and values of every head
    return;
  }
  Wide keys = x.deviceKvHeads() * x.headDim;
  saved.divided += 2 * keys;
  if (x.qkNorm)
    saved.divided += queries + keys;
}

void addMlp(const Shape &x, bool withExperts, Saved &saved) {
  Wide each = x.gated ? 3 : 2;
  if (!withExperts) {
    saved.divided += each * x.f / x.t;
    saved.scratch = 2 * x.f / x.t;
    return;
  }
  saved.whole += x.experts + 2 * x.topk * x.h;
  saved.divided += each * (x.topk + x.shared) * x.moeFfn / x.t;
  saved.scratch = 2 * (x.topk + x.shared) * x.moeFfn / x.t;
}

/// Bytes per microbatch of what a block's forward makes.
struct BlockBytes {
  Wide numbers; ///< what W needs
  Wide masks;
  Wide matrix; ///< the attention matrix and its mask, if it is stored
  Wide input;
  Wide workspace;
  Wide forwardWorkspace;
};

BlockBytes blockBytes(const Shape &x, bool withExperts) {
  Saved saved;
  saved.whole = (x.postNorms ? 6 : 4) * x.h;
  addAttention(x, saved);
  addMlp(x, withExperts, saved);
  Wide whole = x.tokens / x.wholeBy();
  BlockBytes bytes;
  bytes.numbers = x.e * (whole * saved.whole + x.tokens * saved.divided);
  bytes.masks = x.dropout ? whole * 2 * x.h : 0;
  bytes.matrix = x.flash ? 0
                         : x.tokens * (x.heads / x.t) * x.s *
                               (2 * x.e + (x.dropout ? 1 : 0));
  bytes.input = x.e * whole * x.h;
  Wide matrixOfHead = x.s * (x.s / x.c);
  bytes.workspace =
      x.e * (whole * 4 * x.h + x.tokens * saved.scratch + 2 * matrixOfHead);
  bytes.forwardWorkspace = bytes.numbers + x.e * matrixOfHead;
  return bytes;
}

} // namespace

void setBlockBytes(Layer &layer, const Shape &shape, bool withExperts) {
  BlockBytes bytes = blockBytes(shape, withExperts);
  layer.activation = toBytes(bytes.numbers + bytes.masks + bytes.matrix);
  layer.keptForWeight = toBytes(bytes.numbers);
  layer.remade = toBytes(bytes.matrix);
  layer.checkpoint = toBytes(bytes.input);
  layer.workspace = toBytes(bytes.workspace);
  layer.forwardWorkspace = toBytes(bytes.forwardWorkspace);
  layer.output = boundaryBytes(shape);
}

void setHeadBytes(Layer &layer, const Shape &x) {
  Wide whole = x.tokens / x.wholeBy(), times = x.mtp + 1;
  Wide scores = x.tokens * ((x.vocab + x.t - 1) / x.t);
  layer.activation = toBytes(times * x.e * (whole * 2 * x.h + scores));
  layer.keptForWeight = toBytes(times * x.e * (whole * x.h + scores));
  layer.workspace = toBytes(x.e * whole * 2 * x.h);
  layer.forwardWorkspace = layer.activation;
  layer.checkpoint = boundaryBytes(x);
}

Bytes boundaryBytes(const Shape &x) {
  return toBytes(x.e * (x.tokens / x.wholeBy()) * x.h);
}

} // namespace sluice
