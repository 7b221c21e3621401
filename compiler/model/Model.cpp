#include "compiler/model/Layer.h"
#include "compiler/model/Network.h"
#include "compiler/model/Parallel.h"
#include "compiler/model/Profile.h"
#include "compiler/model/Shape.h"
#include "compiler/model/Transformer.h"
#include "compiler/spec/Spec.h"

#include <algorithm>

namespace sluice {

StateBytes Model::stateOf(const HeldParameters &held) const {
  auto bytes = [&](Bytes each, uint32_t level) {
    auto share = [&](uint64_t count, uint32_t devices) {
      uint64_t by = zero >= level ? devices : 1;
      return (count * each + by - 1) / by;
    };
    return share(held.dense, copies) + share(held.experts, expertCopies);
  };
  return {bytes(parameterBytes, 3), bytes(gradientBytes, 2),
          bytes(optimizerBytes, 1)};
}

uint32_t Model::countedLayers() const {
  return static_cast<uint32_t>(
      std::count_if(layers.begin(), layers.end(),
                    [](const Layer &layer) { return layer.counted(); }));
}

/// Times and sizes are those of one device; parameters are the whole layer's,
/// which tensor parallelism divides evenly.
static Layer explicitLayer(const LayerSpec &spec, uint32_t tensorParallel) {
  Layer layer;
  layer.name = spec.name.given ? spec.name.value : "layer";
  layer.forward = spec.forward;
  layer.backwardInput = spec.backwardInput;
  layer.backwardWeight = spec.backwardWeight;
  if (spec.backward.given) { // B = I + W, half each
    layer.backwardWeight = spec.backward.value / 2;
    layer.backwardInput = spec.backward.value - layer.backwardWeight;
  }
  if (spec.overlappedPair.given)
    layer.overlapSaving = layer.forward + layer.backwardInput +
                          layer.backwardWeight - spec.overlappedPair.value;
  layer.parameters = layer.activeParameters = spec.parameters;
  layer.held.dense = spec.parameters / tensorParallel +
                     (spec.parameters % tensorParallel != 0);
  layer.activation = spec.activationBytes;
  layer.keptForWeight = spec.keptForWeight;
  layer.output = spec.outputBytes;
  layer.workspace = spec.workspaceBytes;
  layer.checkpoint = spec.checkpointBytes;
  layer.remade = layer.activation - layer.keptForWeight;
  layer.recomputeFull = spec.recompute.given ? spec.recompute : spec.forward;
  layer.recomputeSelective = spec.recompute;
  layer.location = spec.where;
  return layer;
}

static void addExplicitLayers(const Spec &spec, Model &model) {
  for (const LayerSpec &of : spec.model.layers) {
    Layer layer = explicitLayer(of, spec.pipeline.tensorParallel);
    for (uint32_t i = 0; i < of.repeat.value; ++i) {
      if (!of.checkpointBytes.given && !model.layers.empty())
        layer.checkpoint = model.layers.back().output;
      model.layers.push_back(layer);
    }
  }
}

static std::string microbatches(uint32_t count) {
  return std::to_string(count) + (count == 1 ? " microbatch" : " microbatches");
}

static std::string timeLimit(TimeUnit unit) {
  return formatTime(kMaxTicks, unit) + (unit == TimeUnit::Unit ? " units" : "");
}

/// Compute of one step, were it all done by one rank.
static bool checkComputeTime(const Spec &spec, const Model &model,
                             Diagnostics &diagnostics) {
  Wide total = 0;
  uint32_t count = spec.pipeline.microbatches;
  bool again = recomputes(spec.pipeline);
  for (const Layer &layer : model.layers) {
    total += Wide(layer.forward) + layer.backwardInput + layer.backwardWeight;
    if (again)
      total += std::max(layer.recomputeFull, layer.recomputeSelective);
    if (total * count > Wide(kMaxTicks)) {
      diagnostics.error(layer.location,
                        "up to this layer the times of " + microbatches(count) +
                            " add up to more than the limit of " +
                            timeLimit(model.timeUnit));
      return false;
    }
  }
  return true;
}

/// Messages of one step, were they sent one after the other: two per boundary
/// of stages and microbatch.
static bool checkMessageTime(const Spec &spec, const Model &model,
                             const LinkSpec &link, Diagnostics &diagnostics) {
  Bytes largest = 0;
  for (const Layer &layer : model.layers)
    largest = std::max(largest, layer.output);
  Link cost{link.latency, link.bandwidth};
  Wide one = Wide(cost.latency) + cost.occupancy(largest, model.timeUnit);
  Wide boundaries =
      Wide(spec.pipeline.ranks.value) * spec.pipeline.virtualStages.value - 1;
  Wide messages = 2 * boundaries * spec.pipeline.microbatches.value;
  if (messages * one <= Wide(kMaxTicks))
    return true;
  const auto &where =
      link.bandwidth.given ? link.bandwidth.where : link.latency.where;
  diagnostics.error(
      where, "the " + std::to_string(static_cast<uint64_t>(messages)) +
                 " messages of a step, the largest of " + formatBytes(largest) +
                 ", may take longer than the limit of " +
                 timeLimit(model.timeUnit));
  return false;
}

/// Copies of one step to host memory and back, were they made one after the
/// other: of each microbatch at most all that its forwards save.
static bool checkCopyTime(const Spec &spec, const Model &model,
                          Diagnostics &diagnostics) {
  const Located<std::optional<LinkSpec>> &link = spec.cluster.hostLink;
  if (!link.value)
    return true;
  Bytes saved = 0;
  for (const Layer &layer : model.layers)
    saved += layer.activation + layer.checkpoint;
  Link cost{link.value->latency, link.value->bandwidth};
  Wide stages =
      Wide(spec.pipeline.ranks.value) * spec.pipeline.virtualStages.value;
  Wide all = cost.occupancy(saved, model.timeUnit) +
             stages * (Wide(cost.latency) + 1); // each is rounded up
  if (2 * all * spec.pipeline.microbatches.value <= Wide(kMaxTicks))
    return true;
  diagnostics.error(
      link.where, "the copies of " + microbatches(spec.pipeline.microbatches) +
                      ", up to " + formatBytes(saved) +
                      " each to host memory and back, may take longer than "
                      "the limit of " +
                      timeLimit(model.timeUnit));
  return false;
}

/// Everything that all ranks together could ever hold.
static bool checkBytes(const Spec &spec, const Model &model,
                       Diagnostics &diagnostics) {
  constexpr Bytes kMaxTotal = kMaxBytes / 2; // the rest is for alignment
  Wide state =
      Wide(model.parameterBytes) + model.gradientBytes + model.optimizerBytes;
  Wide total = 0, parameters = 0;
  for (const Layer &layer : model.layers) {
    parameters += layer.parameters;
    total +=
        layer.parameters * state + layer.workspace + layer.forwardWorkspace +
        (Wide(layer.activation) + layer.checkpoint + 2 * Wide(layer.output)) *
            spec.pipeline.microbatches.value;
    if (total > kMaxTotal || parameters > kMaxTotal) {
      diagnostics.error(layer.location,
                        "up to this layer the bytes or parameters of " +
                            microbatches(spec.pipeline.microbatches) +
                            " add up to more than the limit of "
                            "2^60");
      return false;
    }
  }
  return true;
}

/// Who divides the training state with whom.
static void setCopies(const PipelineSpec &pipeline, Model &model) {
  model.gradientsPartitioned =
      partitionsGradients(pipeline, model.gradientBytes);
  model.copies = pipeline.dataParallel * pipeline.contextParallel;
  model.expertCopies =
      std::max<uint32_t>(model.copies / pipeline.expertParallel, 1);
  model.zero = model.gradientsPartitioned ? 1 : *pipeline.zero;
}

/// While a layer runs, it has those of its parameters and gradients whole that
/// ZeRO divides else.
static void addGathered(Model &model) {
  Bytes each = (model.zero >= 2 ? model.gradientBytes : 0) +
               (model.zero >= 3 ? model.parameterBytes : 0);
  for (Layer &layer : model.layers) {
    Wide count = (model.copies > 1 ? layer.held.dense : 0) +
                 Wide(model.expertCopies > 1 ? layer.held.experts : 0);
    layer.workspace = toBytes(layer.workspace + count * each);
  }
}

std::optional<Model> buildModel(const Spec &spec, Diagnostics &diagnostics) {
  if (!checkParallel(spec, diagnostics))
    return std::nullopt;
  Model model;
  model.name = spec.model.name;
  model.timeUnit = spec.model.timeUnit;
  model.parameterBytes = spec.model.parameterBytes;
  model.gradientBytes = spec.model.gradientBytes;
  model.optimizerBytes = spec.model.optimizerBytes;
  setCopies(spec.pipeline, model);
  if (spec.model.transformer) {
    checkProfile(spec, diagnostics);
    addTransformerLayers(spec, model);
    addGathered(model);
  } else {
    addExplicitLayers(spec, model);
  }
  model.replicas = replicasOf(spec.pipeline, model.gradientBytes);
  model.optimizerParts = optimizerPartsOf(spec.pipeline, model.gradientBytes);
  warnOfReplicas(spec.pipeline, model.gradientBytes, diagnostics);
  const ClusterSpec &cluster = spec.cluster;
  bool fits = checkComputeTime(spec, model, diagnostics);
  fits = checkBytes(spec, model, diagnostics) && fits;
  if (fits)
    fits = checkMessageTime(spec, model, cluster.link, diagnostics);
  if (fits && cluster.nodeLink && cluster.devicesPerNode.given)
    fits = checkMessageTime(spec, model, *cluster.nodeLink, diagnostics);
  if (fits)
    fits = checkCopyTime(spec, model, diagnostics);
  return fits ? std::optional(std::move(model)) : std::nullopt;
}

} // namespace sluice
