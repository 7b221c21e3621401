//===- Sections.cpp - The tables of keys, one per section ----------------===//
//
// The schema of a spec (design, 7). A key that is to exist but does not yet has
// a row without a reader, or with the `only` value that is supported. To add a
// key: one row here and its member in Spec.h.
//
//===----------------------------------------------------------------------===//
#include "compiler/spec/Sections.h"

#include <algorithm>
#include <iterator>

namespace sluice {

namespace {

constexpr uint64_t kMaxSteps = 1'000'000'000;

//===----------------------------------------------------------------------===//
// Values that are not one scalar
//===----------------------------------------------------------------------===//

/// {first: n, last: n}
struct EndsSection {
  Located<uint32_t> first, last;
};
constexpr Key<EndsSection> kEndsKeys[] = {
    {.name = "first",
     .read = count<&EndsSection::first, 0, kMaxLayers>,
     .required = true},
    {.name = "last",
     .read = count<&EndsSection::last, 0, kMaxLayers>,
     .required = true},
};

/// Whether `text` is written in the letters of Megatron's layout strings.
bool looksLikeMegatron(std::string_view text) {
  return text.find('|') != std::string_view::npos &&
         text.find_first_not_of("EtmL|*(),0123456789 ") ==
             std::string_view::npos;
}

void layoutWord(const Field &field, PipelineSpec &pipeline) {
  std::string_view text = field.node.text;
  if (text == "auto")
    field.set(pipeline.layout, Layout(LayoutAuto{}));
  else if (text == "even")
    field.set(pipeline.layout, Layout(LayoutEven{}));
  else if (looksLikeMegatron(text))
    field.reader
        .error(field.where, field.name() + " is " + field.shown() +
                                ", but Megatron's layout strings are not "
                                "supported yet")
        .note("write the layers of each stage, as in [6, 6, 6, 6]");
  else
    field.mismatch("auto, even, a list of layers per stage, or {first: n, "
                   "last: n}");
}

void layout(const Field &field, PipelineSpec &pipeline) {
  switch (field.node.kind) {
  case YamlKind::Null:
  case YamlKind::Scalar:
    return layoutWord(field, pipeline);
  case YamlKind::List:
    if (auto counts = field.counts(0, kMaxLayers))
      field.set(pipeline.layout, Layout(std::move(*counts)));
    return;
  case YamlKind::Map: {
    EndsSection ends;
    readSection(field, kEndsKeys, ends);
    return field.set(pipeline.layout,
                     Layout(LayoutEnds{ends.first, ends.last}));
  }
  }
}

void warmup(const Field &field, PipelineSpec &pipeline) {
  if (field.node.kind == YamlKind::List) {
    if (auto counts = field.counts(0, kMaxMicrobatches))
      field.set(pipeline.warmup, Warmup(std::move(*counts)));
    return;
  }
  std::string must = "standard, or a list of one count per rank";
  std::optional<std::string_view> text = field.scalar(must);
  if (!text)
    return;
  if (*text == "standard")
    field.set(pipeline.warmup, Warmup(WarmupStandard{}));
  else if (*text == "auto")
    field.reader
        .error(field.where,
               field.name() + " is auto, which is not supported yet")
        .note("it may be " + must);
  else
    field.mismatch(must);
}

void memoryLimit(const Field &field, PipelineSpec &pipeline) {
  std::optional<Bytes> limit = field.bytes();
  if (limit && *limit == 0)
    field.mismatch("at least 1 byte; without the key there is no limit");
  else if (limit)
    field.set(pipeline.memoryLimit, *limit);
}

/// {csv: file} and {orders: …}
struct ScheduleSection {};
constexpr Key<ScheduleSection> kScheduleKeys[] = {
    {.name = "csv"},
    {.name = "orders"},
};

void schedule(const Field &field, PipelineSpec &pipeline) {
  if (field.node.kind == YamlKind::Map) {
    ScheduleSection ignored;
    return readSection(field, kScheduleKeys, ignored);
  }
  std::optional<std::string_view> text = field.scalar("the name of a schedule");
  if (!text)
    return;
  if (*text == "auto")
    field.reader
        .error(field.where,
               field.name() + " is auto, which is not supported yet")
        .note("name a schedule");
  else if (std::optional<std::string> named = field.text())
    field.set(pipeline.schedule, std::move(*named));
}

//===----------------------------------------------------------------------===//
// model
//===----------------------------------------------------------------------===//

constexpr Key<LayerSpec> kLayerKeys[] = {
    {.name = "name", .read = text<&LayerSpec::name>},
    {.name = "repeat", .read = count<&LayerSpec::repeat, 1, kMaxLayers>},
    {.name = "forward", .read = time<&LayerSpec::forward>, .required = true},
    {.name = "backward", .read = time<&LayerSpec::backward>},
    {.name = "backward_input", .read = time<&LayerSpec::backwardInput>},
    {.name = "backward_weight", .read = time<&LayerSpec::backwardWeight>},
    {.name = "params", .read = count<&LayerSpec::parameters, 0, kMaxBytes>},
    {.name = "activation_bytes", .read = bytes<&LayerSpec::activationBytes>},
    {.name = "kept_for_weight", .read = bytes<&LayerSpec::keptForWeight>},
    {.name = "output_bytes", .read = bytes<&LayerSpec::outputBytes>},
    {.name = "workspace_bytes", .read = bytes<&LayerSpec::workspaceBytes>},
};

constexpr Word<DataType> kDataTypes[] = {{"fp32", DataType::Fp32},
                                         {"bf16", DataType::Bf16},
                                         {"fp16", DataType::Fp16}};
constexpr Word<const char *> kNorms[] = {{"layer", "layer"}, {"rms", "rms"}};
constexpr Word<const char *> kPositions[] = {
    {"learned", "learned"}, {"rope", "rope"}, {"alibi", "alibi"}};

// The upper limits keep products of any four of these, in bytes or operations,
// within 128 bits.
constexpr uint64_t kMaxWidth = 1 << 20;
constexpr uint64_t kMaxTokens = 1 << 24;

constexpr Key<TransformerSpec> kTransformerKeys[] = {
    {.name = "layers",
     .read = count<&TransformerSpec::layers, 1, kMaxLayers>,
     .required = true},
    {.name = "hidden",
     .read = count<&TransformerSpec::hidden, 1, kMaxWidth>,
     .required = true},
    {.name = "ffn", .read = count<&TransformerSpec::ffn, 1, 4 * kMaxWidth>},
    {.name = "gated_ffn", .read = flag<&TransformerSpec::gatedFfn>},
    {.name = "heads",
     .read = count<&TransformerSpec::heads, 1, kMaxWidth>,
     .required = true},
    {.name = "kv_heads",
     .read = count<&TransformerSpec::kvHeads, 1, kMaxWidth>},
    {.name = "vocab",
     .read = count<&TransformerSpec::vocab, 1, kMaxTokens>,
     .required = true},
    {.name = "sequence",
     .read = count<&TransformerSpec::sequence, 1, kMaxTokens>,
     .required = true},
    {.name = "positions",
     .read = count<&TransformerSpec::positions, 1, kMaxTokens>},
    {.name = "position", .read = word<&TransformerSpec::position, kPositions>},
    {.name = "norm", .read = word<&TransformerSpec::norm, kNorms>},
    {.name = "bias", .read = flag<&TransformerSpec::bias>},
    {.name = "tied_embeddings", .read = flag<&TransformerSpec::tiedEmbeddings>},
    {.name = "flash_attention", .read = flag<&TransformerSpec::flashAttention>},
    {.name = "dropout", .read = flag<&TransformerSpec::dropout>},
    {.name = "dtype", .read = word<&TransformerSpec::dtype, kDataTypes>},
    // Variants of the block.
    {.name = "qkv_bias"},
    {.name = "head_dim"},
    {.name = "embed_layernorm"},
    // Mixture of experts.
    {.name = "experts"},
    {.name = "topk"},
    {.name = "moe_ffn"},
    {.name = "shared_experts"},
    {.name = "dense_layers"},
    // Multi-head latent attention.
    {.name = "q_lora_rank"},
    {.name = "kv_lora_rank"},
    {.name = "qk_nope"},
    {.name = "qk_rope"},
    {.name = "v_head"},
    // Multi-token prediction.
    {.name = "mtp_layers"},
};

/// Either the whole backward, or both its parts.
void checkBackward(const Field &field, const LayerSpec &layer) {
  auto fault = [&](SourceLocation where, const std::string &message) {
    field.reader.error(where, field.name() + " " + message);
  };
  bool input = layer.backwardInput.given, weight = layer.backwardWeight.given;
  auto written = [&](std::string_view key) {
    for (const YamlEntry &entry : field.node.entries)
      if (entry.key == key)
        return true;
    return false;
  };
  if (layer.backward.given && (input || weight))
    fault(layer.backward.where,
          "has backward along with its parts; give backward, or "
          "backward_input and backward_weight");
  else if (input && !written("backward_weight"))
    fault(layer.backwardInput.where,
          "has backward_input, but no backward_weight");
  else if (weight && !written("backward_input"))
    fault(layer.backwardWeight.where,
          "has backward_weight, but no backward_input");
  else if (!written("backward") && !written("backward_input"))
    fault(field.where, "has no backward; give backward, or backward_input and "
                       "backward_weight");
}

void checkLayer(const Field &field, const LayerSpec &layer) {
  if (field.node.kind != YamlKind::Map)
    return;
  checkBackward(field, layer);
  if (layer.keptForWeight.value > layer.activationBytes.value)
    field.reader.error(layer.keptForWeight.where,
                       field.name() + ".kept_for_weight is " +
                           std::to_string(layer.keptForWeight) +
                           " bytes, more than the " +
                           std::to_string(layer.activationBytes) +
                           " of activation_bytes that it is part of");
}

void layers(const Field &field, ModelSpec &model) {
  if (!field.expectList())
    return;
  if (field.node.items.empty())
    field.reader.error(field.where, field.name() + " is an empty list");
  uint64_t total = 0;
  for (size_t i = 0; i < field.node.items.size(); ++i) {
    Field item = field.item(i);
    LayerSpec layer;
    layer.where = item.where;
    if (item.node.kind == YamlKind::Null)
      item.mismatch("a map");
    else
      readSection(item, kLayerKeys, layer);
    checkLayer(item, layer);
    total += layer.repeat.value;
    model.layers.push_back(std::move(layer));
  }
  if (total > kMaxLayers)
    field.reader.error(field.where, field.name() + " has " +
                                        std::to_string(total) +
                                        " layers, must be at most " +
                                        std::to_string(kMaxLayers));
}

/// What the fields of a transformer mean together. Missing ones are 0 here.
void checkTransformer(const Field &field, const TransformerSpec &shape) {
  auto fault = [&](const Located<uint32_t> &value, std::string_view key,
                   const std::string &message) {
    field.reader.error(value.where, field.name() + "." + std::string(key) +
                                        " is " + std::to_string(value) + ", " +
                                        message);
  };
  uint32_t hidden = shape.hidden, heads = shape.heads;
  bool divides = heads != 0 && hidden % heads == 0;
  if (heads != 0 && hidden != 0 && !divides)
    fault(shape.hidden, "hidden",
          "not divisible by " + std::to_string(heads) + " heads");
  if (divides && shape.position.value == "rope" && hidden / heads % 2 != 0)
    fault(shape.hidden, "hidden",
          "so a head has " + std::to_string(hidden / heads) +
              " numbers, which must be even for position rope");
  if (shape.kvHeads.given && heads % shape.kvHeads.value != 0)
    fault(shape.heads, "heads",
          "not divisible by " + std::to_string(shape.kvHeads) + " kv_heads");
  bool learned = shape.position.value == "learned";
  if (shape.positions.given && learned &&
      shape.positions.value < shape.sequence.value)
    fault(shape.positions, "positions",
          "fewer than the sequence of " + std::to_string(shape.sequence));
  if (shape.positions.given && !learned)
    field.reader.warning(shape.positions.where,
                         field.name() +
                             ".positions has no effect with "
                             "position " +
                             shape.position.value);
  if (shape.gatedFfn.value && !shape.ffn.given)
    field.reader.error(field.where, field.name() +
                                        " has gated_ffn, but no ffn (only "
                                        "without gating it is 4 x hidden)");
}

void transformer(const Field &field, ModelSpec &model) {
  TransformerSpec &shape = model.transformer.emplace();
  shape.where = field.where;
  readSection(field, kTransformerKeys, shape);
  checkTransformer(field, shape);
  if (!shape.ffn.given)
    shape.ffn.value = 4 * shape.hidden.value;
  if (!shape.kvHeads.given)
    shape.kvHeads.value = shape.heads;
  if (!shape.positions.given)
    shape.positions.value = shape.sequence;
}

constexpr Key<ModelSpec> kModelKeys[] = {
    {.name = "name", .read = text<&ModelSpec::name>},
    {.name = "layers", .read = layers},
    {.name = "transformer", .read = transformer},
    {.name = "config"},
    {.name = "parameter_bytes", .read = bytes<&ModelSpec::parameterBytes>},
    {.name = "gradient_bytes", .read = bytes<&ModelSpec::gradientBytes>},
    {.name = "optimizer_bytes", .read = bytes<&ModelSpec::optimizerBytes>},
};

/// A model is given in one of three ways.
void checkModelKinds(const Field &field) {
  const YamlEntry *first = nullptr;
  for (const YamlEntry &entry : field.node.entries) {
    if (entry.key != "layers" && entry.key != "transformer" &&
        entry.key != "config")
      continue;
    if (first && first->key != entry.key)
      field.reader
          .error(entry.where, field.name() + " has " + entry.key +
                                  " along with " + first->key +
                                  "; it must be one of layers, transformer "
                                  "and config")
          .note("the other is here", first->where);
    first = first ? first : &entry;
  }
  if (!first)
    field.reader.error(field.where,
                       field.name() + " has neither layers nor transformer");
}

void model(const Field &field, Spec &spec) {
  spec.model.where = field.where;
  readSection(field, kModelKeys, spec.model);
  if (field.node.kind == YamlKind::Map || field.node.kind == YamlKind::Null)
    checkModelKinds(field);
}

//===----------------------------------------------------------------------===//
// pipeline
//===----------------------------------------------------------------------===//

constexpr Word<const char *> kPlacements[] = {
    {"linear", "linear"},
    {"loop", "loop"},
    {"v", "v"},
    {"bidirectional", "bidirectional"}};
constexpr Word<Objective> kObjectives[] = {{"makespan", Objective::Makespan},
                                           {"span", Objective::Span}};
constexpr Word<BackwardMode> kBackwardModes[] = {
    {"auto", BackwardMode::Auto},
    {"fused", BackwardMode::Fused},
    {"split", BackwardMode::Split}};

constexpr Key<PipelineSpec> kPipelineKeys[] = {
    {.name = "ranks", .read = count<&PipelineSpec::ranks, 1, kMaxStages>},
    {.name = "virtual_stages",
     .read = count<&PipelineSpec::virtualStages, 1, kMaxStages>},
    {.name = "microbatches",
     .read = count<&PipelineSpec::microbatches, 1, kMaxMicrobatches>},
    {.name = "microbatch_size",
     .read = count<&PipelineSpec::microbatchSize, 1, kMaxWidth>},
    {.name = "schedule", .read = schedule},
    {.name = "placement", .read = word<&PipelineSpec::placement, kPlacements>},
    {.name = "layout", .read = layout},
    {.name = "warmup", .read = warmup},
    {.name = "objective", .read = word<&PipelineSpec::objective, kObjectives>},
    {.name = "backward", .read = word<&PipelineSpec::backward, kBackwardModes>},
    {.name = "recompute", .only = "none"},
    {.name = "tensor_parallel", .only = "1"},
    {.name = "sequence_parallel", .only = "false"},
    {.name = "context_parallel", .only = "1"},
    {.name = "expert_parallel", .only = "1"},
    {.name = "data_parallel", .only = "1"},
    {.name = "zero", .only = "0"},
    {.name = "memory_limit", .read = memoryLimit},
};

/// Limits on products, which keep the graph's numbers within 32 bits.
void checkSizes(const Field &field, const PipelineSpec &pipeline) {
  auto where = [&](const auto &first, const auto &second) {
    return second.given  ? second.where
           : first.given ? first.where
                         : field.where;
  };
  uint64_t ranks = pipeline.ranks.value, chunks = pipeline.virtualStages.value;
  uint64_t stages = ranks * chunks, count = pipeline.microbatches.value;
  if (stages > kMaxStages)
    field.reader.error(
        where(pipeline.ranks, pipeline.virtualStages),
        std::to_string(ranks) + " ranks of " + std::to_string(chunks) +
            " virtual stages are " + std::to_string(stages) +
            " stages, must be at most " + std::to_string(kMaxStages));
  else if (stages * count > kMaxStageMicrobatches)
    field.reader.error(
        where(pipeline.ranks, pipeline.microbatches),
        std::to_string(stages) + " stages by " + std::to_string(count) +
            " microbatches are " + std::to_string(stages * count) +
            ", must be at most " + std::to_string(kMaxStageMicrobatches));
}

void pipeline(const Field &field, Spec &spec) {
  spec.pipeline.where = field.where;
  readSection(field, kPipelineKeys, spec.pipeline);
  checkSizes(field, spec.pipeline);
}

//===----------------------------------------------------------------------===//
// cluster, run and the top
//===----------------------------------------------------------------------===//

constexpr Key<DeviceSpec> kDeviceKeys[] = {
    {.name = "name", .read = text<&DeviceSpec::name>},
    {.name = "memory", .read = bytes<&DeviceSpec::memory>},
    {.name = "flops", .read = flops<&DeviceSpec::flops>},
    {.name = "efficiency", .read = number<&DeviceSpec::efficiency, 1>},
};

constexpr Key<LinkSpec> kLinkKeys[] = {
    {.name = "latency", .read = time<&LinkSpec::latency>},
    {.name = "bandwidth", .read = bandwidth<&LinkSpec::bandwidth>},
};

void device(const Field &field, ClusterSpec &cluster) {
  DeviceSpec &device = cluster.device.emplace();
  device.where = field.where;
  readSection(field, kDeviceKeys, device);
}

void link(const Field &field, ClusterSpec &cluster) {
  readSection(field, kLinkKeys, cluster.link);
}

void nodeLink(const Field &field, ClusterSpec &cluster) {
  readSection(field, kLinkKeys, cluster.nodeLink.emplace());
}

constexpr Key<ClusterSpec> kClusterKeys[] = {
    {.name = "device", .read = device},
    {.name = "link", .read = link},
    {.name = "node_link", .read = nodeLink},
    {.name = "devices_per_node",
     .read = count<&ClusterSpec::devicesPerNode, 1, kMaxStages>},
};

void cluster(const Field &field, Spec &spec) {
  readSection(field, kClusterKeys, spec.cluster);
  for (const YamlEntry &entry : field.node.entries)
    if (entry.key == "node_link" && !spec.cluster.devicesPerNode.given)
      field.reader.warning(entry.where, "cluster.node_link has no effect "
                                        "without cluster.devices_per_node");
}

constexpr Key<RunSpec> kRunKeys[] = {
    {.name = "module", .read = text<&RunSpec::module>},
    {.name = "data", .read = text<&RunSpec::data>},
    {.name = "steps", .read = count<&RunSpec::steps, 1, kMaxSteps>},
    {.name = "learning_rate", .read = number<&RunSpec::learningRate, 1000>},
    {.name = "seed", .read = count<&RunSpec::seed, 0, kMaxBytes>},
};

void run(const Field &field, Spec &spec) { readRun(field, spec.run); }

constexpr Key<Spec> kTopKeys[] = {
    {.name = "sluice", .required = true, .only = "1"},
    {.name = "model", .read = model, .required = true},
    {.name = "pipeline", .read = pipeline},
    {.name = "cluster", .read = cluster},
    {.name = "run", .read = run},
};

/// A transformer's times come from the device, if it says how fast it is.
void noteTransformerTimes(const Field &top, const Spec &spec) {
  const std::optional<DeviceSpec> &device = spec.cluster.device;
  bool speed = device && device->flops.given;
  if (speed && !spec.model.transformer)
    top.reader.warning(device->flops.where,
                       "cluster.device.flops has no effect on explicit layers");
  if (!spec.model.transformer)
    return;
  if (speed)
    top.reader.noteTime(TimeUnit::Seconds, device->flops.where,
                        "cluster.device.flops gives model.transformer times "
                        "in seconds");
  else
    top.reader.noteTime(TimeUnit::Unit, spec.model.transformer->where,
                        "model.transformer has times in abstract units "
                        "without cluster.device.flops");
}

} // namespace

bool isRunKey(std::string_view key) {
  return std::any_of(
      std::begin(kRunKeys), std::end(kRunKeys),
      [&](const Key<RunSpec> &known) { return known.name == key; });
}

void readRun(const Field &field, RunSpec &run) {
  readSection(field, kRunKeys, run);
}

void readSpec(const Field &top, Spec &spec) {
  if (top.node.kind == YamlKind::Null) {
    top.reader.error(top.where, "the spec is empty; it begins with sluice: 1");
    return;
  }
  readSection(top, kTopKeys, spec);
  noteTransformerTimes(top, spec);
  spec.model.timeUnit = top.reader.finishTimes();
}

} // namespace sluice
