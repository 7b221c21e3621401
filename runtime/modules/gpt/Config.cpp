//===- runtime/modules/gpt/Config.cpp - What one stage of a GPT is -------===//
#include "runtime/modules/gpt/Config.h"

#include "ir/Diagnostics.h"
#include "ir/ModuleKeys.h"
#include "runtime/modules/gpt/Parameters.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <vector>

namespace sluice::gpt {
namespace {

namespace keys = stagekeys;

/// Keys in order; a key given twice is a fault, so no value hides another.
using Lines = std::map<std::string_view, std::string_view>;

struct NumberKey {
  std::string_view key;
  uint32_t Config::*value;
  uint32_t least;
};
constexpr NumberKey kNumbers[] = {
    {keys::kHidden, &Config::hidden, 1},
    {keys::kFfn, &Config::ffn, 1},
    {keys::kHeads, &Config::heads, 1},
    {keys::kKvHeads, &Config::kvHeads, 1},
    {keys::kVocab, &Config::vocab, 1},
    {keys::kSequence, &Config::sequence, 1},
    {keys::kPositions, &Config::positions, 1},
    {keys::kMicrobatchSize, &Config::microbatchSize, 1},
    {keys::kLayers, &Config::layers, 0},
    {keys::kFirstLayer, &Config::firstLayer, 0},
    {keys::kStageLayers, &Config::stageLayers, 0},
};

struct FlagKey {
  std::string_view key;
  bool Config::*value;
  bool required = true; ///< else the default holds
};
constexpr FlagKey kFlags[] = {
    {keys::kEmbedding, &Config::embedding},
    {keys::kHead, &Config::head},
    {keys::kTiedEmbeddings, &Config::tied},
    {keys::kFlashAttention, &Config::flashAttention, false}};

/// Keys of which this module computes one value only.
struct FixedKey {
  std::string_view key, value;
  bool required;
};
constexpr FixedKey kFixed[] = {
    {keys::kKind, "gpt", true},
    {keys::kGatedFfn, "0", true},
    {keys::kBias, "1", true},
    {keys::kNorm, "layer", true},
    {keys::kPosition, "learned", true},
    {keys::kDropout, "0", false},
    {keys::kQkvBias, "1", false},
    {keys::kOutputBias, "1", false},
    {keys::kMlpBias, "1", false},
    {keys::kQkNorm, "0", false},
    {keys::kPostNorms, "0", false},
    {keys::kEmbedLayernorm, "0", false},
    {keys::kExperts, "0", false},
    {keys::kMtpLayers, "0", false},
    {keys::kTensorParallel, "1", false},
    {keys::kSequenceParallel, "0", false},
    {keys::kContextParallel, "1", false},
    {keys::kExpertParallel, "1", false},
    {keys::kDataParallel, "1", false},
    {keys::kZero, "0", false},
};

class Reader {
public:
  Reader(Config &result, std::string_view type) : config(result), dtype(type) {}

  void description(std::string_view text);
  void run(std::string_view text);
  void relations();
  void neighbours(const sluice_stage &stage);
  Status status() const;
  bool clean() const { return faults.empty() && missing.empty(); }

private:
  void fault(std::string message) { faults.push_back(std::move(message)); }
  Lines split(std::string_view text, std::string_view what);
  const std::string_view *find(const Lines &lines, std::string_view key,
                               bool required);
  void fixed(const Lines &lines, const FixedKey &key);
  void number(const Lines &lines, const NumberKey &key);
  void flag(const Lines &lines, const FlagKey &key);
  void unknown(const Lines &lines);
  void extents();

  Config &config;
  std::string_view dtype;
  std::vector<std::string> faults;
  std::string missing;
};

std::string quoted(std::string_view text) {
  constexpr size_t kLongest = 60;
  if (text.size() > kLongest)
    return "'" + escaped(text.substr(0, kLongest)) + "...'";
  return "'" + escaped(text) + "'";
}

/// `text` as a whole, or no number.
template <typename Number> bool parse(std::string_view text, Number &number) {
  const char *end = text.data() + text.size();
  auto [stop, code] = std::from_chars(text.data(), end, number);
  return code == std::errc() && stop == end;
}

Lines Reader::split(std::string_view text, std::string_view what) {
  Lines lines;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty())
      continue;
    size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      fault("line " + quoted(line) + " of the " + std::string(what) +
            " has no '='");
    else if (!lines.emplace(line.substr(0, equals), line.substr(equals + 1))
                  .second)
      fault("key " + quoted(line.substr(0, equals)) + " of the " +
            std::string(what) + " is given twice");
  }
  return lines;
}

const std::string_view *Reader::find(const Lines &lines, std::string_view key,
                                     bool required) {
  auto found = lines.find(key);
  if (found != lines.end())
    return &found->second;
  if (required)
    missing += (missing.empty() ? "" : ", ") + std::string(key);
  return nullptr;
}

