//===- runtime/modules/gpt/Parameters.h - The tensors of the parameters --===//
//
// One table a part (embedding, block, head) says which tensors there are; the
// layout of the buffers, names, initial values and decay all follow it. Within
// a stage's buffers the tensors stand one after the other, without padding.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_PARAMETERS_H
#define SLUICE_RUNTIME_MODULES_GPT_PARAMETERS_H

#include "runtime/modules/gpt/Config.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::gpt {

/// Initial values. Normal: deviation 0.02; Residual: that over sqrt(2 layers),
/// for the two matrices of a block that add to the residual stream (Radford et
/// al., "Language models are unsupervised multitask learners", 2019).
enum class Initial : uint8_t { Zero, One, Normal, Residual };

struct TensorShape {
  std::string_view name; ///< within its part
  uint64_t elements;
  Initial initial;
  bool matrix;  ///< two dimensions: has weight decay
  bool byInput; ///< backwardInput adds to its gradients, else backwardWeight
};

enum EmbeddingTensor : uint8_t { Token, Position, kEmbeddingTensors };
enum BlockTensor : uint8_t {
  Norm1Weight,
  Norm1Bias,
  QkvWeight, ///< 3h x h: queries, keys, values, each head by head
  QkvBias,
  ProjectionWeight, ///< h x h
  ProjectionBias,
  Norm2Weight,
  Norm2Bias,
  UpWeight, ///< ffn x h
  UpBias,
  DownWeight, ///< h x ffn
  DownBias,
  kBlockTensors
};
enum HeadTensor : uint8_t {
  HeadNormWeight,
  HeadNormBias,
  HeadWeight,
  kHeadTensors
};

/// Those of a stage. With tied embeddings the head's matrix is the table of
/// tokens, so that a stage with the head alone has that and no positions. A
/// tensor without elements is not there.
std::array<TensorShape, kEmbeddingTensors> embeddingTensors(const Config &);
std::array<TensorShape, kBlockTensors> blockTensors(const Config &);
std::array<TensorShape, kHeadTensors> headTensors(const Config &);

/// Sum of the tensors' elements; stays at the largest value on overflow.
template <size_t N>
uint64_t elementsOf(const std::array<TensorShape, N> &shapes) {
  uint64_t sum = 0;
  for (const TensorShape &shape : shapes)
    sum = saturatingSum(sum, shape.elements);
  return sum;
}

/// Where each of N pieces starts when they stand one after the other.
template <size_t N> using Offsets = std::array<size_t, N + 1>;

template <size_t N>
Offsets<N> offsetsOf(const std::array<TensorShape, N> &shapes) {
  Offsets<N> offsets{};
  for (size_t i = 0; i < N; ++i)
    offsets[i + 1] = offsets[i] + shapes[i].elements;
  return offsets;
}

/// Pieces that stand one after the other in memory, by their number.
template <typename Real, size_t N> struct Pieces {
  Real *base;
  const Offsets<N> *offsets;
  Real *operator[](size_t piece) const { return base + (*offsets)[piece]; }
};

/// A tensor of the stage in its place.
struct Tensor {
  std::string name;  ///< unique in the model
  uint64_t position; ///< in the model
  size_t offset;     ///< in the stage's buffers, in elements
  size_t elements;
  Initial initial;
  bool matrix, byInput; ///< as TensorShape
};

/// Positions that tensors of the model have.
uint64_t tensorPositions(const Config &config);

/// The stage's tensors in the order of the model.
std::vector<Tensor> tensorsOf(const Config &config);

/// Initial values of one tensor: a function of the seed, the tensor's position
/// in the model and the element, so that they do not depend on the cut.
template <typename Real>
void initialise(const Config &config, const Tensor &tensor, Real *values);

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_PARAMETERS_H
