//===- compiler/spec/Sections.cpp - Keys of a spec, its cluster, its run --===//
//
// The keys of model and of pipeline have files of their own. A key that is to
// exist but does not yet has a row without a reader, or with the `only` value
// that is supported. To add a key: one row in its table and its member in
// Spec.h.
//
//===----------------------------------------------------------------------===//
#include "compiler/spec/Sections.h"

#include <algorithm>
#include <iterator>

namespace sluice {

namespace {

constexpr uint64_t kMaxSteps = 1'000'000'000;

constexpr Key<DeviceSpec> kDeviceKeys[] = {
    {.name = "name", .read = text<&DeviceSpec::name>},
    {.name = "memory", .read = bytes<&DeviceSpec::memory>},
    {.name = "flops", .read = flops<&DeviceSpec::flops>},
    {.name = "efficiency", .read = number<&DeviceSpec::efficiency, 1>},
    {.name = "bandwidth", .read = bandwidth<&DeviceSpec::bandwidth>},
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

void groupLink(const Field &field, ClusterSpec &cluster) {
  readSection(field, kLinkKeys, cluster.groupLink.emplace());
}

void hostLink(const Field &field, ClusterSpec &cluster) {
  LinkSpec link;
  readSection(field, kLinkKeys, link);
  field.set(cluster.hostLink, std::optional(link));
}

constexpr Key<ClusterSpec> kClusterKeys[] = {
    {.name = "device", .read = device},
    {.name = "link", .read = link},
    {.name = "node_link", .read = nodeLink},
    {.name = "group_link", .read = groupLink},
    {.name = "host_link", .read = hostLink},
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
    {.name = "clip_norm", .read = number<&RunSpec::clipNorm, 1'000'000'000>},
    {.name = "gradient_groups",
     .read = count<&RunSpec::gradientGroups, 1, kMaxStages>},
    {.name = "learning_rate", .read = number<&RunSpec::learningRate, 1000>},
    {.name = "seed", .read = count<&RunSpec::seed, 0, kMaxBytes>},
};

void run(const Field &field, Spec &spec) { readRun(field, spec.run); }

constexpr Key<Spec> kTopKeys[] = {
    {.name = "sluice", .required = true, .only = "1"},
    {.name = "model", .read = readModel, .required = true},
    {.name = "pipeline", .read = readPipeline},
    {.name = "cluster", .read = cluster},
    {.name = "run", .read = run},
};

/// Whether the profile has all times that else follow from the device's speed.
bool isMeasured(const ModelSpec &model) {
  if (!model.measured || !model.transformer->flashAttention.value)
    return false;
  const TransformerSpec &x = *model.transformer;
  const ProfileLayers &layers = model.measured->layers;
  auto all = [](const LayerTimes &of) {
    return of.forward.given && of.backwardInput.given &&
           of.backwardWeight.given;
  };
  bool experts = x.experts.given;
  bool dense = !experts || x.denseLayers.value != 0;
  bool routed = experts && x.denseLayers.value < x.layers.value;
  return layers.embedding.forward.given && (!dense || all(layers.denseBlock)) &&
         (!routed || all(layers.expertBlock)) &&
         (x.mtpLayers.value == 0 || all(layers.mtp)) && all(layers.head);
}

/// A transformer's times come from the device, if it says how fast it is, and
/// from what was measured.
void noteTransformerTimes(const Field &top, const Spec &spec) {
  const std::optional<DeviceSpec> &device = spec.cluster.device;
  bool speed = device && device->flops.given;
  if (speed && !spec.model.transformer)
    top.reader.warning(device->flops.where,
                       "cluster.device.flops has no effect on explicit layers");
  if (device && device->bandwidth.given && (!speed || !spec.model.transformer))
    top.reader.warning(
        device->bandwidth.where,
        std::string("cluster.device.bandwidth has no effect ") +
            (speed ? "on explicit layers" : "without cluster.device.flops"));
  if (!spec.model.transformer || isMeasured(spec.model))
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
