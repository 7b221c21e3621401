//===- compiler/passes/GraphBuilder.h - Stages to graph ------------------===//
#ifndef SLUICE_COMPILER_PASSES_GRAPHBUILDER_H
#define SLUICE_COMPILER_PASSES_GRAPHBUILDER_H

#include "compiler/partition/Partition.h"
#include "ir/Graph.h"

namespace sluice {

/// The graph of one step: see BuildGraph.cpp. `split` makes I and W of every
/// backward.
Graph buildGraph(const StageGraph &stages, uint32_t microbatches, bool split,
                 TimeUnit unit);

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_GRAPHBUILDER_H
