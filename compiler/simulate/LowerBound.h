//===- compiler/simulate/LowerBound.h - What no order can beat -----------===//
#ifndef SLUICE_COMPILER_SIMULATE_LOWERBOUND_H
#define SLUICE_COMPILER_SIMULATE_LOWERBOUND_H

#include "compiler/model/Network.h"
#include "compiler/simulate/Simulate.h"
#include "compiler/spec/Spec.h"
#include "ir/Graph.h"
#include "ir/Schedule.h"

#include <optional>

namespace sluice {

/// A time that the objective of no schedule with the same placement,
/// microbatches and costs can fall below, even if it splits every backward
/// into its parts for inputs and for weights, and keeps at most `memory` bytes
/// per rank (state, workspace and saved activations; none: unlimited).
///
/// A chain of stages, each on one rank, has the bounds that LowerBound.cpp
/// derives; everything else the longest path and the work of each rank. Linear
/// in nodes and values, for a chain also O(stages · (ranks + microbatches)).
Ticks lowerBound(const Graph &graph, const Schedule &schedule,
                 const ScheduleTiming &timing, const Network &network,
                 Objective objective, std::optional<Bytes> memory);

} // namespace sluice

#endif // SLUICE_COMPILER_SIMULATE_LOWERBOUND_H
