#include "compiler/simulate/Measure.h"

#include <algorithm>
#include <cmath>

namespace sluice {

static Ticks ticksOf(double seconds) {
  double ticks = seconds * static_cast<double>(ticksPer(TimeUnit::Seconds));
  if (!(ticks > 0))
    return 0;
  return ticks < static_cast<double>(kMaxTicks) ? std::llround(ticks)
                                                : kMaxTicks;
}

static OpCosts<double> costsOf(const MeasuredCosts &measured, Id stage) {
  return {.forward = measured.forward[stage],
          .backwardInput = measured.backwardInput[stage],
          .backwardWeight = measured.backwardWeight[stage],
          .recompute = measured.recompute[stage],
          .step = measured.step[stage]};
}

std::optional<PlanTiming> predictTiming(const Plan &plan,
                                        const MeasuredCosts &measured) {
  size_t stages = plan.stages.size();
  if (measured.forward.size() != stages ||
      measured.recompute.size() != stages ||
      measured.backwardInput.size() != stages ||
      measured.backwardWeight.size() != stages ||
      measured.step.size() != stages)
    return std::nullopt;
  PlanCosts costs;
  costs.overlap = false; // the host runs a pair in sequence
  costs.freeMessages = plan.timeUnit != TimeUnit::Seconds;
  for (Id stage = 0; stage < stages; ++stage)
    for (unsigned op = 0; op < kOpCount; ++op)
      costs.durations.push_back(
          ticksOf(costOf(static_cast<Op>(op), costsOf(measured, stage))));
  return simulatePlan(plan, costs);
}

} // namespace sluice
