#include "compiler/model/Layer.h"
#include "compiler/model/Network.h"
#include "compiler/model/Transformer.h"
#include "compiler/spec/Spec.h"

#include <algorithm>

namespace sluice {

using Wide = unsigned __int128;

uint32_t Model::countedLayers() const {
  return static_cast<uint32_t>(
      std::count_if(layers.begin(), layers.end(),
                    [](const Layer &layer) { return layer.counted(); }));
}

static Layer explicitLayer(const LayerSpec &spec) {
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
  layer.parameters = spec.parameters;
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
    Layer layer = explicitLayer(of);
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
  for (const Layer &layer : model.layers) {
    total += Wide(layer.forward) + layer.backwardInput + layer.backwardWeight +
             std::max(layer.recomputeFull, layer.recomputeSelective);
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

std::optional<Model> buildModel(const Spec &spec, Diagnostics &diagnostics) {
  Model model;
  model.name = spec.model.name;
  model.timeUnit = spec.model.timeUnit;
  model.parameterBytes = spec.model.parameterBytes;
  model.gradientBytes = spec.model.gradientBytes;
  model.optimizerBytes = spec.model.optimizerBytes;
  if (spec.model.transformer)
    addTransformerLayers(spec, model);
  else
    addExplicitLayers(spec, model);
  const ClusterSpec &cluster = spec.cluster;
  bool fits = checkComputeTime(spec, model, diagnostics);
  fits = checkBytes(spec, model, diagnostics) && fits;
  if (fits)
    fits = checkMessageTime(spec, model, cluster.link, diagnostics);
  if (fits && cluster.nodeLink && cluster.devicesPerNode.given)
    fits = checkMessageTime(spec, model, *cluster.nodeLink, diagnostics);
  return fits ? std::optional(std::move(model)) : std::nullopt;
}

} // namespace sluice
