//===- tests/compiler/VerifyRandomSpecs.cpp - No false alarm --------------===//
//
// Random transformers on random devices and links with every schedule: a spec
// is refused by a rule that says why, never by the proofs of what the compiler
// made of it. SchedulesProperties.cpp does the same with explicit layers.
//
//===----------------------------------------------------------------------===//
#include "ir/verify/Verify.h"
#include "tests/compiler/ScheduleForTests.h"

#include <map>
#include <random>

using namespace sluice;
using namespace sluice::tests;

namespace {

class RandomTransformer {
public:
  explicit RandomTransformer(unsigned seed) : random(seed) {
    llvm::ArrayRef<ScheduleInfo> all = allSchedules();
    info = &all[seed % all.size()];
    ranks = oneIn(3) ? pick(1, 7) : 2 * pick(1, 4);
    chunks = info->chunks != 0 ? info->chunks : pick(1, 4);
    tied = oneIn(2);
    seconds = oneIn(2);
    offloads = oneIn(4);
    text = "sluice: 1\nmodel:\n" + model() + pipeline() + cluster();
  }

  const ScheduleInfo *info;
  uint32_t ranks, chunks;
  bool tied;
  std::string text;

private:
  uint32_t pick(uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random);
  }
  bool oneIn(uint32_t count) { return pick(1, count) == 1; }
  std::string oneOf(std::initializer_list<const char *> words) {
    return words.begin()[pick(0, static_cast<uint32_t>(words.size()) - 1)];
  }

  std::string model() {
    uint32_t heads = pick(1, 2) * 2;
    return "  transformer: {layers: " +
           std::to_string(ranks * chunks + pick(0, 4)) +
           ", hidden: " + std::to_string(heads * 2 * pick(1, 40)) +
           ", heads: " + std::to_string(heads) +
           (oneIn(3) ? ", kv_heads: " + std::to_string(heads / 2) : "") +
           ", vocab: " + std::to_string(pick(2, 2000)) +
           ", sequence: " + std::to_string(pick(1, 200)) +
           ", tied_embeddings: " + (tied ? "true" : "false") +
           (oneIn(3) ? ", gated_ffn: true" : "") +
           (oneIn(3) ? ", position: rope" : "") +
           (oneIn(3) ? ", flash_attention: false" : "") +
           ", dtype: " + oneOf({"bf16", "fp32"}) + "}\n";
  }

  std::string pipeline() {
    uint32_t microbatches = oneIn(2) ? pick(1, 12) : 2 * pick(ranks, 2 * ranks);
    std::string line = "pipeline: {ranks: " + std::to_string(ranks) +
                       ", virtual_stages: " + std::to_string(chunks) +
                       ", microbatches: " + std::to_string(microbatches) +
                       ", microbatch_size: " + std::to_string(pick(1, 3)) +
                       ", schedule: " + std::string(info->text);
    if (info->backward == BackwardRule::Either && oneIn(2))
      line += ", backward: split";
    if (info->adjustableWarmup && oneIn(6))
      line += ", warmup: auto";
    if (oneIn(3))
      line += ", recompute: " + oneOf({"full", "full", "selective"});
    if (offloads)
      line += ", offload: activations";
    if (oneIn(6))
      line += ", memory_limit: " + std::to_string(pick(1, 400)) + "MB";
    if (!oneIn(4))
      line += ", data_parallel: " + std::to_string(pick(2, 5)) +
              (oneIn(5) ? "" : ", zero: " + std::to_string(pick(1, 2)));
    return line + "}\n";
  }

  std::string time(uint32_t most) {
    return std::to_string(pick(0, most)) + (seconds ? "us" : "");
  }
  std::string link(uint32_t slower) {
    return "{latency: " + time(20 * slower) +
           (oneIn(3)
                ? ""
                : ", bandwidth: " + std::to_string(pick(1, 900) * 10 / slower) +
                      (seconds ? "MB/s" : "")) +
           "}";
  }

  std::string cluster() {
    std::string section = "cluster:\n  link: " + link(1) + "\n";
    if (offloads)
      section += "  host_link: " + link(1) + "\n";
    if (seconds)
      section += "  device: {name: d, memory: 1GiB, flops: " +
                 std::to_string(pick(1, 900)) + "G, efficiency: 0.5}\n";
    if (oneIn(3))
      section += "  node_link: " + link(4) +
                 "\n  devices_per_node: " + std::to_string(pick(1, 4)) + "\n";
    return section;
  }

  std::mt19937 random;
  bool seconds = false;
  bool offloads = false;
};

/// Whether a message is that of a finding, but for memory, which a spec's limit
/// brings about.
bool isProof(const std::string &message) {
  for (std::string_view name : verify::kFindingKinds)
    if (message.rfind(std::string(name) + ": ", 0) == 0)
      return true;
  return false;
}

/// Whether the spec of `of` is accepted.
bool checkSpec(const RandomTransformer &of) {
  INFO(of.text);
  Compiled compiled(of.text);
  INFO(compiled.diagnostics.render());
  for (const Diagnostic &told : compiled.diagnostics.all())
    CHECK((told.severity != Severity::Error || !isProof(told.message)));
  if (!compiled.ok)
    return false;
  verify::Result result = verify::verifyPlan(*compiled.compilation.plan);
  CHECK(result.ok());
  CHECK(result.warnings.empty());
  CHECK((result.holds[0] && result.holds[1] && result.holds[2]));
  CHECK(result.minBuffering == 0u);
  return true;
}

} // namespace

TEST_CASE("no false alarm: transformers of every schedule") {
  std::map<std::string_view, unsigned> accepted, withTies, withRecompute,
      withZero[2];
  for (unsigned seed = 0; seed < 3200; ++seed) {
    RandomTransformer of(seed);
    if (!checkSpec(of))
      continue;
    ++accepted[of.info->text];
    withTies[of.info->text] += of.tied;
    withRecompute[of.info->text] +=
        of.text.find("recompute") != std::string::npos;
    for (unsigned level : {1, 2})
      withZero[level - 1][of.info->text] +=
          of.text.find("zero: " + std::to_string(level)) != std::string::npos;
  }
  for (const ScheduleInfo &info : allSchedules()) {
    CAPTURE(info.text);
    CHECK(accepted[info.text] > 20);
    CHECK(withTies[info.text] > 8);
    CHECK(withRecompute[info.text] > 5);
    CHECK(withZero[0][info.text] > 5);
    CHECK(withZero[1][info.text] > 5);
  }
}