void Reader::fixed(const Lines &lines, const FixedKey &key) {
  const std::string_view *value = find(lines, key.key, key.required);
  if (value && *value != key.value)
    fault(std::string(key.key) + " is " + quoted(*value) +
          ", this module computes only '" + std::string(key.value) + "'");
}

void Reader::number(const Lines &lines, const NumberKey &key) {
  const std::string_view *value = find(lines, key.key, true);
  if (value &&
      (!parse(*value, config.*key.value) || config.*key.value < key.least))
    fault(std::string(key.key) + " is " + quoted(*value) +
          ", not a whole number from " + std::to_string(key.least) + " to " +
          std::to_string(UINT32_MAX));
}

void Reader::flag(const Lines &lines, const FlagKey &key) {
  const std::string_view *value = find(lines, key.key, key.required);
  if (!value)
    return;
  if (*value != "0" && *value != "1")
    fault(std::string(key.key) + " is " + quoted(*value) + ", not 0 or 1");
  config.*key.value = *value == "1";
}

void Reader::unknown(const Lines &lines) {
  auto isKnown = [&](std::string_view key) {
    auto same = [key](const auto &row) { return row.key == key; };
    return key == keys::kDtype || std::ranges::any_of(kNumbers, same) ||
           std::ranges::any_of(kFlags, same) ||
           std::ranges::any_of(kFixed, same);
  };
  for (const auto &[key, value] : lines)
    if (!isKnown(key))
      fault("key " + quoted(key) + " is not known to this module");
}

void Reader::description(std::string_view text) {
  Lines lines = split(text, "description");
  for (const FixedKey &key : kFixed)
    fixed(lines, key);
  fixed(lines, {keys::kDtype, dtype, true});
  for (const NumberKey &key : kNumbers)
    number(lines, key);
  for (const FlagKey &key : kFlags)
    flag(lines, key);
  unknown(lines);
}

void Reader::run(std::string_view text) {
  Lines lines = split(text, "run section");
  if (const std::string_view *value = find(lines, runkeys::kData, false))
    config.data = *value;
  if (const std::string_view *value = find(lines, runkeys::kClipNorm, false))
    if (!parse(*value, config.clipNorm) || !std::isfinite(config.clipNorm) ||
        config.clipNorm <= 0)
      fault("clip_norm is " + quoted(*value) + ", not a finite number over 0");
  if (const std::string_view *value =
          find(lines, runkeys::kGradientGroups, false))
    if (!parse(*value, config.gradientGroups) || config.gradientGroups == 0)
      fault("gradient_groups is " + quoted(*value) +
            ", not a whole number from 1 to " + std::to_string(UINT32_MAX));
  if (const std::string_view *value =
          find(lines, runkeys::kLearningRate, false))
    if (!parse(*value, config.learningRate) ||
        !std::isfinite(config.learningRate) || config.learningRate < 0)
      fault("learning_rate is " + quoted(*value) +
            ", not a finite number from 0 up");
  if (const std::string_view *value = find(lines, runkeys::kSeed, false))
    if (!parse(*value, config.seed))
      fault("seed is " + quoted(*value) + ", not a whole number from 0 to " +
            std::to_string(UINT64_MAX));
}

/// The matrix library counts rows, columns and strides in 31 bits.
void Reader::extents() {
  auto limit = [this](std::string_view what, uint64_t extent) {
    if (extent > INT_MAX)
      fault(std::string(what) + " is " + std::to_string(extent) +
            ", over the limit of " + std::to_string(INT_MAX));
  };
  limit("sequence times microbatch_size",
        saturatingProduct(config.sequence, config.microbatchSize));
  limit("three times hidden", saturatingProduct(3, config.hidden));
  limit("ffn", config.ffn);
  limit("vocab", config.vocab);
}

/// What the numbers mean together; only called once each is fine by itself.
void Reader::relations() {
  auto text = [](uint64_t value) { return std::to_string(value); };
  const Config &c = config;
  if (c.kvHeads != c.heads)
    fault("kv_heads is " + text(c.kvHeads) + " and heads is " + text(c.heads) +
          ", this module computes only as many of both");
  if (c.hidden % c.heads != 0)
    fault("hidden is " + text(c.hidden) + ", not divisible by " +
          text(c.heads) + " heads");
  if (c.positions < c.sequence)
    fault("sequence is " + text(c.sequence) + ", longer than the " +
          text(c.positions) + " positions");
  uint64_t end = uint64_t(c.firstLayer) + c.stageLayers;
  if (end > c.layers)
    fault("the stage ends at layer " + text(end) + " of " + text(c.layers));
  else if (c.embedding && c.firstLayer != 0)
    fault("the stage has the embedding but starts at layer " +
          text(c.firstLayer));
  else if (c.head && end != c.layers)
    fault("the stage has the head but ends at layer " + text(end) + " of " +
          text(c.layers));
  if (c.microbatches == 0)
    fault("the plan has 0 microbatches");
  if (c.recompute > SLUICE_RECOMPUTE_FULL)
    fault("recompute is " + text(c.recompute) + ", which is no policy");
  if (c.microbatches % c.gradientGroups != 0)
    fault("gradient_groups is " + text(c.gradientGroups) +
          ", which does not divide the " + text(c.microbatches) +
          " microbatches of a step");
  extents();
}

