//===- compiler/passes/Verify.cpp - The pass `verify-plan` ----------------===//
//
// Needs a plan. Fails if ir/verify objects: with the numbers and the place in
// the spec where the plan is over its memory limit, else with the finding's
// story.
//
//===----------------------------------------------------------------------===//
#include "ir/verify/Verify.h"
#include "compiler/MemoryLimit.h"
#include "compiler/passes/PassManager.h"

#include "llvm/ADT/STLExtras.h"

namespace sluice {

/// Where in the spec the operation of a finding comes from.
static SourceLocation locationOf(const Plan &plan,
                                 const verify::Finding &finding) {
  if (!finding.place)
    return {};
  const RankPlan &rank = plan.ranks[finding.place->rank];
  if (finding.place->index >= rank.ops.size())
    return {};
  return plan.stages[rank.ops[finding.place->index].stage].location;
}

bool passes::VerifyPlanGate(Compilation &c) {
  verify::Result result = verify::verifyPlan(*c.plan);
  c.overLimit = false;
  for (const verify::Finding &finding : result.errors) {
    if (finding.kind == verify::FindingKind::Memory && c.spec) {
      c.overLimit = true;
      continue;
    }
    c.diagnostics.error(locationOf(*c.plan, finding),
                        std::string(verify::findingKindName(finding.kind)) +
                            ": " + verify::describe(*c.plan, finding));
  }
  if (!result.advice.empty())
    c.diagnostics.lastError().note(result.advice);
  if (c.overLimit)
    reportOverLimit(c);
  return result.ok();
}

} // namespace sluice
