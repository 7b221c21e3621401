//===- AnnotatePlan.cpp - What only the spec says of a plan --------------===//
//
// Needs a spec and a plan. Writes into the plan what no operation follows from:
// the model's name, the spec's file, its run section and its memory limit.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"
#include "ir/ModuleKeys.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"

#include <cstdio>

namespace sluice {

/// What a CUDA context and NCCL's own buffers take from a device before the
/// first byte of the arena: an allowance, not a measurement.
static constexpr Bytes kDeviceAllowance = Bytes(1) << 30;

/// The spec's `run` section as the plan carries it; the data file as seen from
/// where the spec was compiled.
static std::vector<std::pair<std::string, std::string>>
runSection(const Spec &spec) {
  const RunSpec &run = spec.run;
  llvm::SmallString<64> data(run.data.value);
  if (!data.empty() && llvm::sys::path::is_relative(data)) {
    data = llvm::sys::path::parent_path(spec.file);
    llvm::sys::path::append(data, run.data.value);
  }
  std::vector<std::pair<std::string, std::string>> section;
  if (!data.empty())
    section.emplace_back(runkeys::kData, data.str());
  char number[32];
  std::snprintf(number, sizeof number, "%.17g", run.learningRate.value);
  section.emplace_back(runkeys::kLearningRate, number);
  if (run.module.given)
    section.emplace_back(runkeys::kModule, run.module.value);
  section.emplace_back(runkeys::kSeed, std::to_string(run.seed.value));
  section.emplace_back(runkeys::kSteps, std::to_string(run.steps.value));
  return section;
}

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
  plan.source = c.spec->file;
  plan.run = runSection(*c.spec);
  setMemoryLimit(*c.spec, plan, c.diagnostics);
  return true;
}

} // namespace sluice
