//===- compiler/partition/Cut.h - How many layers each stage takes --------===//
#ifndef SLUICE_COMPILER_PARTITION_CUT_H
#define SLUICE_COMPILER_PARTITION_CUT_H

#include "compiler/model/Layer.h"
#include "compiler/spec/Spec.h"

#include <optional>
#include <vector>

namespace sluice {

/// Entries of `model.layers` that each of `stages` takes, in order, as
/// `pipeline.layout` says: all of them, neither more nor fewer. None after
/// reporting why the layout does not add up, with the sums. Linear but for
/// `auto`, which is partitionMinMax.
std::optional<std::vector<uint32_t>> cutLayers(const Spec &spec,
                                               const Model &model,
                                               uint32_t stages,
                                               Diagnostics &diagnostics);

/// A layer's part of R.
Ticks recomputeTime(const Layer &layer, RecomputePolicy policy);

} // namespace sluice

#endif // SLUICE_COMPILER_PARTITION_CUT_H