/// A GPT is a chain: only its ends have no neighbour.
void Reader::neighbours(const sluice_stage &stage) {
  auto expect = [&](uint32_t count, bool end, std::string_view what,
                    std::string_view part) {
    if (count != (end ? 0u : 1u))
      fault("the stage has " + std::to_string(count) + " " + std::string(what) +
            ", a stage with" + (end ? "" : "out") + " the " +
            std::string(part) + " has " + (end ? "none" : "one"));
  };
  expect(stage.input_count, config.embedding, "inputs", "embedding");
  expect(stage.output_count, config.head, "outputs", "head");
}

Status Reader::status() const {
  std::string message;
  auto append = [&message](const std::string &text) {
    message += (message.empty() ? "" : "; ") + text;
  };
  if (!missing.empty())
    append("the stage's description lacks " + missing);
  for (const std::string &text : faults)
    append(text);
  return message.empty() ? Status() : Status::input(message);
}

void addPart(Needs &needs, uint64_t parameters, uint64_t saved, uint64_t kept,
             uint64_t workspace) {
  needs.parameters = saturatingSum(needs.parameters, parameters);
  needs.saved = saturatingSum(needs.saved, saved);
  needs.kept = saturatingSum(needs.kept, kept);
  needs.workspace = std::max(needs.workspace, workspace);
}

} // namespace

Status readConfig(const sluice_stage &stage, std::string_view dtype,
                  Config &config) {
  config = Config();
  config.microbatches = stage.microbatches;
  config.trained = stage.trained != 0;
  config.optimizerPart = stage.optimizer_part;
  config.optimizerParts = stage.optimizer_parts;
  config.gradientParts = stage.gradient_parts;
  config.gradientsPartitioned = stage.gradients_partitioned != 0;
  config.recompute = stage.recompute;
  Reader reader(config, dtype);
  reader.description(stage.description ? stage.description : "");
  reader.run(stage.run ? stage.run : "");
  if (reader.clean()) {
    reader.relations();
    reader.neighbours(stage);
  }
  return reader.status();
}

uint64_t saturatingProduct(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

uint64_t saturatingSum(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_add_overflow(a, b, &result) ? UINT64_MAX : result;
}

uint64_t probabilitiesOf(const Config &config) {
  return config.flashAttention
             ? 0
             : saturatingProduct(
                   saturatingProduct(config.tokens(), config.sequence),
                   config.heads);
}

Needs needsOf(const Config &config) {
  // Within Config's limits, widths stay below 2^35 and squares below 2^62.
  auto wide = [&config](uint64_t width) {
    return saturatingProduct(config.tokens(), width);
  };
  const uint64_t h = config.hidden, ffn = config.ffn, s = config.sequence;
  Needs needs;
  if (config.hasTable())
    addPart(needs, elementsOf(embeddingTensors(config)), 0, 0, 0);
  if (config.stageLayers > 0) {
    uint64_t count = config.stageLayers;
    uint64_t kept = wide(8 * h + 2 * ffn);
    uint64_t backward = saturatingSum(wide(4 * h + 2 * ffn), 2 * s * s);
    uint64_t forward = config.isFull() ? saturatingSum(kept, s * s) : 0;
    addPart(needs, saturatingProduct(count, elementsOf(blockTensors(config))),
            saturatingProduct(count, probabilitiesOf(config)),
            saturatingProduct(count, kept), std::max(backward, forward));
  }
  if (config.head) {
    uint64_t input = wide(h), kept = wide(h + config.vocab);
    uint64_t all = saturatingSum(input, kept);
    addPart(needs, elementsOf(headTensors(config)),
            config.isSelective() ? 0 : input, config.isSelective() ? all : kept,
            std::max(wide(2 * h), config.isFull() ? all : 0));
  }
  bool both = config.tied && config.embedding && config.head;
  needs.gradients = saturatingSum(needs.parameters, both ? config.table() : 0);
  needs.input = config.embedding ? 0 : wide(h);
  needs.output = config.head ? 0 : wide(h);
  needs.checkpoint = config.isFull() ? needs.input : 0;
  return needs;
}

} // namespace sluice::gpt
