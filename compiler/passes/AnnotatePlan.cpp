//===- AnnotatePlan.cpp - What only the spec says of a plan --------------===//
//
// Needs a spec and a plan. Writes into the plan what no operation follows from:
// the model's name, the spec's file, its run section and its memory limit.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"
#include "compiler/spec/RunSection.h"

#include "llvm/Support/Path.h"

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

bool passes::AnnotatePlan(Compilation &c) {
  Plan &plan = *c.plan;
  plan.model = c.spec->model.name.value;
  plan.source = llvm::sys::path::filename(c.spec->file).str();
  plan.run = runEntries(c.spec->run);
  setMemoryLimit(*c.spec, plan, c.diagnostics);
  return true;
}

} // namespace sluice
