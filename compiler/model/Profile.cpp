#include "compiler/model/Profile.h"

#include <string>
#include <type_traits>

namespace sluice {

const LayerTimes *measuredTimes(const ModelSpec &model,
                                std::string_view layer) {
  for (const ProfiledLayer &row : kProfiledLayers)
    if (model.measured && row.name == layer)
      return &(model.measured->layers.*row.times);
  return nullptr;
}

const Located<Ticks> &timeOf(const LayerTimes &times, CostPass pass) {
  switch (pass) {
  case CostPass::Forward:
    return times.forward;
  case CostPass::BackwardInput:
    return times.backwardInput;
  case CostPass::BackwardWeight:
    return times.backwardWeight;
  }
  return times.forward;
}

void checkProfile(const Spec &spec, Diagnostics &diagnostics) {
  if (!spec.model.measured || !spec.model.transformer)
    return;
  auto text = [](auto value) {
    if constexpr (std::is_same_v<decltype(value), bool>)
      return std::string(value ? "true" : "false");
    else
      return std::to_string(value);
  };
  auto check = [&](const char *key, const auto &with, const auto &has) {
    if (with.given && with.value != has.value)
      diagnostics.warning(with.where,
                          "the profile's times were measured with " +
                              std::string(key) + " " + text(with.value) +
                              ", the spec has " + text(has.value));
  };
  const ProfileSizes &sizes = spec.model.measured->measured;
  const PipelineSpec &pipeline = spec.pipeline;
  check("sequence", sizes.sequence, spec.model.transformer->sequence);
  check("microbatch_size", sizes.microbatchSize, pipeline.microbatchSize);
  check("tensor_parallel", sizes.tensorParallel, pipeline.tensorParallel);
  check("sequence_parallel", sizes.sequenceParallel, pipeline.sequenceParallel);
  check("context_parallel", sizes.contextParallel, pipeline.contextParallel);
  check("expert_parallel", sizes.expertParallel, pipeline.expertParallel);
}

} // namespace sluice
