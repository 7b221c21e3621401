#include "ir/Plan.h"

#include "ir/Diagnostics.h"

namespace sluice {

Bytes copiedBytes(const RankPlan &rank, uint32_t copy) {
  Bytes bytes = 0;
  for (Operand used : rank.operandsOf(copy))
    if (const Buffer &of = rank.buffers[used.buffer]; !isOnHost(of.kind))
      bytes += of.bytes;
  return bytes;
}

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
