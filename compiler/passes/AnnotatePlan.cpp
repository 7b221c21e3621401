//===- compiler/passes/AnnotatePlan.cpp - What only the spec says of it ---===//
//
// Needs a spec and a plan. Writes into the plan what no operation follows from:
// the model's name, the spec's file, its run section and its memory limit.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"
#include "compiler/spec/RunSection.h"
#include "ir/LiveBytes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

#include <algorithm>

namespace sluice {

/// What a CUDA context and NCCL's own buffers take from a device before the
/// first byte of the arena: an allowance, not a measurement.
static constexpr Bytes kDeviceAllowance = Bytes(1) << 30;

static void setMemoryLimit(const Spec &spec, Plan &plan,
                           Diagnostics &diagnostics) {
  const std::optional<DeviceSpec> &device = spec.cluster.device;
  const Located<Bytes> &limit = spec.pipeline.memoryLimit;
  if (device)
    plan.memoryAllowance = kDeviceAllowance;
  if (device)
    plan.memoryLimit = device->memory;
  if (!limit.given)
    return;
  plan.memoryLimit = limit;
  if (device && device->memory.given && limit > device->memory)
    diagnostics.warning(limit.where, "pipeline.memory_limit is " +
                                         formatBytes(limit) +
                                         ", more than the device's " +
                                         formatBytes(device->memory));
}

/// Tells where copies to host memory leave the fullest rank as full.
static void checkOffload(const Spec &spec, const Plan &plan,
                         Diagnostics &diagnostics) {
  auto offloads = [](const Stage &of) { return of.offload && of.leftBytes(); };
  if (llvm::none_of(plan.stages, offloads))
    return;
  Bytes most = 0, unmoved = 0;
  for (const RankPlan &rank : plan.ranks) {
    for (Bytes live : liveBytes(rank))
      most = std::max(most, live);
    for (Bytes live : liveBytesUnmoved(rank))
      unmoved = std::max(unmoved, live);
  }
  if (most < unmoved)
    return;
  diagnostics
      .warning(spec.pipeline.offload.where,
               "pipeline.offload does not lower the largest peak of a rank: " +
                   formatBytes(most) + " with it and " + formatBytes(unmoved) +
                   " without")
      .note("what a forward leaves is moved where its rank computes at least "
            "three times between it and its backward: once while it goes, once "
            "while it comes back, and once in between");
}

bool passes::AnnotatePlan(Compilation &c) {
  Plan &plan = *c.plan;
  plan.model = c.spec->model.name.value;
  plan.source = llvm::sys::path::filename(c.spec->file).str();
  plan.run = runEntries(c.spec->run);
  setMemoryLimit(*c.spec, plan, c.diagnostics);
  checkOffload(*c.spec, plan, c.diagnostics);
  return true;
}

} // namespace sluice
