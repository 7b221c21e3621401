#include "ir/Plan.h"

#include "ir/Diagnostics.h"

namespace sluice {

std::string specLine(const Plan &plan, Id stage) {
  const uint32_t line =
      stage < plan.stages.size() ? plan.stages[stage].location.line : 0;
  if (line == 0)
    return {};
  return (plan.source.empty() ? "spec" : escaped(plan.source)) + ":" +
         std::to_string(line);
}

uint64_t operationCount(const Plan &plan) {
  uint64_t count = 0;
  for (const RankPlan &rank : plan.ranks)
    count += rank.ops.size();
  return count;
}

} // namespace sluice
