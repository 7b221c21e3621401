//===- compiler/spec/ProfileKeys.cpp - Keys of a file of measured times ---===//
//
//   sluice_profile: 1
//   measured: {device: h100, microbatch_size: 1, tensor_parallel: 8}
//   layers:
//     dense_block: {forward: 3.1ms, backward_input: 3.2ms, backward_weight:
//     2ms}
//
// Times are those of one microbatch on one rank, with the messages of its group
// of devices. A layer or a time that is left out is computed.
//
//===----------------------------------------------------------------------===//
#include "compiler/spec/Sections.h"

namespace sluice {

namespace {

constexpr Key<LayerTimes> kTimesKeys[] = {
    {.name = "forward", .read = time<&LayerTimes::forward>},
    {.name = "backward_input", .read = time<&LayerTimes::backwardInput>},
    {.name = "backward_weight", .read = time<&LayerTimes::backwardWeight>},
    {.name = "recompute", .read = time<&LayerTimes::recompute>},
};

template <unsigned Row> void times(const Field &field, ProfileLayers &layers) {
  readSection(field, kTimesKeys, layers.*kProfiledLayers[Row].times);
}

template <unsigned Row>
constexpr Key<ProfileLayers> kLayerKey = {.name = kProfiledLayers[Row].name,
                                          .read = times<Row>};

constexpr Key<ProfileLayers> kLayersKeys[] = {
    kLayerKey<0>, kLayerKey<1>, kLayerKey<2>, kLayerKey<3>, kLayerKey<4>};
static_assert(std::size(kLayersKeys) == std::size(kProfiledLayers));

constexpr Key<ProfileSizes> kSizesKeys[] = {
    {.name = "device", .read = text<&ProfileSizes::device>},
    {.name = "sequence", .read = count<&ProfileSizes::sequence, 1, kMaxTokens>},
    {.name = "microbatch_size",
     .read = count<&ProfileSizes::microbatchSize, 1, kMaxWidth>},
    {.name = "tensor_parallel",
     .read = count<&ProfileSizes::tensorParallel, 1, kMaxStages>},
    {.name = "sequence_parallel",
     .read = flag<&ProfileSizes::sequenceParallel>},
    {.name = "context_parallel",
     .read = count<&ProfileSizes::contextParallel, 1, kMaxStages>},
    {.name = "expert_parallel",
     .read = count<&ProfileSizes::expertParallel, 1, kMaxStages>},
};

void sizes(const Field &field, ProfileSpec &profile) {
  readSection(field, kSizesKeys, profile.measured);
}

void layers(const Field &field, ProfileSpec &profile) {
  readSection(field, kLayersKeys, profile.layers);
}

constexpr Key<ProfileSpec> kProfileKeys[] = {
    {.name = "sluice_profile", .required = true, .only = "1"},
    {.name = "measured", .read = sizes},
    {.name = "layers", .read = layers, .required = true},
};

} // namespace

void readProfile(std::string_view specFile, ModelSpec &spec, Reader &reader) {
  std::string path;
  std::optional<std::string> text =
      readBeside(spec.profile, specFile, path, reader);
  if (!text)
    return;
  uint32_t file = reader.addSource(path, *text);
  std::optional<YamlNode> root = reader.parse(*text, {file, 1, 1});
  if (root)
    readSection({reader, *root, {file, 1, 1}, "profile"}, kProfileKeys,
                spec.measured.emplace());
}

} // namespace sluice
