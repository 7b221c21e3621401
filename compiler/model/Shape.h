//===- compiler/model/Shape.h - A transformer's layers as matrices --------===//
//
// Parameters and operations of every variant of a block follow from the list of
// its matrices: a variant is a row of the list, not a formula of its own.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_MODEL_SHAPE_H
#define SLUICE_COMPILER_MODEL_SHAPE_H

#include "compiler/model/Layer.h"

#include <utility>
#include <vector>

namespace sluice {

struct Spec;

/// How tensor parallelism divides a matrix among the devices of a rank
/// (Shoeybi et al., arXiv 1909.08053): by what goes out, by what comes in, or
/// not at all.
enum class Split : uint8_t { Out, In, None };

/// A matrix of `out` rows and `in` columns that is applied to every token.
struct Matrix {
  Wide in = 0, out = 0;
  Split split = Split::None;
  /// What is divided comes in so many equal parts (heads, …), none of which is
  /// cut: with more devices than parts several hold the same.
  Wide parts = 1;
  bool bias = false; ///< `out` more parameters
  /// Experts: there are `count`, of which a token uses `active`.
  bool expert = false;
  Wide count = 1, active = 1;
  CostKind kind = CostKind::Projections;
};

/// What a layer of a transformer is made of.
struct LayerParts {
  std::vector<Matrix> matrices;
  Wide vectors = 0;   ///< parameters of norms, of which every device has all
  Wide wideNorms = 0; ///< of these norms, how many are of `hidden`
};

/// A transformer's dimensions and those of the group of devices that computes
/// it, widened so that products of four of the spec's numbers fit.
struct Shape {
  explicit Shape(const Spec &spec);

  Wide h, f, heads, kvHeads, headDim, vocab, s, positions;
  Wide e; ///< bytes of a number
  bool gated, learned, rotary, flash, dropout, tied, embedNorm, qkNorm,
      postNorms;
  bool qkvBias, outputBias, mlpBias, routerBias, sharedGate, layerNorm;
  Wide experts, topk, moeFfn, shared, dense; ///< experts 0: none
  Wide qRank, kvRank, nope, rope, vHead;     ///< kvRank 0: no MLA
  Wide layers, mtp;

  Wide t, c, ep; ///< tensor, context and expert parallel sizes
  bool sequenceParallel;
  Wide tokens; ///< of a microbatch, on one device of the context group

  /// Widths of all heads together.
  Wide queries() const { return heads * (kvRank ? nope + rope : headDim); }
  Wide attended() const { return heads * (kvRank ? vHead : headDim); }
  Wide keys() const { return kvHeads * headDim; }
  /// Heads of keys and values that one device has.
  Wide deviceKvHeads() const { return (kvHeads + t - 1) / t; }
  Wide norm(Wide width) const { return layerNorm ? 2 * width : width; }
  /// By how many devices those numbers of a token are divided that tensor
  /// parallelism alone leaves whole.
  Wide wholeBy() const { return sequenceParallel ? t : 1; }
};

LayerParts embeddingParts(const Shape &shape);
/// The block at `index`, dense or with experts.
LayerParts blockParts(const Shape &shape, bool withExperts);
/// A layer of multi-token prediction: two norms, a projection of both inputs, a
/// block, and a norm before the head it shares with the model (DeepSeek-V3,
/// arXiv 2412.19437, section 2.2). Embedding and head are the model's.
LayerParts mtpParts(const Shape &shape);
/// The final norm and, unless it is the embedding's table, the matrix to the
/// vocabulary.
LayerParts headParts(const Shape &shape);

/// Parameters of the layer, of those what one token uses, and what one device
/// holds; at most 2^63.
void setParameters(Layer &layer, const LayerParts &parts, const Shape &shape);

/// What goes into a matrix and what comes out of it on one device: those of the
/// part that it holds, of one expert if there are several.
std::pair<Wide, Wide> heldSides(const Matrix &matrix, const Shape &shape);

constexpr Bytes toBytes(Wide value) { return toCount(value); }

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_SHAPE_H
