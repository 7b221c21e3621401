#include "ir/Plan.h"

namespace sluice {

/// The part of `pool` between `first` of operation `op` and of the next.
template <typename T>
static std::span<const T> slice(const RankPlan &rank,
                                const std::vector<T> &pool, uint32_t op,
                                uint32_t PlanOp::*first) {
  uint32_t begin = rank.ops[op].*first;
  uint32_t end = op + 1 < rank.ops.size() ? rank.ops[op + 1].*first
                                          : static_cast<uint32_t>(pool.size());
  return std::span(pool).subspan(begin, end - begin);
}

std::span<const uint32_t> RankPlan::waitsOf(uint32_t op) const {
  return slice(*this, waits, op, &PlanOp::firstWait);
}

std::span<const Operand> RankPlan::operandsOf(uint32_t op) const {
  return slice(*this, operands, op, &PlanOp::firstOperand);
}

uint64_t operationCount(const Plan &plan) {
  uint64_t count = 0;
  for (const RankPlan &rank : plan.ranks)
    count += rank.ops.size();
  return count;
}

} // namespace sluice
