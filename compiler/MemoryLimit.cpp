#include "compiler/MemoryLimit.h"

#include "compiler/simulate/Report.h"

#include <algorithm>

namespace sluice {

static std::string exactly(Bytes bytes) {
  if (bytes < 1024)
    return std::to_string(bytes) + " bytes";
  return formatBytes(bytes) + " (" + std::to_string(bytes) + " bytes)";
}

std::pair<Id, Bytes> neediestRank(const Plan &plan) {
  Id largest = 0;
  for (Id rank = 1; rank < plan.ranks.size(); ++rank)
    if (plan.ranks[rank].arenaBytes > plan.ranks[largest].arenaBytes)
      largest = rank;
  return {largest, plan.ranks[largest].arenaBytes + plan.memoryAllowance};
}

/// The place of what sets the limit.
static SourceLocation limitLocation(const Spec &spec) {
  if (spec.pipeline.memoryLimit.given)
    return spec.pipeline.memoryLimit.where;
  return spec.cluster.device ? spec.cluster.device->memory.where
                             : spec.pipeline.where;
}

static void noteContributors(Diagnostic &diagnostic, const MemoryPeak &peak) {
  for (const MemoryContributor &part : peak.contributors) {
    std::string text =
        exactly(part.bytes) + " " + std::string(info(part.kind).text);
    if (part.stage != kNone)
      text += " of stage " + std::to_string(part.stage);
    if (part.buffers > 1)
      text += ", " + std::to_string(part.buffers) + " buffers";
    diagnostic.note(std::move(text));
  }
}

void reportOverLimit(Compilation &compilation) {
  const Spec &spec = *compilation.spec;
  const Plan &plan = *compilation.plan;
  auto [rank, needed] = neediestRank(plan);
  size_t others = std::count_if(
      plan.ranks.begin(), plan.ranks.end(), [&](const RankPlan &list) {
        return list.arenaBytes + plan.memoryAllowance > plan.memoryLimit;
      });
  MemoryPeak peak = findMemoryPeak(plan.ranks[rank]);
  std::string message = "rank " + std::to_string(rank) + " needs " +
                        exactly(needed) + ", " +
                        std::to_string(needed - plan.memoryLimit) +
                        " bytes over the limit of " + exactly(plan.memoryLimit);
  if (others > 1)
    message += "; " + std::to_string(others) + " ranks are over it";
  Diagnostic &diagnostic =
      compilation.diagnostics.error(limitLocation(spec), std::move(message));
  if (peak.position != kNone) {
    const PlanOp &op = plan.ranks[rank].ops[peak.position];
    diagnostic.note("the peak is at " + nameOf(op) + " with " +
                        exactly(peak.bytes) + " in use, most of it:",
                    plan.stages[op.stage].location);
  }
  noteContributors(diagnostic, peak);
  if (plan.memoryAllowance)
    diagnostic.note(exactly(plan.memoryAllowance) +
                    " allowed for the device's context");
}

} // namespace sluice
