//===- compiler/partition/Partition.h - Layers to stages -----------------===//
#ifndef SLUICE_COMPILER_PARTITION_PARTITION_H
#define SLUICE_COMPILER_PARTITION_PARTITION_H

#include "compiler/model/Layer.h"
#include "compiler/spec/Spec.h"
#include "ir/Stage.h"

#include <optional>
#include <vector>

namespace sluice {

/// The cut of a model: its stages and the data between them.
struct StageGraph {
  std::vector<Stage> stages;
  std::vector<StageEdge> edges; ///< sorted by (from, to)
  uint32_t replicas = 1;        ///< Plan::replicas
};

/// Exact contiguous min-max partition: numbers of consecutive entries of
/// `costs` for each of `stages` parts that minimise the largest sum, and among
/// those the sum of squares (so equal layers spread evenly), the larger parts
/// first among equals. Needs stages >= 1; parts are empty only if there are
/// fewer entries than stages. Dynamic programming over (part, prefix), bounded
/// to prefixes that the optimal largest sum (binary search) allows. Where more
/// than 2^22 of these are left, the largest sum is still the least, but each
/// part just ends near the average of what remains, whatever the squares.
std::vector<uint32_t> partitionMinMax(const std::vector<Ticks> &costs,
                                      uint32_t stages);

/// The stages that a layout is for; none if it holds for any number.
std::optional<size_t> stagesOf(const Layout &layout);

/// Cuts `model` as `pipeline.layout` says into so many stages; none after
/// reporting faults (wrong sums, more stages than layers, …).
std::optional<StageGraph> partition(const Spec &spec, const Model &model,
                                    uint32_t stages, Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_COMPILER_PARTITION_PARTITION_H
