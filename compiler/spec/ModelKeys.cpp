//===- ModelKeys.cpp - The keys of the section model ---------------------===//
#include "compiler/spec/Sections.h"

namespace sluice {

namespace {

constexpr Key<LayerSpec> kLayerKeys[] = {
    {.name = "name", .read = text<&LayerSpec::name>},
    {.name = "repeat", .read = count<&LayerSpec::repeat, 1, kMaxLayers>},
    {.name = "forward", .read = time<&LayerSpec::forward>, .required = true},
    {.name = "backward", .read = time<&LayerSpec::backward>},
    {.name = "backward_input", .read = time<&LayerSpec::backwardInput>},
    {.name = "backward_weight", .read = time<&LayerSpec::backwardWeight>},
    {.name = "overlapped_pair", .read = time<&LayerSpec::overlappedPair>},
    {.name = "recompute", .read = time<&LayerSpec::recompute>},
    {.name = "params", .read = count<&LayerSpec::parameters, 0, kMaxBytes>},
    {.name = "activation_bytes", .read = bytes<&LayerSpec::activationBytes>},
    {.name = "kept_for_weight", .read = bytes<&LayerSpec::keptForWeight>},
    {.name = "output_bytes", .read = bytes<&LayerSpec::outputBytes>},
    {.name = "workspace_bytes", .read = bytes<&LayerSpec::workspaceBytes>},
    {.name = "checkpoint_bytes", .read = bytes<&LayerSpec::checkpointBytes>},
};

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

/// A pair takes at least as long as the longer of the two, and no longer than
/// both in sequence.
void checkPair(const Field &field, const LayerSpec &layer) {
  if (!layer.overlappedPair.given)
    return;
  Ticks backward = layer.backward.given
                       ? layer.backward.value
                       : layer.backwardInput.value + layer.backwardWeight.value;
  Ticks forward = layer.forward.value, pair = layer.overlappedPair.value;
  if (pair < std::max(forward, backward) || pair > forward + backward)
    field.reader
        .error(layer.overlappedPair.where,
               field.name() + ".overlapped_pair must be between the longer of "
                              "forward and backward and their sum")
        .note("without the key a pair takes as long as both in sequence");
}

void checkLayer(const Field &field, const LayerSpec &layer) {
  if (field.node.kind != YamlKind::Map)
    return;
  checkBackward(field, layer);
  checkPair(field, layer);
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
  if (divides && shape.position.value == Positions::Rope &&
      hidden / heads % 2 != 0)
    fault(shape.hidden, "hidden",
          "so a head has " + std::to_string(hidden / heads) +
              " numbers, which must be even for position rope");
  if (shape.kvHeads.given && heads % shape.kvHeads.value != 0)
    fault(shape.heads, "heads",
          "not divisible by " + std::to_string(shape.kvHeads) + " kv_heads");
  bool learned = shape.position.value == Positions::Learned;
  if (shape.positions.given && learned &&
      shape.positions.value < shape.sequence.value)
    fault(shape.positions, "positions",
          "fewer than the sequence of " + std::to_string(shape.sequence));
  if (shape.positions.given && !learned)
    field.reader.warning(shape.positions.where,
                         field.name() +
                             ".positions has no effect with "
                             "position " +
                             std::string(wordOf(kPositions, *shape.position)));
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

} // namespace

void readModel(const Field &field, Spec &spec) {
  spec.model.where = field.where;
  readSection(field, kModelKeys, spec.model);
  if (field.node.kind == YamlKind::Map || field.node.kind == YamlKind::Null)
    checkModelKinds(field);
}

} // namespace sluice
