#include "ir/Plan.h"

namespace sluice {

uint64_t operationCount(const Plan &plan) {
  uint64_t count = 0;
  for (const RankPlan &rank : plan.ranks)
    count += rank.ops.size();
  return count;
}

} // namespace sluice
