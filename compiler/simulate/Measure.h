//===- compiler/simulate/Measure.h - A plan under measured costs ---------===//
#ifndef SLUICE_COMPILER_SIMULATE_MEASURE_H
#define SLUICE_COMPILER_SIMULATE_MEASURE_H

#include "compiler/simulate/Simulate.h"
#include "ir/Plan.h"

#include <optional>
#include <vector>

namespace sluice {

/// What the operations of each stage were seen to take, in seconds per
/// microbatch (`step`: per training step).
struct MeasuredCosts {
  std::vector<double> forward;
  std::vector<double> recompute;
  std::vector<double> backwardInput;
  std::vector<double> backwardWeight;
  std::vector<double> step;
};

/// Times, in picoseconds whatever the plan's own unit, of one step of `plan`
/// with these costs. Messages keep the cost that the plan gives its links if
/// its times are in seconds, else they take none. None if the plan deadlocks
/// or a vector does not have one entry per stage.
std::optional<PlanTiming> predictTiming(const Plan &plan,
                                        const MeasuredCosts &measured);

} // namespace sluice

#endif // SLUICE_COMPILER_SIMULATE_MEASURE_H
