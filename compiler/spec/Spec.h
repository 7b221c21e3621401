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

/// `model.transformer`, without the fields of experts and MLA, which are
/// refused by name until they exist.
struct TransformerSpec {
  SourceLocation where;
  Located<uint32_t> layers, hidden, ffn, heads, kvHeads, vocab, sequence;
  Located<uint32_t> positions; ///< learned positions; default: sequence
  Located<bool> gatedFfn{false}, bias{true}, tiedEmbeddings{false},
      flashAttention{true}, dropout{false};
  Located<Norm> norm{Norm::Layer};
  Located<Positions> position{Positions::Learned};
  Located<DataType> dtype{DataType::Bf16};
};

struct ModelSpec {
  SourceLocation where;
  Located<std::string> name; ///< default: the file's stem
  std::vector<LayerSpec> layers;
  std::optional<TransformerSpec> transformer;
  Located<Bytes> parameterBytes{2}, gradientBytes{4}, optimizerBytes{12};
  /// Whether any time of the spec is in abstract units or in seconds; times
  /// of both kinds in one spec are refused.
  TimeUnit timeUnit = TimeUnit::Unit;
};

/// `layout`: auto, even, counts per stage, or {first, last} with the rest even.
struct LayoutAuto {};
struct LayoutEven {};
struct LayoutEnds {
  uint32_t first, last;
};
using Layout =
    std::variant<LayoutAuto, LayoutEven, std::vector<uint32_t>, LayoutEnds>;

/// `warmup`: standard, auto, or one count per rank.
struct WarmupStandard {};
struct WarmupAuto {};
using Warmup = std::variant<WarmupStandard, WarmupAuto, std::vector<uint32_t>>;

/// `recompute`: one policy for all stages, one per stage, or auto: what costs
/// least of what fits.
struct RecomputeAuto {};
using Recompute =
    std::variant<RecomputePolicy, RecomputeAuto, std::vector<RecomputePolicy>>;

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
  Located<Recompute> recompute{Recompute(RecomputePolicy::None)};
  Located<Bytes> memoryLimit; ///< not given: the device's memory, else none
};

struct DeviceSpec {
  SourceLocation where;
  Located<std::string> name;
  Located<Bytes> memory;
  Located<double> flops; ///< operations per second
  Located<double> efficiency{1.0};
};

struct LinkSpec {
  Located<Ticks> latency;
  Located<Bytes> bandwidth; ///< bytes per second (per unit); 0: size is free
};

struct ClusterSpec {
  std::optional<DeviceSpec> device;
  LinkSpec link;
  std::optional<LinkSpec> nodeLink; ///< not given: as link
  Located<uint32_t> devicesPerNode; ///< 0: all on one node
};

struct RunSpec {
  Located<std::string> module; ///< not given: synthetic or gpt, by the model
  Located<std::string> data;   ///< path, relative to the spec
  Located<uint32_t> steps{1};
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
