//===- compiler/spec/ModelKeys.cpp - The keys of the section model --------===//
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

void transformer(const Field &field, ModelSpec &model) {
  readTransformer(field, model.transformer.emplace());
}

/// A key of model.transformer that may stand beside a config.
void besideConfig(const Field &field, ModelSpec &model) {
  std::string_view path = field.path;
  readTransformerKey(field, path.substr(path.rfind('.') + 1),
                     model.besideConfig);
}

constexpr Key<ModelSpec> kModelKeys[] = {
    {.name = "name", .read = text<&ModelSpec::name>},
    {.name = "layers", .read = layers},
    {.name = "transformer", .read = transformer},
    {.name = "config", .read = text<&ModelSpec::config>},
    {.name = "sequence", .read = besideConfig},
    {.name = "dtype", .read = besideConfig},
    {.name = "flash_attention", .read = besideConfig},
    {.name = "dropout", .read = besideConfig},
    {.name = "mtp_layers", .read = besideConfig},
    {.name = "profile", .read = text<&ModelSpec::profile>},
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
    field.reader.error(field.where, field.name() + " has none of layers, "
                                                   "transformer and config");
}

/// Keys that say of a config's model how it is trained need one.
void checkBesideConfig(const Field &field) {
  constexpr std::string_view kBeside[] = {
      "sequence", "dtype", "flash_attention", "dropout", "mtp_layers"};
  for (const YamlEntry &entry : field.node.entries)
    for (std::string_view key : kBeside)
      if (entry.key == key)
        field.reader.error(entry.where,
                           field.name() + "." + entry.key +
                               " needs model.config; without one it is a key "
                               "of model.transformer");
}

} // namespace

void readModel(const Field &field, Spec &spec) {
  spec.model.where = field.where;
  readSection(field, kModelKeys, spec.model);
  if (field.node.kind == YamlKind::Map || field.node.kind == YamlKind::Null)
    checkModelKinds(field);
  if (!spec.model.config.given)
    checkBesideConfig(field);
  else if (!spec.model.transformer && spec.model.layers.empty())
    readConfig(field, spec.file, spec.model);
  if (spec.model.profile.given && spec.model.layers.empty())
    readProfile(spec.file, spec.model, field.reader);
  else if (spec.model.profile.given)
    field.reader.warning(spec.model.profile.where,
                         "model.profile has no effect on explicit layers");
}

} // namespace sluice
