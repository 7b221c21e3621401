//===- compiler/spec/Spec.h - The typed spec -----------------------------===//
//
// What a YAML spec says, each value with its place. Parsing (Parser.h) checks
// everything that one key says on its own; what keys mean together is checked
// by whoever uses them, with the places kept here.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_SPEC_SPEC_H
#define SLUICE_COMPILER_SPEC_SPEC_H

#include "compiler/schedules/Placement.h"
#include "ir/Diagnostics.h"
#include "ir/Stage.h"
#include "ir/Units.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sluice {

/// A value and where it stands; `given` is false for a default.
template <typename T> struct Located {
  T value{};
  SourceLocation where{};
  bool given = false;

  Located() = default;
  Located(T initial) : value(std::move(initial)) {}
  operator const T &() const { return value; }
  const T &operator*() const { return value; }
  const T *operator->() const { return &value; }
};

/// One entry of `model.layers`.
struct LayerSpec {
  SourceLocation where;
  Located<std::string> name;
  Located<uint32_t> repeat{1};
  Located<Ticks> forward, backward, backwardInput, backwardWeight,
      overlappedPair, recompute;
  Located<uint64_t> parameters;
  Located<Bytes> activationBytes, keptForWeight, outputBytes, workspaceBytes,
      checkpointBytes;
};

/// A word of a spec and what it stands for.
template <typename T> struct Word {
  std::string_view text;
  T value;
};

/// The word of `words` for `value`.
template <typename T, size_t N>
constexpr std::string_view wordOf(const Word<T> (&words)[N], T value) {
  for (const Word<T> &word : words)
    if (word.value == value)
      return word.text;
  return {};
}

enum class DataType : uint8_t { Fp32, Bf16, Fp16 };
inline constexpr Word<DataType> kDataTypes[] = {{"fp32", DataType::Fp32},
                                                {"bf16", DataType::Bf16},
                                                {"fp16", DataType::Fp16}};

enum class Norm : uint8_t { Layer, Rms };
inline constexpr Word<Norm> kNorms[] = {{"layer", Norm::Layer},
                                        {"rms", Norm::Rms}};

/// How a token's place comes into the model.
enum class Positions : uint8_t { Learned, Rope, Alibi };
inline constexpr Word<Positions> kPositions[] = {
    {"learned", Positions::Learned},
    {"rope", Positions::Rope},
    {"alibi", Positions::Alibi}};

/// `model.transformer`. A count of 0 where it is not given means "not there".
struct TransformerSpec {
  SourceLocation where;
  Located<uint32_t> layers, hidden, ffn, heads, kvHeads, vocab, sequence;
  Located<uint32_t> headDim;   ///< default: hidden / heads
  Located<uint32_t> positions; ///< learned positions; default: sequence
  Located<bool> gatedFfn{false}, bias{true}, tiedEmbeddings{false},
      flashAttention{true}, dropout{false};
  /// Biases of one part each, where they differ from `bias`.
  Located<bool> qkvBias, outputBias, mlpBias;
  Located<bool> embedLayernorm{false}; ///< a norm after the embedding
  Located<bool> qkNorm{false};         ///< a norm over each query and key head
  Located<bool> postNorms{false};      ///< norms after attention and MLP too
  Located<Norm> norm{Norm::Layer};
  Located<Positions> position{Positions::Learned};
  Located<DataType> dtype{DataType::Bf16};
  /// Mixture of experts, of which a token uses topk; `moeFfn` (default: ffn)
  /// is the width of one, routed or shared. The first blocks may be dense.
  Located<uint32_t> experts, topk, moeFfn, sharedExperts, denseLayers;
  Located<bool> routerBias{false}, sharedExpertGate{false};
  /// Multi-head latent attention, if kvLoraRank is given; without qLoraRank
  /// queries come from the input directly.
  Located<uint32_t> qLoraRank, kvLoraRank, qkNope, qkRope, vHead;
  Located<uint32_t>
      mtpLayers; ///< multi-token prediction: blocks after the last
};

/// Measured times of a layer, for one microbatch on one rank.
struct LayerTimes {
  Located<Ticks> forward, backwardInput, backwardWeight;
  Located<Ticks> recompute; ///< of the whole forward
};

/// The layers that a profile knows.
struct ProfileLayers {
  LayerTimes embedding, denseBlock, expertBlock, mtp, head;
};
struct ProfiledLayer {
  std::string_view name;
  LayerTimes ProfileLayers::*times;
};
inline constexpr ProfiledLayer kProfiledLayers[] = {
    {"embedding", &ProfileLayers::embedding},
    {"dense_block", &ProfileLayers::denseBlock},
    {"expert_block", &ProfileLayers::expertBlock},
    {"mtp", &ProfileLayers::mtp},
    {"head", &ProfileLayers::head}};

/// What the times of a profile were measured with, where it says so.
struct ProfileSizes {
  Located<std::string> device;
  Located<uint32_t> sequence, microbatchSize, tensorParallel, contextParallel,
      expertParallel;
  Located<bool> sequenceParallel;
};

/// A file of measured times (`model.profile`).
struct ProfileSpec {
  ProfileSizes measured;
  ProfileLayers layers;
};

