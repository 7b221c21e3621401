#include "compiler/model/Parallel.h"

#include "ir/Ops.h"
#include "ir/Words.h"

#include <algorithm>

namespace sluice {

namespace {

constexpr uint64_t kMaxDevices = uint64_t(1) << 24;

uint64_t devicesOfRank(const PipelineSpec &pipeline) {
  return uint64_t(pipeline.tensorParallel) * pipeline.contextParallel;
}

class Checker {
public:
  Checker(const Spec &theSpec, Diagnostics &sink)
      : spec(theSpec), pipeline(theSpec.pipeline), diagnostics(sink),
        errorsBefore(sink.errorCount()) {}

  bool check() {
    devices();
    if (spec.model.transformer)
      transformer(*spec.model.transformer);
    else
      explicitLayers();
    zero();
    gradientGroups();
    return diagnostics.errorCount() == errorsBefore;
  }

private:
  void fault(SourceLocation where, const std::string &message) {
    diagnostics.error(where, message);
  }
  void noEffect(SourceLocation where, std::string_view key,
                std::string_view why) {
    diagnostics.warning(where, "pipeline." + std::string(key) +
                                   " has no effect " + std::string(why));
  }
  /// `what` must be a multiple of the size of the group.
  void divides(const Located<uint32_t> &size, std::string_view key,
               uint64_t what, std::string_view name) {
    if (what % size.value != 0)
      fault(size.where, "pipeline." + std::string(key) + " is " + number(size) +
                            ", which does not divide " + std::string(name) +
                            " (" + number(what) + ")");
  }
  void devices();
  void transformer(const TransformerSpec &shape);
  void sequence(const TransformerSpec &shape);
  void experts(const TransformerSpec &shape);
  void explicitLayers();
  void zero();
  void gradientGroups();

