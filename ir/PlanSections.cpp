#include "ir/PlanSections.h"

#include "PlanFile_generated.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace sluice::planfile {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::Vector;

/// Generous: offset, length, terminator and padding of one string or list,
/// tables and vtables included.
static constexpr uint64_t kEntryOverhead = 128;

uint64_t headerBound(const Plan &plan) {
  uint64_t bytes = 8 * kEntryOverhead + plan.model.size() +
                   plan.schedule.size() + plan.source.size();
  for (const Stage &stage : plan.stages)
    bytes += sizeof(StageRecord) + kEntryOverhead + stage.description.size();
  for (const auto &[key, value] : plan.run)
    bytes += kEntryOverhead + key.size() + value.size();
  for (const Collective &collective : plan.collectives)
    bytes += kEntryOverhead + collective.ranks.size() * sizeof(uint32_t);
  return bytes + plan.edges.size() * sizeof(EdgeRecord) +
         plan.channels.size() * sizeof(ChannelRecord) +
         plan.warmup.size() * sizeof(uint32_t);
}

uint64_t rankBound(const RankPlan &rank) {
  uint64_t bytes = 8 * kEntryOverhead;
  for (const std::string &stream : rank.streams)
    bytes += kEntryOverhead + stream.size();
  return bytes + rank.ops.size() * sizeof(OpRecord) +
         (rank.waits.size() + rank.operands.size()) * sizeof(uint32_t) +
         rank.buffers.size() * sizeof(BufferRecord);
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// A vector of structs, each made from one entry of `from`.
template <typename Record, typename T, typename Convert>
static Offset<Vector<const Record *>> structs(FlatBufferBuilder &builder,
                                              const std::vector<T> &from,
                                              Convert convert) {
  // Not CreateUninitializedVectorOfStructs: it aligns to the size of a struct.
  auto fill = [&](size_t i, Record *to, const std::vector<T> *) {
    *to = convert(from[i]);
  };
  return builder.CreateVectorOfStructs<Record>(from.size(), fill, &from);
}

static StageRecord stageRecord(const Stage &stage) {
  const StageBytes &bytes = stage.bytes;
  return {stage.forward,
          stage.backwardInput,
          stage.backwardWeight,
          stage.recompute,
          stage.overlapSaving,
          stage.parameterCount,
          stage.activeParameterCount,
          bytes.parameters,
          bytes.gradients,
          bytes.optimizer,
          bytes.activation,
          bytes.keptForWeight,
          bytes.checkpoint,
          bytes.workspace,
          bytes.norms,
          bytes.tied,
          stage.firstLayer,
          stage.layers,
          stage.tiedTo,
          stage.location.file,
          stage.location.line,
          stage.location.column,
          stage.optimizerParts,
          stage.gradientParts,
          stage.backward,
          static_cast<uint8_t>(stage.recomputePolicy),
          stage.offload,
          stage.gradientsPartitioned};
}

void encodeHeader(const Plan &plan, FlatBufferBuilder &builder) {
  builder.ForceDefaults(true); // every table has its 8-byte fields
  std::vector<Offset<StageEntry>> stages;
  for (const Stage &stage : plan.stages) {
    StageRecord numbers = stageRecord(stage);
    stages.push_back(CreateStageEntry(builder, &numbers,
                                      builder.CreateString(stage.description)));
  }
  std::vector<Offset<RunEntry>> run;
  for (const auto &[key, value] : plan.run) {
    auto keyOffset = builder.CreateString(key);
    run.push_back(
        CreateRunEntry(builder, keyOffset, builder.CreateString(value)));
  }
  auto model = builder.CreateString(plan.model);
  auto schedule = builder.CreateString(plan.schedule);
  auto source = builder.CreateString(plan.source);
  auto stageList = builder.CreateVector(stages);
  auto edges =
      structs<EdgeRecord>(builder, plan.edges, [](const StageEdge &edge) {
        return EdgeRecord(edge.bytes, edge.from, edge.to);
      });
  auto channels = structs<ChannelRecord>(
      builder, plan.channels, [](const Channel &channel) {
        return ChannelRecord(channel.latency, channel.bandwidth,
                             channel.communicator, channel.source,
                             channel.destination);
      });
  std::vector<Offset<CollectiveEntry>> collectives;
  for (const Collective &of : plan.collectives)
    collectives.push_back(CreateCollectiveEntry(
        builder, of.communicator, of.latency, of.bandwidth, of.overReplicas,
        builder.CreateVector(of.ranks)));
  auto collectiveList = builder.CreateVector(collectives);
  auto warmup = builder.CreateVector(plan.warmup);
  auto runList = builder.CreateVector(run);
  builder.Finish(CreateHeader(
      builder, model, schedule, source, static_cast<uint8_t>(plan.timeUnit),
      plan.microbatches, plan.replicas, plan.memoryLimit, plan.memoryAllowance,
      plan.hostLink.latency, plan.hostLink.bandwidth, stageList, edges,
      channels, collectiveList, warmup, runList));
}

static OpRecord opRecord(const PlanOp &op) {
  return {op.stage,
          op.microbatch,
          op.channel,
          op.group,
          op.firstWait,
          op.firstOperand,
          static_cast<uint8_t>(op.op),
          op.stream};
}

void encodeRank(const RankPlan &rank, FlatBufferBuilder &builder) {
  builder.ForceDefaults(true);
  auto streams = builder.CreateVectorOfStrings(rank.streams);
  auto ops = structs<OpRecord>(builder, rank.ops, opRecord);
  auto waits = builder.CreateVector(rank.waits);
  uint32_t *operands = nullptr;
  auto operandList =
      builder.CreateUninitializedVector(rank.operands.size(), &operands);
  std::transform(rank.operands.begin(), rank.operands.end(), operands, wordOf);
  auto buffers =
      structs<BufferRecord>(builder, rank.buffers, [](const Buffer &buffer) {
        return BufferRecord(buffer.offset, buffer.bytes, buffer.stage,
                            static_cast<uint8_t>(buffer.kind));
      });
  builder.Finish(CreateRank(builder, rank.arenaBytes, rank.hostArenaBytes,
                            streams, ops, waits, operandList, buffers));
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {

/// Copies out of a verified FlatBuffer what its verifier leaves open: that
/// structs are aligned, and that strings and lists which share bytes do not
/// multiply.
class SectionReader {
public:
  explicit SectionReader(std::span<const uint8_t> bytes) : section(bytes) {}

  template <typename Root> const Root *root();
  template <typename Record, typename T, typename Convert>
  void structs(const Vector<const Record *> *from, std::vector<T> &to,
               Convert convert);
  template <typename T, typename Convert>
  void words(const Vector<uint32_t> *from, std::vector<T> &to,
             Convert convert) {
    static_assert(FLATBUFFERS_LITTLEENDIAN, "words are taken as they are");
    auto *begin = reinterpret_cast<const uint32_t *>(from->Data());
    append(std::span(begin, from->size()), to, convert);
  }
  void words(const Vector<uint32_t> *from, std::vector<uint32_t> &to) {
    words(from, to, [](uint32_t word) { return word; });
  }
  /// Words of one of many lists.
  void listed(const Vector<uint32_t> *from, std::vector<uint32_t> &to) {
    listedBytes += from->size() * sizeof(uint32_t);
    good &= listedBytes <= section.size();
    if (good)
      words(from, to);
  }
  std::string string(const flatbuffers::String *from);
  template <typename T> bool aligned(const T *record) {
    good &= reinterpret_cast<uintptr_t>(record) % alignof(T) == 0;
    return good;
  }

  bool good = true;

private:
  /// Through a few entries at a time, which are copied to where they stay: a
  /// resized vector would be written twice, and entries pushed one by one are
  /// each compared with its end.
  template <typename From, typename T, typename Convert>
  static void append(std::span<const From> from, std::vector<T> &to,
                     Convert convert) {
    constexpr size_t kAtOnce = 64;
    std::array<T, kAtOnce> some;
    to.clear();
    to.reserve(from.size());
    for (size_t at = 0; at < from.size(); at += kAtOnce) {
      size_t count = std::min(kAtOnce, from.size() - at);
      for (size_t i = 0; i < count; ++i)
        some[i] = convert(from[at + i]);
      to.insert(to.end(), some.begin(), some.begin() + count);
    }
  }

  std::span<const uint8_t> section;
  size_t stringBytes = 0;
  size_t listedBytes = 0;
};

template <typename Root> const Root *SectionReader::root() {
  constexpr unsigned kDepth = 4;
  auto tables = static_cast<flatbuffers::uoffset_t>(section.size());
  flatbuffers::Verifier verifier(section.data(), section.size(), kDepth,
                                 tables);
  good = verifier.VerifyBuffer<Root>(nullptr);
  return good ? flatbuffers::GetRoot<Root>(section.data()) : nullptr;
}

template <typename Record, typename T, typename Convert>
void SectionReader::structs(const Vector<const Record *> *from,
                            std::vector<T> &to, Convert convert) {
  auto *records = reinterpret_cast<const Record *>(from->Data());
  if (from->size() != 0 && !aligned(records))
    return;
  append(std::span(records, from->size()), to, convert);
}

std::string SectionReader::string(const flatbuffers::String *from) {
  stringBytes += from->size();
  good &= stringBytes <= section.size();
  return good ? from->str() : std::string();
}

} // namespace

static Stage stageFrom(const StageRecord &record) {
  Stage stage;
  stage.firstLayer = record.first_layer();
  stage.layers = record.layers();
  stage.backward = record.backward() != 0;
  stage.recomputePolicy =
      static_cast<RecomputePolicy>(record.recompute_policy());
  stage.offload = record.offload() != 0;
  stage.forward = record.forward();
  stage.backwardInput = record.backward_input();
  stage.backwardWeight = record.backward_weight();
  stage.overlapSaving = record.overlap_saving();
  stage.recompute = record.recompute();
  stage.parameterCount = record.parameter_count();
  stage.activeParameterCount = record.active_parameter_count();
  stage.bytes.parameters = record.parameters();
  stage.bytes.gradients = record.gradients();
  stage.bytes.optimizer = record.optimizer();
  stage.bytes.activation = record.activation();
  stage.bytes.keptForWeight = record.kept_for_weight();
  stage.bytes.checkpoint = record.checkpoint();
  stage.bytes.workspace = record.workspace();
  stage.bytes.norms = record.norms();
  stage.bytes.tied = record.tied();
  stage.tiedTo = record.tied_to();
  stage.optimizerParts = record.optimizer_parts();
  stage.gradientParts = record.gradient_parts();
  stage.gradientsPartitioned = record.gradients_partitioned() != 0;
  stage.location = {record.file(), record.line(), record.column()};
  return stage;
}

bool decodeHeader(std::span<const uint8_t> section, Plan &plan) {
  SectionReader reader(section);
  const auto *header = reader.root<Header>();
  if (!header)
    return false;
  plan.model = reader.string(header->model());
  plan.schedule = reader.string(header->schedule());
  plan.source = reader.string(header->source());
  plan.timeUnit = static_cast<TimeUnit>(header->time_unit());
  plan.microbatches = header->microbatches();
  plan.replicas = header->replicas();
  plan.memoryLimit = header->memory_limit();
  plan.memoryAllowance = header->memory_allowance();
  plan.hostLink = {header->host_link_latency(), header->host_link_bandwidth()};
  reader.words(header->warmup(), plan.warmup);
  reader.structs(header->edges(), plan.edges, [](const EdgeRecord &edge) {
    return StageEdge{edge.from(), edge.to(), edge.bytes()};
  });
  reader.structs(header->channels(), plan.channels,
                 [](const ChannelRecord &channel) {
                   return Channel{channel.communicator(), channel.source(),
                                  channel.destination(), channel.latency(),
                                  channel.bandwidth()};
                 });
  plan.collectives.clear();
  for (const CollectiveEntry *entry : *header->collectives()) {
    Collective &of = plan.collectives.emplace_back();
    of.communicator = entry->communicator();
    of.latency = entry->latency();
    of.bandwidth = entry->bandwidth();
    of.overReplicas = entry->over_replicas();
    reader.listed(entry->ranks(), of.ranks);
  }
  plan.stages.clear();
  for (const StageEntry *entry : *header->stages()) {
    if (!reader.aligned(entry->numbers()))
      return false;
    plan.stages.push_back(stageFrom(*entry->numbers()));
    plan.stages.back().description = reader.string(entry->description());
  }
  plan.run.clear();
  for (const RunEntry *entry : *header->run()) {
    std::string key = reader.string(entry->key());
    plan.run.emplace_back(std::move(key), reader.string(entry->value()));
  }
  return reader.good;
}

static PlanOp opFrom(const OpRecord &record) {
  return {record.stage(),
          record.microbatch(),
          record.channel(),
          record.group(),
          record.first_wait(),
          record.first_operand(),
          static_cast<Op>(record.op()),
          record.stream()};
}

bool decodeRank(std::span<const uint8_t> section, RankPlan &rank) {
  SectionReader reader(section);
  const auto *from = reader.root<Rank>();
  if (!from)
    return false;
  rank.arenaBytes = from->arena_bytes();
  rank.hostArenaBytes = from->host_arena_bytes();
  rank.streams.clear();
  for (const flatbuffers::String *stream : *from->streams())
    rank.streams.push_back(reader.string(stream));
  reader.structs(from->ops(), rank.ops, opFrom);
  reader.words(from->waits(), rank.waits);
  reader.words(from->operands(), rank.operands, operandOf);
  reader.structs(from->buffers(), rank.buffers, [](const BufferRecord &buffer) {
    return Buffer{buffer.offset(), buffer.bytes(), buffer.stage(),
                  static_cast<BufferKind>(buffer.kind())};
  });
  return reader.good;
}

} // namespace sluice::planfile
