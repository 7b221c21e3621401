//===- compiler/spec/PipelineKeys.cpp - The keys of the section pipeline --===//
#include "compiler/spec/LayoutString.h"
#include "compiler/spec/Sections.h"

#include <iterator>

namespace sluice {

namespace {

/// {first: n, last: n}, one of them, or {count: [embedding, head]}
struct LayoutSection {
  std::optional<uint32_t> first, last;
  std::optional<LayoutEven> count;
};

template <std::optional<uint32_t> LayoutSection::*End>
void layoutEnd(const Field &field, LayoutSection &section) {
  if (std::optional<uint64_t> given = field.count(0, kMaxLayers))
    section.*End = static_cast<uint32_t>(*given);
}

void layoutCount(const Field &field, LayoutSection &section) {
  section.count.emplace();
  if (!field.expectList())
    return;
  for (size_t i = 0; i < field.node.items.size(); ++i) {
    Field item = field.item(i);
    std::optional<std::string_view> text = item.scalar("embedding or head");
    if (text == "embedding")
      section.count->embedding = true;
    else if (text == "head")
      section.count->head = true;
    else if (text)
      item.mismatch("embedding or head");
  }
}

constexpr Key<LayoutSection> kLayoutKeys[] = {
    {.name = "first", .read = layoutEnd<&LayoutSection::first>},
    {.name = "last", .read = layoutEnd<&LayoutSection::last>},
    {.name = "count", .read = layoutCount},
};

void layoutMap(const Field &field, PipelineSpec &pipeline) {
  LayoutSection section;
  readSection(field, kLayoutKeys, section);
  bool ends = section.first || section.last;
  if (ends && section.count)
    field.reader
        .error(field.where, field.name() + " has both count and first or last")
        .note("count takes layers off the stages at the ends, first and last "
              "say how many these have");
  else if (field.node.entries.empty())
    field.reader.error(field.where,
                       field.name() + " must have first, last or count");
  else if (section.count)
    field.set(pipeline.layout, Layout(*section.count));
  else
    field.set(pipeline.layout, Layout(LayoutEnds{section.first, section.last}));
}

void layoutWord(const Field &field, PipelineSpec &pipeline) {
  std::string_view text = field.node.text;
  if (text == "auto")
    field.set(pipeline.layout, Layout(LayoutAuto{}));
  else if (text == "even")
    field.set(pipeline.layout, Layout(LayoutEven{}));
  else if (!looksLikeLayoutString(text))
    field.mismatch("auto, even, a list of layers per stage, {first: n, "
                   "last: n}, {count: [embedding, head]}, or Megatron's "
                   "string such as Et*3|(tt|)*2,tL");
  else if (std::optional<LayoutString> layout = readLayoutString(field))
    field.set(pipeline.layout, Layout(std::move(*layout)));
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
  case YamlKind::Map:
    return layoutMap(field, pipeline);
  }
}

void warmup(const Field &field, PipelineSpec &pipeline) {
  if (field.node.kind == YamlKind::List) {
    if (auto counts = field.counts(0, kMaxMicrobatches))
      field.set(pipeline.warmup, Warmup(std::move(*counts)));
    return;
  }
  std::string must = "standard, auto, or a list of one count per rank";
  std::optional<std::string_view> text = field.scalar(must);
  if (!text)
    return;
  if (*text == "standard")
    field.set(pipeline.warmup, Warmup(WarmupStandard{}));
  else if (*text == "auto")
    field.set(pipeline.warmup, Warmup(WarmupAuto{}));
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

/// {csv: file} or {orders: one line per rank}
struct ScheduleSection {
  Located<std::string> csv;
  std::vector<Located<std::string>> orders;
};

void orders(const Field &field, ScheduleSection &section) {
  if (!field.expectList())
    return;
  for (size_t i = 0; i < field.node.items.size(); ++i) {
    Field item = field.item(i);
    Located<std::string> line;
    if (std::optional<std::string> text = item.text())
      item.set(line, std::move(*text));
    section.orders.push_back(std::move(line));
  }
}

constexpr Key<ScheduleSection> kScheduleKeys[] = {
    {.name = "csv", .read = text<&ScheduleSection::csv>},
    {.name = "orders", .read = orders},
};

void ownSchedule(const Field &field, PipelineSpec &pipeline) {
  ScheduleSection section;
  readSection(field, kScheduleKeys, section);
  if (field.node.entries.size() != 1)
    field.reader.error(field.where,
                       field.name() + " must have one of csv and orders, not " +
                           (field.node.entries.empty() ? "none" : "more"));
  pipeline.ownOrders = true;
  pipeline.scheduleCsv = std::move(section.csv);
  pipeline.scheduleOrders = std::move(section.orders);
  field.set(pipeline.schedule, std::string(kOwnOrders));
}

void schedule(const Field &field, PipelineSpec &pipeline) {
  if (field.node.kind == YamlKind::Map)
    return ownSchedule(field, pipeline);
  std::optional<std::string_view> text = field.scalar("the name of a schedule");
  if (!text)
    return;
  if (*text == "auto")
    field.reader
        .error(field.where,
               field.name() + " is auto, which is not supported yet")
        .note("name a schedule");
  else if (std::optional<std::string> named = field.text()) {
    pipeline.ownOrders = false;
    pipeline.scheduleCsv = {};
    pipeline.scheduleOrders.clear();
    field.set(pipeline.schedule, std::move(*named));
  }
}

void placement(const Field &field, PipelineSpec &pipeline) {
  using Value = std::variant<PlacementKind, std::vector<uint32_t>>;
  if (field.node.kind == YamlKind::List) {
    if (auto ranks = field.counts(0, kMaxStages))
      field.set(pipeline.placement, Value(std::move(*ranks)));
    return;
  }
  std::string must = "one of ";
  for (PlacementKind kind : kPlacementKinds)
    must += std::string(placementName(kind)) + ", ";
  must += "or a list of one rank per stage";
  std::optional<std::string_view> text = field.scalar(must);
  if (!text)
    return;
  for (PlacementKind kind : kPlacementKinds)
    if (placementName(kind) == *text)
      return field.set(pipeline.placement, Value(kind));
  field.mismatch(must);
}

/// A count, or PyTorch's rounds.
void groupSize(const Field &field, PipelineSpec &pipeline) {
  std::optional<uint32_t> size;
  if (field.node.kind != YamlKind::Scalar || field.node.text != "rounds") {
    std::optional<uint64_t> given = field.count(1, kMaxMicrobatches);
    if (!given)
      return;
    size = static_cast<uint32_t>(*given);
  }
  field.set(pipeline.groupSize, size);
}

/// A policy by its word.
std::optional<RecomputePolicy> policy(const Field &field,
                                      const std::string &must) {
  std::optional<std::string_view> text = field.scalar(must);
  if (!text)
    return std::nullopt;
  for (unsigned i = 0; i < std::size(kRecomputePolicies); ++i)
    if (kRecomputePolicies[i] == *text)
      return static_cast<RecomputePolicy>(i);
  field.mismatch(must);
  return std::nullopt;
}

void recompute(const Field &field, PipelineSpec &pipeline) {
  std::string one = "one of none, selective, full";
  if (field.node.kind == YamlKind::Scalar && field.node.text == "auto")
    return field.set(pipeline.recompute, Recompute(RecomputeAuto{}));
  if (field.node.kind != YamlKind::List) {
    if (auto all = policy(field, one + ", auto, or a list of one per stage"))
      field.set(pipeline.recompute, Recompute(*all));
    return;
  }
  std::vector<RecomputePolicy> list;
  for (size_t i = 0; i < field.node.items.size(); ++i)
    if (auto each = policy(field.item(i), one))
      list.push_back(*each);
  if (list.size() == field.node.items.size())
    field.set(pipeline.recompute, Recompute(std::move(list)));
}

/// Whether an entry of `offload` is activations.
std::optional<bool> offloads(const Field &field, const std::string &must) {
  std::optional<std::string_view> text = field.scalar(must);
  if (!text)
    return std::nullopt;
  if (*text == "none" || *text == "activations")
    return *text == "activations";
  field.mismatch(must);
  return std::nullopt;
}

void offload(const Field &field, PipelineSpec &pipeline) {
  std::string one = "none or activations";
  if (field.node.kind != YamlKind::List) {
    if (auto all = offloads(field, one + ", or a list of one per stage"))
      field.set(pipeline.offload, Offload(*all));
    return;
  }
  std::vector<bool> list;
  for (size_t i = 0; i < field.node.items.size(); ++i)
    if (auto each = offloads(field.item(i), one))
      list.push_back(*each);
  if (list.size() == field.node.items.size())
    field.set(pipeline.offload, Offload(std::move(list)));
}

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
    {.name = "placement", .read = placement},
    {.name = "group_size", .read = groupSize},
    {.name = "layout", .read = layout},
    {.name = "warmup", .read = warmup},
    {.name = "objective", .read = word<&PipelineSpec::objective, kObjectives>},
    {.name = "backward", .read = word<&PipelineSpec::backward, kBackwardModes>},
    {.name = "recompute", .read = recompute},
    {.name = "offload", .read = offload},
    {.name = "tensor_parallel",
     .read = count<&PipelineSpec::tensorParallel, 1, kMaxStages>},
    {.name = "sequence_parallel",
     .read = flag<&PipelineSpec::sequenceParallel>},
    {.name = "context_parallel",
     .read = count<&PipelineSpec::contextParallel, 1, kMaxStages>},
    {.name = "expert_parallel",
     .read = count<&PipelineSpec::expertParallel, 1, kMaxStages>},
    {.name = "data_parallel",
     .read = count<&PipelineSpec::dataParallel, 1, kMaxStages>},
    {.name = "zero", .read = count<&PipelineSpec::zero, 0, 3>},
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

} // namespace

void readPipeline(const Field &field, Spec &spec) {
  spec.pipeline.where = field.where;
  readSection(field, kPipelineKeys, spec.pipeline);
  checkSizes(field, spec.pipeline);
}

} // namespace sluice
