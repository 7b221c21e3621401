//===- runtime/modules/gpt/Parameters.cpp - The tensors of the parameters -===//
#include "runtime/modules/gpt/Parameters.h"

#include "runtime/modules/gpt/Random.h"

#include <algorithm>
#include <cmath>

namespace sluice::gpt {
namespace {

constexpr double kDeviation = 0.02;

/// Appends the tensors of one part; one without elements is not there.
template <size_t N>
void append(const std::array<TensorShape, N> &shapes, const std::string &prefix,
            uint64_t position, std::vector<Tensor> &tensors) {
  size_t offset = 0;
  if (!tensors.empty())
    offset = tensors.back().offset + tensors.back().elements;
  for (const TensorShape &shape : shapes) {
    if (shape.elements != 0)
      tensors.push_back({prefix + std::string(shape.name), position, offset,
                         shape.elements, shape.initial, shape.matrix,
                         shape.byInput});
    offset += shape.elements;
    ++position;
  }
}

/// Elements start ... of a tensor with normal values of the given deviation.
template <typename Real>
void fillNormal(Real *values, size_t count, uint64_t hash, double deviation) {
  for (size_t i = 0; i < count; ++i)
    values[i] = Real(deviation * bellShaped(extendHash(hash, i)));
}

} // namespace

std::array<TensorShape, kEmbeddingTensors>
embeddingTensors(const Config &config) {
  const uint64_t h = config.hidden;
  const uint64_t positions = config.embedding ? config.positions : 0;
  const uint64_t table = config.hasTable() ? config.table() : 0;
  return {{{"token", table, Initial::Normal, true, config.embedding},
           {"position", positions * h, Initial::Normal, true, true}}};
}

std::array<TensorShape, kBlockTensors> blockTensors(const Config &config) {
  const uint64_t h = config.hidden, ffn = config.ffn;
  return {
      {{"norm1.weight", h, Initial::One, false, true},
       {"norm1.bias", h, Initial::Zero, false, true},
       {"attention.qkv.weight", 3 * h * h, Initial::Normal, true, false},
       {"attention.qkv.bias", 3 * h, Initial::Zero, false, false},
       {"attention.projection.weight", h * h, Initial::Residual, true, false},
       {"attention.projection.bias", h, Initial::Zero, false, false},
       {"norm2.weight", h, Initial::One, false, true},
       {"norm2.bias", h, Initial::Zero, false, true},
       {"mlp.up.weight", ffn * h, Initial::Normal, true, false},
       {"mlp.up.bias", ffn, Initial::Zero, false, false},
       {"mlp.down.weight", h * ffn, Initial::Residual, true, false},
       {"mlp.down.bias", h, Initial::Zero, false, false}}};
}

std::array<TensorShape, kHeadTensors> headTensors(const Config &config) {
  const uint64_t h = config.hidden;
  return {{{"norm.weight", h, Initial::One, false, true},
           {"norm.bias", h, Initial::Zero, false, true},
           {"weight", config.tied ? 0 : config.table(), Initial::Normal, true,
            false}}};
}

uint64_t tensorPositions(const Config &config) {
  return kEmbeddingTensors + uint64_t(config.layers) * kBlockTensors +
         kHeadTensors;
}

std::vector<Tensor> tensorsOf(const Config &config) {
  std::vector<Tensor> tensors;
  tensors.reserve(uint64_t(config.stageLayers) * kBlockTensors +
                  kEmbeddingTensors + kHeadTensors);
  if (config.hasTable())
    append(embeddingTensors(config), "embedding.", 0, tensors);
  for (uint64_t i = 0; i < config.stageLayers; ++i) {
    uint64_t layer = config.firstLayer + i;
    append(blockTensors(config), "block." + std::to_string(layer) + ".",
           kEmbeddingTensors + layer * kBlockTensors, tensors);
  }
  if (config.head)
    append(headTensors(config), "head.",
           kEmbeddingTensors + uint64_t(config.layers) * kBlockTensors,
           tensors);
  return tensors;
}

template <typename Real>
void initialise(const Config &config, const Tensor &tensor, Real *values) {
  const uint64_t hash =
      extendHash(startHash(Use::Weights, config.seed), tensor.position);
  switch (tensor.initial) {
  case Initial::Zero:
    std::fill_n(values, tensor.elements, Real(0));
    return;
  case Initial::One:
    std::fill_n(values, tensor.elements, Real(1));
    return;
  case Initial::Normal:
    return fillNormal(values, tensor.elements, hash, kDeviation);
  case Initial::Residual:
    return fillNormal(values, tensor.elements, hash,
                      kDeviation / std::sqrt(2.0 * config.layers));
  }
}

template void initialise(const Config &, const Tensor &, float *);
template void initialise(const Config &, const Tensor &, double *);

} // namespace sluice::gpt
