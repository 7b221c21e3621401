//===- compiler/model/Layer.h - Layers with costs and bytes ---------------===//
#ifndef SLUICE_COMPILER_MODEL_LAYER_H
#define SLUICE_COMPILER_MODEL_LAYER_H

#include "ir/Diagnostics.h"
#include "ir/Units.h"

#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct Spec;

/// Embedding and head of a transformer are layers too, placed before the first
/// and after the last, but not counted as layers of the model.
enum class LayerKind : uint8_t { Explicit, Embedding, Block, Head };

/// One layer: times per microbatch on one rank, bytes per microbatch on one
/// device. The bytes are those of ir/README.md, "What memory bound means".
struct Layer {
  std::string name;
  LayerKind kind = LayerKind::Explicit;
  Ticks forward = 0;
  Ticks backwardInput = 0;
  Ticks backwardWeight = 0;
  Ticks overlapSaving = 0;      ///< of a forward together with a backward
  Ticks recomputeFull = 0;      ///< its part of R, where it is full ...
  Ticks recomputeSelective = 0; ///< ... and where it is selective
  uint64_t parameters = 0;      ///< count
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

/// A model as a list of layers and what holds for all of them.
struct Model {
  std::string name;
  TimeUnit timeUnit = TimeUnit::Unit;
  std::vector<Layer> layers;
  /// Bytes per parameter.
  Bytes parameterBytes = 2, gradientBytes = 4, optimizerBytes = 12;
  /// Lines `key=value` that every stage's module description begins with
  /// (hidden=128, …); empty for explicit layers.
  std::string description;

  uint32_t countedLayers() const;
};

/// Makes the model of a parsed spec; none after reporting faults (overflow,
/// times mixed with units, …).
std::optional<Model> buildModel(const Spec &spec, Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_LAYER_H
