//===- compiler/model/Layer.h - Layers with costs and bytes ---------------===//
#ifndef SLUICE_COMPILER_MODEL_LAYER_H
#define SLUICE_COMPILER_MODEL_LAYER_H

#include "compiler/model/Work.h"
#include "ir/Diagnostics.h"
#include "ir/Units.h"

#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct Spec;

/// Embedding and head of a transformer are layers too, placed before the first
/// and after the last, but not counted as layers of the model.
/// The layers of multi-token prediction stand before the head, and are not
/// counted either.
enum class LayerKind : uint8_t { Explicit, Embedding, Block, Mtp, Head };

/// Numbers of parameters that one device holds: those of experts are copied to
/// fewer devices than the others.
struct HeldParameters {
  uint64_t dense = 0;
  uint64_t experts = 0;

  HeldParameters &operator+=(const HeldParameters &other) {
    dense += other.dense;
    experts += other.experts;
    return *this;
  }
};

/// One layer: times per microbatch on one rank, bytes per microbatch on one
/// device. The bytes are those of ir/README.md, "What memory bound means".
struct Layer {
  std::string name;
  LayerKind kind = LayerKind::Explicit;
  Ticks forward = 0;
  Ticks backwardInput = 0;
  Ticks backwardWeight = 0;
  Ticks overlapSaving = 0;       ///< of a forward together with a backward
  Ticks recomputeFull = 0;       ///< its part of R, where it is full ...
  Ticks recomputeSelective = 0;  ///< ... and where it is selective
  uint64_t parameters = 0;       ///< count, of the whole layer
  uint64_t activeParameters = 0; ///< of those, what one token uses
  HeldParameters held;           ///< of those, what one device holds
  Bytes activation = 0;
  Bytes keptForWeight = 0;
  Bytes output = 0; ///< what it hands to the next layer
  Bytes workspace = 0;
  /// What full recomputation starts from in a stage that begins with it: its
  /// input.
  Bytes checkpoint = 0;
  Bytes remade = 0; ///< of activation, what selective recomputation makes again
  Bytes forwardWorkspace = 0; ///< of a forward that leaves nothing behind
  SourceLocation location;

  bool counted() const {
    return kind == LayerKind::Explicit || kind == LayerKind::Block;
  }
};

/// Bytes of parameters, gradients and optimizer.
struct StateBytes {
  Bytes parameters = 0, gradients = 0, optimizer = 0;
};

/// A model as a list of layers and what holds for all of them.
struct Model {
  std::string name;
  TimeUnit timeUnit = TimeUnit::Unit;
  std::vector<Layer> layers;
  /// Bytes per parameter.
  Bytes parameterBytes = 2, gradientBytes = 4, optimizerBytes = 12;
  /// Devices that hold the same parameters, and the same experts; from level 1
  /// of ZeRO (Rajbhandari et al., arXiv 1910.02054) they divide the optimizer,
  /// from 2 gradients too, from 3 parameters too. Where the plan's replicas
  /// keep parts of their gradients (Stage::gradientsPartitioned), those are its
  /// buffers' concern, and the level is 1.
  uint32_t copies = 1, expertCopies = 1, zero = 0;
  /// Copies of the pipeline whose gradients the plan sums (Plan::replicas).
  uint32_t replicas = 1;
  /// Parts of a stage's optimizer that the plan has (Stage::optimizerParts).
  uint32_t optimizerParts = 1;
  /// Whether stages may keep one part of their gradients.
  bool gradientsPartitioned = false;
  /// Numbers of the embedding's table, and of the head's matrix, on one device;
  /// 0 for explicit layers.
  uint64_t table = 0;
  /// The same where embedding and head share it; 0 where they are not tied.
  uint64_t tiedTable = 0;
  /// What the times of a transformer's layers are made of; empty for explicit
  /// layers.
  std::vector<CostRow> costs;
  std::vector<SizeRow> sizes; ///< of a transformer's layers
  /// Lines `key=value` that every stage's module description begins with
  /// (hidden=128, …); empty for explicit layers.
  std::string description;

  uint32_t countedLayers() const;
  /// Bytes of training state on one device that holds so many parameters.
  StateBytes stateOf(const HeldParameters &held) const;
};

/// Makes the model of a parsed spec; none after reporting faults (overflow,
/// times mixed with units, …).
std::optional<Model> buildModel(const Spec &spec, Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_LAYER_H
