//===- compiler/model/Work.h - Operations and bytes of a layer ------------===//
#ifndef SLUICE_COMPILER_MODEL_WORK_H
#define SLUICE_COMPILER_MODEL_WORK_H

#include "ir/Units.h"

#include <cstdint>
#include <iterator>
#include <string_view>

namespace sluice {

using Wide = unsigned __int128;

/// At most 2^63: over every limit that totals are checked against, but safe to
/// add.
constexpr uint64_t toCount(Wide value) {
  constexpr uint64_t kMost = uint64_t(1) << 63;
  return value < kMost ? static_cast<uint64_t>(value) : kMost;
}

/// What a layer of a transformer spends its time on: kernels that have the same
/// ratio of operations to bytes, more or less.
enum class CostKind : uint8_t {
  Embedding,   ///< look-up of tokens and learned positions
  Projections, ///< matrices of attention, and of multi-token prediction
  Attention,   ///< scores, softmax, sum of values
  Mlp,         ///< matrices of a dense MLP and of shared experts
  Experts,     ///< matrices of routed experts, and the router's
  Elementwise, ///< norms, activation functions, residuals, dropout, …
  Head,        ///< the matrix to the vocabulary
  Loss,        ///< softmax over the vocabulary, cross entropy
};
inline constexpr std::string_view kCostKinds[] = {
    "embedding", "projections", "attention", "mlp",
    "experts",   "elementwise", "head",      "loss"};
inline constexpr unsigned kCostKindCount = std::size(kCostKinds);

/// The operations of a layer that have costs of their own.
enum class CostPass : uint8_t { Forward, BackwardInput, BackwardWeight };
inline constexpr CostPass kAllCostPasses[] = {
    CostPass::Forward, CostPass::BackwardInput, CostPass::BackwardWeight};
/// By number, as the spec calls their times.
inline constexpr std::string_view kCostPasses[] = {"forward", "backward_input",
                                                   "backward_weight"};

/// Floating-point operations, and bytes read from and written to the memory of
/// a device.
struct Work {
  Wide flops = 0, bytes = 0;

  Work &operator+=(const Work &other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
  bool any() const { return flops != 0 || bytes != 0; }
};

/// One kind of work of a layer, for one microbatch on one device.
struct PartCost {
  CostKind kind = CostKind::Embedding;
  Work forward, backwardInput, backwardWeight;

  const Work &in(CostPass pass) const {
    switch (pass) {
    case CostPass::Forward:
      return forward;
    case CostPass::BackwardInput:
      return backwardInput;
    case CostPass::BackwardWeight:
      return backwardWeight;
    }
    return forward;
  }
  bool any() const {
    return forward.any() || backwardInput.any() || backwardWeight.any();
  }
};

/// What a time follows from.
enum class CostBound : uint8_t {
  Flops,  ///< operations, at the speed of the device
  Bytes,  ///< bytes, at the bandwidth of its memory
  Link,   ///< bytes between the devices of a rank's group
  Profile ///< it was measured
};
/// By number.
inline constexpr std::string_view kCostBounds[] = {"flops", "bytes", "link",
                                                   "profile"};

/// A row of a model's costs. The times of the rows of a layer and a pass add
/// up to what the layer takes, but for rounding.
struct CostRow {
  std::string_view layer; ///< embedding, dense_block, …
  uint32_t layers;        ///< how many of these the model has
  /// A kind of work; messages of the group; everything, if it was measured.
  std::string_view kind;
  CostPass pass;
  Work work;
  Ticks time;
  CostBound bound;
};

/// What a layer of a transformer holds and saves on one device, beside the
/// counts that are published for a GPT in 16 bits with dropout (Korthikanti et
/// al., arXiv 2205.05198): 12 h^2 / t parameters, and activations of section
/// 4.1, equations 2 and 4.
struct SizeRow {
  std::string_view layer;  ///< embedding, dense_block, …
  uint32_t layers = 0;     ///< how many of these the model has
  uint64_t parameters = 0; ///< of one
  Bytes saved = 0;         ///< of a microbatch, without recomputation
  /// By those counts; 0 for layers that they leave out.
  uint64_t publishedParameters = 0;
  Bytes publishedSaved = 0;
};

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_WORK_H