  const Spec &spec;
  const PipelineSpec &pipeline;
  Diagnostics &diagnostics;
  unsigned errorsBefore;
};

void Checker::devices() {
  uint64_t rank = devicesOfRank(pipeline);
  if (rank > kMaxDevices || rank * pipeline.dataParallel > kMaxDevices)
    fault(pipeline.where,
          "tensor_parallel, context_parallel and data_parallel make more than "
          "the limit of " +
              number(kMaxDevices) + " devices for each rank");
  const Located<uint32_t> &node = spec.cluster.devicesPerNode;
  if (node.given && node.value % rank != 0 && rank % node.value != 0)
    fault(node.where, "cluster.devices_per_node is " + number(node) +
                          ", neither a multiple nor a divisor of the " +
                          number(rank) +
                          " devices of a rank (tensor_parallel x "
                          "context_parallel)");
}

void Checker::transformer(const TransformerSpec &shape) {
  const Located<uint32_t> &tensor = pipeline.tensorParallel;
  divides(tensor, "tensor_parallel", shape.heads, "heads");
  if (!shape.experts.given || shape.denseLayers.value != 0)
    divides(tensor, "tensor_parallel", shape.ffn, "ffn");
  if (shape.experts.given)
    divides(tensor, "tensor_parallel", shape.moeFfn, "moe_ffn");
  uint32_t keys = shape.kvHeads;
  if (!shape.kvLoraRank.given && keys % tensor.value != 0 &&
      tensor.value % keys != 0)
    fault(tensor.where, "pipeline.tensor_parallel is " + number(tensor) +
                            ", neither a divisor nor a multiple of the " +
                            number(keys) + " kv_heads");
  sequence(shape);
  experts(shape);
}

void Checker::sequence(const TransformerSpec &shape) {
  const Located<uint32_t> &context = pipeline.contextParallel;
  divides(context, "context_parallel", shape.sequence, "sequence");
  const Located<bool> &parallel = pipeline.sequenceParallel;
  if (!parallel.value)
    return;
  uint32_t tensor = pipeline.tensorParallel;
  uint32_t part = shape.sequence / context.value;
  if (tensor == 1)
    noEffect(parallel.where, "sequence_parallel", "without tensor_parallel");
  else if (part % tensor != 0)
    fault(parallel.where,
          "pipeline.sequence_parallel needs tensor_parallel to divide the "
          "sequence of a device, but " +
              number(tensor) + " does not divide " + number(part));
}

void Checker::experts(const TransformerSpec &shape) {
  const Located<uint32_t> &size = pipeline.expertParallel;
  if (size.value == 1)
    return;
  if (!shape.experts.given)
    return fault(size.where, "pipeline.expert_parallel is " + number(size) +
                                 ", but the model has no experts");
  divides(size, "expert_parallel", shape.experts, "experts");
  divides(size, "expert_parallel",
          uint64_t(pipeline.dataParallel) * pipeline.contextParallel,
          "data_parallel x context_parallel");
}

void Checker::explicitLayers() {
  constexpr std::string_view kWhy =
      "on explicit layers, whose times and sizes are those of one device";
  const PipelineSpec &p = pipeline;
  if (p.sequenceParallel.value)
    noEffect(p.sequenceParallel.where, "sequence_parallel", kWhy);
  if (p.expertParallel.value > 1)
    noEffect(p.expertParallel.where, "expert_parallel", kWhy);
}

void Checker::zero() {
  if (pipeline.zero.value != 0 &&
      uint64_t(pipeline.dataParallel) * pipeline.contextParallel == 1)
    noEffect(pipeline.zero.where, "zero",
             "without data_parallel or context_parallel");
}

/// The microbatches of each replica are a group already.
void Checker::gradientGroups() {
  const Located<uint32_t> &groups = spec.run.gradientGroups;
  if (groups.value == 1)
    return;
  if (pipeline.dataParallel.value > 1)
    fault(groups.where,
          "run.gradient_groups is " + number(groups) +
              ", must be 1 with pipeline.data_parallel " +
              number(pipeline.dataParallel) +
              ": the gradients of each copy are summed apart already");
  if (pipeline.microbatches.value % groups.value != 0)
    fault(groups.where, "run.gradient_groups is " + number(groups) +
                            ", which does not divide pipeline.microbatches (" +
                            number(pipeline.microbatches) + ")");
}

} // namespace

bool checkParallel(const Spec &spec, Diagnostics &diagnostics) {
  return Checker(spec, diagnostics).check();
}

/// Why the plan does not sum the gradients of copies; empty if it does.
static std::string whyNoReplicas(const PipelineSpec &pipeline,
                                 Bytes gradientBytes) {
  if (pipeline.zero.value > 2)
    return "zero " + number(pipeline.zero);
  if (pipeline.zero.value != 0 && pipeline.contextParallel.value > 1)
    return "zero " + number(pipeline.zero) + " and context_parallel " +
           number(pipeline.contextParallel);
  if (pipeline.expertParallel.value > 1)
    return "expert_parallel " + number(pipeline.expertParallel);
  constexpr Bytes kSummed = bytesOf(Element::Float32);
  if (gradientBytes != 0 && gradientBytes != kSummed)
    return "gradients of " + number(gradientBytes) + " bytes, not " +
           number(kSummed);
  return {};
}

uint32_t replicasOf(const PipelineSpec &pipeline, Bytes gradientBytes) {
  return whyNoReplicas(pipeline, gradientBytes).empty()
             ? pipeline.dataParallel.value
             : 1;
}

uint32_t optimizerPartsOf(const PipelineSpec &pipeline, Bytes gradientBytes) {
  return pipeline.zero.value != 0 ? replicasOf(pipeline, gradientBytes) : 1;
}

bool partitionsGradients(const PipelineSpec &pipeline, Bytes gradientBytes) {
  return pipeline.zero.value == 2 &&
         optimizerPartsOf(pipeline, gradientBytes) > 1;
}

void warnOfReplicas(const PipelineSpec &pipeline, Bytes gradientBytes,
                    Diagnostics &diagnostics) {
  std::string why = whyNoReplicas(pipeline, gradientBytes);
  if (pipeline.dataParallel.value > 1 && !why.empty())
    diagnostics.warning(
        pipeline.dataParallel.where,
        "the exchange of gradients among " + number(pipeline.dataParallel) +
            " data_parallel copies is not in the plan yet with " + why +
            ": it takes no time and no bytes");
}

bool recomputes(const PipelineSpec &pipeline) {
  auto active = [](RecomputePolicy policy) {
    return policy != RecomputePolicy::None;
  };
  const Recompute &recompute = pipeline.recompute;
  if (const auto *all = std::get_if<RecomputePolicy>(&recompute))
    return active(*all);
  const auto *list = std::get_if<std::vector<RecomputePolicy>>(&recompute);
  return !list || std::any_of(list->begin(), list->end(), active);
}

uint32_t ranksPerNode(const Spec &spec) {
  if (!spec.cluster.devicesPerNode.given)
    return 0;
  uint64_t fit = spec.cluster.devicesPerNode / devicesOfRank(spec.pipeline);
  return static_cast<uint32_t>(std::max<uint64_t>(fit, 1));
}

} // namespace sluice
