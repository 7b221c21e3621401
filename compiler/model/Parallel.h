//===- compiler/model/Parallel.h - The group of devices behind a rank -----===//
//
// A rank of the pipeline stands for tensor_parallel x context_parallel devices,
// which hold and compute the same stages together; data_parallel copies of the
// pipeline stand beside it. Experts are divided among expert_parallel of the
// context_parallel x data_parallel devices that share a tensor position.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_MODEL_PARALLEL_H
#define SLUICE_COMPILER_MODEL_PARALLEL_H

#include "compiler/spec/Spec.h"

namespace sluice {

/// Whether the sizes of the group divide what they are to divide; reports each
/// that does not, and warns of keys without effect.
bool checkParallel(const Spec &spec, Diagnostics &diagnostics);

/// Copies of the pipeline that a plan runs and whose gradients it sums:
/// data_parallel, or 1 where no operation does what these would need. With
/// `gradientBytes` for each parameter.
uint32_t replicasOf(const PipelineSpec &pipeline, Bytes gradientBytes);

/// Of how many parts of a stage's optimizer each of these has one: with levels
/// 1 and 2 of ZeRO as many as there are, else 1.
uint32_t optimizerPartsOf(const PipelineSpec &pipeline, Bytes gradientBytes);

/// Whether each keeps one part of the gradients too (level 2).
bool partitionsGradients(const PipelineSpec &pipeline, Bytes gradientBytes);

/// Warns where data_parallel copies are in the bytes but not in the plan.
void warnOfReplicas(const PipelineSpec &pipeline, Bytes gradientBytes,
                    Diagnostics &diagnostics);

/// Whether any stage recomputes, or may.
bool recomputes(const PipelineSpec &pipeline);

/// Ranks of one pipeline that share a node: as many as have their devices
/// there, at least 1; 0 if all do.
uint32_t ranksPerNode(const Spec &spec);

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_PARALLEL_H