struct ModelSpec {
  SourceLocation where;
  Located<std::string> name; ///< default: the file's stem
  std::vector<LayerSpec> layers;
  std::optional<TransformerSpec> transformer; ///< written out, or of config
  Located<std::string> config;  ///< path of a config.json, relative to the spec
  Located<std::string> profile; ///< path, relative to the spec
  std::optional<ProfileSpec> measured; ///< what it says
  /// What a config does not say: sequence, dtype, flash_attention, dropout and
  /// mtp_layers, where they stand beside it.
  TransformerSpec besideConfig;
  Located<Bytes> parameterBytes{2}, gradientBytes{4}, optimizerBytes{12};
  /// Whether any time of the spec is in abstract units or in seconds; times
  /// of both kinds in one spec are refused.
  TimeUnit timeUnit = TimeUnit::Unit;
};

/// `layout: auto`
struct LayoutAuto {};
/// `layout: even`, or {count: [embedding, head]}: the same where these count as
/// a layer each.
struct LayoutEven {
  bool embedding = false, head = false;
};
/// `layout: {first: n, last: n}`, or one of them: the rest even.
struct LayoutEnds {
  std::optional<uint32_t> first, last;
};
/// A stage of a layout string (LayoutString.h). Places are offsets in it.
struct LayoutStage {
  uint32_t layers = 0, mtp = 0;
  uint32_t bar = 0;                      ///< that begins it; 0 for the first
  uint32_t firstLayer = 0, firstMtp = 0; ///< letters, where it has any
};
struct LayoutString {
  std::vector<LayoutStage> stages;
  SourceLocation where; ///< of its first character
};
/// `layout`, the list being counts per stage.
using Layout = std::variant<LayoutAuto, LayoutEven, std::vector<uint32_t>,
                            LayoutEnds, LayoutString>;

/// `warmup`: standard, auto, or one count per rank.
struct WarmupStandard {};
struct WarmupAuto {};
using Warmup = std::variant<WarmupStandard, WarmupAuto, std::vector<uint32_t>>;

/// `recompute`: one policy for all stages, one per stage, or auto: what costs
/// least of what fits.
struct RecomputeAuto {};
using Recompute =
    std::variant<RecomputePolicy, RecomputeAuto, std::vector<RecomputePolicy>>;

/// `offload`: whether activations go to host memory, in all stages or in each.
using Offload = std::variant<bool, std::vector<bool>>;

/// What `schedule` is called where the spec gives the orders themselves.
inline constexpr const char *kOwnOrders = "orders";

enum class Objective : uint8_t { Makespan, Span };
enum class BackwardMode : uint8_t { Auto, Fused, Split };

struct PipelineSpec {
  SourceLocation where;
  Located<uint32_t> ranks{1};
  Located<uint32_t> virtualStages{1};
  Located<uint32_t> microbatches{1};
  Located<uint32_t> microbatchSize{1};
  Located<std::string> schedule{std::string("1f1b")}; ///< or kOwnOrders
  Located<std::string> scheduleCsv; ///< path, relative to the spec
  bool ownOrders = false; ///< scheduleCsv or scheduleOrders is the schedule
  std::vector<Located<std::string>> scheduleOrders; ///< a line per rank
  /// A rule, or the rank of each stage; not given: as the schedule says.
  Located<std::variant<PlacementKind, std::vector<uint32_t>>> placement;
  /// Microbatches that a chunk runs before the next; none: PyTorch's rounds.
  Located<std::optional<uint32_t>> groupSize;
  Located<Layout> layout{Layout(LayoutAuto{})};
  Located<Warmup> warmup{Warmup(WarmupStandard{})};
  Located<Objective> objective{Objective::Makespan};
  Located<BackwardMode> backward{BackwardMode::Auto};
  /// Devices of a rank's group; experts are divided within it.
  Located<uint32_t> tensorParallel{1}, contextParallel{1}, expertParallel{1};
  Located<bool> sequenceParallel{false};
  /// Copies of the whole pipeline, and what of the training state they divide
  /// among them: from 1 the optimizer, 2 gradients too, 3 parameters too.
  Located<uint32_t> dataParallel{1}, zero{0};
  Located<Recompute> recompute{Recompute(RecomputePolicy::None)};
  Located<Offload> offload{Offload(false)};
  Located<Bytes> memoryLimit; ///< not given: the device's memory, else none
};

struct DeviceSpec {
  SourceLocation where;
  Located<std::string> name;
  Located<Bytes> memory;
  Located<double> flops; ///< operations per second
  Located<double> efficiency{1.0};
  Located<Bytes> bandwidth; ///< of its memory, bytes per second; 0: free
};

struct LinkSpec {
  Located<Ticks> latency;
  Located<Bytes> bandwidth; ///< bytes per second (per unit); 0: size is free
};

struct ClusterSpec {
  std::optional<DeviceSpec> device;
  LinkSpec link;
  std::optional<LinkSpec> nodeLink; ///< not given: as link
  /// Between the devices of a rank's group; not given: free.
  std::optional<LinkSpec> groupLink;
  /// Between a device and its host, each way.
  Located<std::optional<LinkSpec>> hostLink;
  Located<uint32_t> devicesPerNode; ///< 0: all on one node
};

struct RunSpec {
  Located<std::string> module; ///< not given: synthetic or gpt, by the model
  Located<std::string> data;   ///< path, relative to the spec
  Located<uint32_t> steps{1};
  Located<double> clipNorm; ///< of the gradients; not given: they stay
  /// Groups of microbatches whose gradients a module sums apart, then in order.
  Located<uint32_t> gradientGroups{1};
  Located<double> learningRate{1e-3};
  Located<uint64_t> seed{1};
};

struct Spec {
  std::string file; ///< as given on the command line
  ModelSpec model;
  PipelineSpec pipeline;
  ClusterSpec cluster;
  RunSpec run;
};

} // namespace sluice

#endif // SLUICE_COMPILER_SPEC_SPEC_H
