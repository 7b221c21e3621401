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

static double secondsOf(const MeasuredCosts &measured, Id stage, Op op) {
  switch (op) {
  case Op::Forward:
  case Op::Recompute:
    return measured.forward[stage];
  case Op::Backward:
    return measured.backwardInput[stage] + measured.backwardWeight[stage];
  case Op::BackwardInput:
    return measured.backwardInput[stage];
  case Op::BackwardWeight:
    return measured.backwardWeight[stage];
  case Op::OptimizerStep:
    return measured.step[stage];
  case Op::SendForward:
  case Op::RecvForward:
  case Op::SendBackward:
  case Op::RecvBackward:
    return 0;
  }
  return 0;
}

std::optional<PlanTiming> predictTiming(const Plan &plan,
                                        const MeasuredCosts &measured) {
  size_t stages = plan.stages.size();
  if (measured.forward.size() != stages ||
      measured.backwardInput.size() != stages ||
      measured.backwardWeight.size() != stages ||
      measured.step.size() != stages)
    return std::nullopt;
  PlanCosts costs;
  costs.freeMessages = plan.timeUnit != TimeUnit::Seconds;
  for (Id stage = 0; stage < stages; ++stage)
    for (unsigned op = 0; op < kOpCount; ++op)
      costs.durations.push_back(
          ticksOf(secondsOf(measured, stage, static_cast<Op>(op))));
  return simulatePlan(plan, costs);
}

} // namespace sluice
