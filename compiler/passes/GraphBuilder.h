//===- compiler/passes/GraphBuilder.h - Stages to graph -------------------===//
#ifndef SLUICE_COMPILER_PASSES_GRAPHBUILDER_H
#define SLUICE_COMPILER_PASSES_GRAPHBUILDER_H

#include "compiler/partition/Partition.h"
#include "compiler/schedules/Orders.h"
#include "ir/Graph.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace sluice {

/// The graph of one step: see BuildGraph.cpp. `isSplit` tells for a stage and a
/// microbatch whether its backward is an I and a W.
Graph buildGraph(const StageGraph &stages, uint32_t microbatches, TimeUnit unit,
                 llvm::function_ref<bool(Id stage, Id microbatch)> isSplit);

/// The same, split where `orders` has an I or a W.
Graph buildGraph(const StageGraph &stages, const Orders &orders,
                 uint32_t microbatches, TimeUnit unit);

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_GRAPHBUILDER_H
