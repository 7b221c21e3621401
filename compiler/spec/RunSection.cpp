#include "compiler/spec/RunSection.h"

#include <algorithm>
#include <cstdio>

namespace sluice {

std::vector<std::pair<std::string, std::string>>
runEntries(const RunSpec &run) {
  std::vector<std::pair<std::string, std::string>> section;
  char number[32];
  if (run.clipNorm.given) {
    std::snprintf(number, sizeof number, "%.17g", run.clipNorm.value);
    section.emplace_back("clip_norm", number);
  }
  if (run.data.given)
    section.emplace_back("data", run.data.value);
  if (run.gradientGroups != 1)
    section.emplace_back("gradient_groups", std::to_string(run.gradientGroups));
  std::snprintf(number, sizeof number, "%.17g", run.learningRate.value);
  section.emplace_back("learning_rate", number);
  if (run.module.given)
    section.emplace_back("module", run.module.value);
  section.emplace_back("seed", std::to_string(run.seed.value));
  section.emplace_back("steps", std::to_string(run.steps.value));
  return section;
}

/// Keys that only a module that trains looks at.
static void warnOfUntrained(const Spec &spec, Diagnostics &diagnostics) {
  auto warn = [&](bool given, SourceLocation where, std::string_view key) {
    if (given)
      diagnostics.warning(where, "run." + std::string(key) +
                                     " has no effect with module synthetic, "
                                     "which trains nothing");
  };
  warn(spec.run.data.given, spec.run.data.where, "data");
  warn(spec.run.clipNorm.given, spec.run.clipNorm.where, "clip_norm");
  warn(spec.run.gradientGroups.given, spec.run.gradientGroups.where,
       "gradient_groups");
  warn(spec.run.learningRate.given, spec.run.learningRate.where,
       "learning_rate");
  warn(spec.run.seed.given, spec.run.seed.where, "seed");
}

static void warnOfIdlePipelineKeys(const Spec &spec, Diagnostics &diagnostics) {
  const Located<uint32_t> &size = spec.pipeline.microbatchSize;
  if (size.given && size.value != 1 && !spec.model.transformer)
    diagnostics.warning(size.where,
                        "pipeline.microbatch_size has no effect on explicit "
                        "layers, whose times and sizes are per microbatch");
  const std::optional<DeviceSpec> &device = spec.cluster.device;
  if (device && device->efficiency.given && !device->flops.given)
    diagnostics.warning(device->efficiency.where,
                        "cluster.device.efficiency has no effect without "
                        "cluster.device.flops");
  const Located<uint32_t> &perNode = spec.cluster.devicesPerNode;
  if (perNode.given && !spec.cluster.nodeLink)
    diagnostics.warning(perNode.where,
                        "cluster.devices_per_node has no effect without "
                        "cluster.node_link");
}

static void warnOfUnknownModule(const Located<std::string> &module,
                                const std::vector<std::string_view> &shipped,
                                Diagnostics &diagnostics) {
  if (!module.given || module.value.ends_with(".so") ||
      std::find(shipped.begin(), shipped.end(), module.value) != shipped.end())
    return;
  std::string known;
  for (std::string_view name : shipped)
    known += (known.empty() ? "" : ", ") + std::string(name);
  diagnostics.warning(module.where, "run.module is " + module.value +
                                        ", which is neither one of " + known +
                                        " nor a shared library, whose path "
                                        "ends in .so");
}

void warnOfIdleKeys(const Spec &spec, std::string_view module,
                    const std::vector<std::string_view> &shipped,
                    Diagnostics &diagnostics) {
  warnOfIdlePipelineKeys(spec, diagnostics);
  warnOfUnknownModule(spec.run.module, shipped, diagnostics);
  if (module.empty())
    module = spec.run.module.given    ? std::string_view(spec.run.module.value)
             : spec.model.transformer ? "gpt"
                                      : "synthetic";
  if (module == "synthetic")
    warnOfUntrained(spec, diagnostics);
}

} // namespace sluice
