//===- tests/compiler/MemoryAdviceTest.cpp - What is advised does fit -----===//
#include "compiler/MemoryAdvice.h"
#include "compiler/MemoryLimit.h"
#include "compiler/passes/PassManager.h"
#include "compiler/simulate/Simulate.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"
#include "tests/Repository.h"

#include "llvm/ADT/STLExtras.h"

#include <fstream>
#include <set>
#include <sstream>

using namespace sluice;
using tests::inRepository;

namespace {

/// A spec as text, in a file that may name others beside it.
struct Job {
  std::string text, file = "job.yaml";
  std::vector<Override> overrides = {};

  std::optional<Spec> spec(Diagnostics &diagnostics,
                           const std::vector<Override> &more = {}) const {
    std::vector<Override> all = overrides;
    for (const Override &each : more)
      all.push_back({"pipeline." + each.key, each.value});
    return parseSpec(text, file, all, diagnostics);
  }
};

Job example(const std::string &name, std::vector<Override> overrides) {
  std::string path = inRepository("examples/models/" + name);
  std::ifstream file(path);
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  return {text.str(), path, std::move(overrides)};
}

Job transformer(const std::string &fields, const std::string &pipeline,
                const std::string &memory) {
  return {"sluice: 1\nmodel: {transformer: {" + fields + "}}\npipeline: {" +
          pipeline + "}\ncluster: {device: {flops: 100T, memory: " + memory +
          "}}\n"};
}

/// Copies to host memory are the plan's alone; here messages are free, so that
/// else its time is that of the schedule.
Ticks makespanOf(const Compilation &c) {
  auto moves = [](const RankPlan &rank) { return rank.hostArenaBytes != 0; };
  return llvm::any_of(c.plan->ranks, moves) ? simulatePlan(*c.plan)->makespan
                                            : c.timing->makespan;
}

/// Every suggestion, written as a user would, compiles with all its proofs to
/// just what it says. Returns them, each as "key: value with key: value".
std::vector<std::string> suggestions(const Job &job) {
  Diagnostics diagnostics;
  Compilation c(diagnostics);
  c.spec = job.spec(diagnostics);
  INFO(diagnostics.render());
  REQUIRE(c.spec);
  REQUIRE_FALSE(runPipeline(fullPipeline(), c));
  REQUIRE(c.overLimit);
  std::vector<std::string> texts;
  for (const Suggestion &each : findChanges(*c.spec, c.plan->memoryLimit)) {
    std::string text;
    for (const Override &setting : each.settings)
      text +=
          (text.empty() ? "" : " with ") + setting.key + ": " + setting.value;
    Diagnostics told;
    Compilation changed(told);
    changed.spec = job.spec(told, each.settings);
    bool ok = changed.spec && runPipeline(fullPipeline(), changed);
    INFO(text << "\n" << told.render());
    REQUIRE(ok);
    CHECK(each.needs.largestRank == neediestRank(*changed.plan).second);
    CHECK(each.needs.largestRank <= c.plan->memoryLimit);
    CHECK(each.needs.makespan == makespanOf(changed));
    texts.push_back(text);
  }
  CHECK(std::set<std::string>(texts.begin(), texts.end()).size() ==
        texts.size());
  return texts;
}

bool has(const std::vector<std::string> &texts, const std::string &text) {
  return llvm::is_contained(texts, text);
}

const std::string kLayers =
    "sluice: 1\nmodel: {layers: [{name: l, repeat: 8, forward: 1, backward: 2, "
    "params: 1000, activation_bytes: 3000, output_bytes: 500}]}\npipeline: {";

} // namespace

TEST_CASE("advice: GPT-3 175B on 64 devices of 80 GB") {
  auto texts = suggestions(example("gpt3-175b-64x80gb.yaml",
                                   {{"pipeline.recompute", "none"},
                                    {"pipeline.sequence_parallel", "false"}}));
  CHECK(has(texts, "recompute: full"));
  CHECK(has(texts, "recompute: auto"));
  CHECK(has(texts, "sequence_parallel: true with recompute: selective"));
  CHECK(has(texts, "tensor_parallel: 16"));
  // 67 GiB of activations are those of 96 layers, whatever the ranks.
  CHECK_FALSE(has(texts, "ranks: 16"));
  CHECK(has(texts, "ranks: 32"));
}

TEST_CASE("advice: Llama-3 70B without copies, and as one device a rank") {
  auto copies = suggestions(
      example("llama-3-70b-64x80gb.yaml", {{"pipeline.zero", "0"},
                                           {"pipeline.tensor_parallel", "4"},
                                           {"pipeline.data_parallel", "4"}}));
  // With one stage a rank level 2 takes more than level 1, which is not enough.
  CHECK(has(copies, "zero: 3"));
  CHECK_FALSE(has(copies, "zero: 2"));
  CHECK(has(copies, "tensor_parallel: 8"));
  // As many devices and sequences.
  CHECK(has(copies,
            "tensor_parallel: 8 with data_parallel: 2 with microbatches: 32"));
  // 70.55 G parameters by 18 bytes take at least 16 devices of 80 GB: no one
  // change of 4 ranks of one device is enough but the largest multiples.
  auto alone = suggestions(example("llama-3-70b-64x80gb.yaml",
                                   {{"pipeline.zero", "0"},
                                    {"pipeline.tensor_parallel", "1"},
                                    {"pipeline.sequence_parallel", "false"},
                                    {"pipeline.data_parallel", "1"}}));
  REQUIRE_FALSE(alone.empty());
}

TEST_CASE("advice: explicit layers") {
  // GPipe's 16 microbatches of two layers of 3000 bytes.
  auto texts = suggestions({kLayers + "ranks: 4, microbatches: 16, schedule: "
                                      "gpipe, memory_limit: 80kB}\n"});
  CHECK(has(texts, "schedule: 1f1b"));
  CHECK(has(texts, "ranks: 8"));
  for (const std::string &text : texts)
    CHECK(text.find("parallel: true") == std::string::npos);
}

TEST_CASE("advice: orders of the spec's own give way to a schedule") {
  auto texts = suggestions(
      {kLayers + "ranks: 1, microbatches: 2, memory_limit: 180kB, schedule: "
                 "{orders: [0F0 0F1 0B0 0B1]}}\n"});
  CHECK(has(texts, "schedule: 1f1b"));
}

TEST_CASE("advice: a layout that does not fit more ranks gives way") {
  auto texts = suggestions({kLayers + "ranks: 2, microbatches: 4, layout: [5, "
                                      "3], memory_limit: 100kB}\n"});
  CHECK(has(texts, "ranks: 4 with layout: auto"));
  CHECK_FALSE(has(texts, "ranks: 4"));
}

TEST_CASE("advice: where no change is enough, several together") {
  // 12 h^2 by 18 bytes a layer, h 4096 and 32 layers: 108 GiB of state.
  auto texts = suggestions(transformer(
      "layers: 32, hidden: 4096, heads: 32, vocab: 32000, sequence: 4096, "
      "flash_attention: false",
      "ranks: 2, microbatches: 8, microbatch_size: 4", "12GiB"));
  REQUIRE_FALSE(texts.empty());
  for (const std::string &text : texts)
    CHECK(text.find(" with ") != std::string::npos);
}

TEST_CASE("advice: experts are divided among the copies") {
  auto texts = suggestions(transformer(
      "layers: 8, hidden: 1024, heads: 16, vocab: 32000, sequence: 1024, "
      "experts: 64, topk: 2, moe_ffn: 2048",
      "ranks: 2, microbatches: 4, data_parallel: 4", "16GiB"));
  CHECK(has(texts, "expert_parallel: 2"));
  CHECK(has(texts, "zero: 1"));
}

// Two layers a rank have 36 kB of state and save 6 kB a microbatch: with four
// in flight 60 kB, with offload three on the device and 54 kB. A copy of 6000
// bytes takes 1.5 over the fast link, no longer than a forward, and 12 over the
// slow.
TEST_CASE("advice: offload, where the spec says how long copies take") {
  const std::string pipeline =
      kLayers + "ranks: 4, microbatches: 8, memory_limit: 58kB}\n";
  auto linked = [&](const char *bandwidth) {
    return suggestions(
        {pipeline + "cluster: {host_link: {bandwidth: " + bandwidth + "}}\n"});
  };
  CHECK(has(linked("4000"), "offload: activations"));
  CHECK(has(linked("500"), "offload: activations"));
  CHECK_FALSE(has(suggestions({pipeline}), "offload: activations"));
}

TEST_CASE("advice: offload that would fit, but for its link") {
  auto told = [](const std::string &limit, const std::string &more) {
    Job job{kLayers + "ranks: 4, microbatches: 8, memory_limit: " + limit +
            "}\n" + more};
    Diagnostics diagnostics;
    Compilation c(diagnostics);
    c.spec = job.spec(diagnostics);
    REQUIRE(c.spec);
    REQUIRE_FALSE(runPipeline(fullPipeline(), c));
    adviseOnLimit(c);
    return diagnostics.render();
  };
  const std::string note = "note: pipeline.offload: activations would fit (";
  CHECK(told("58kB", "").find(note) != std::string::npos);
  CHECK(told("50kB", "").find(note) == std::string::npos);
  CHECK(told("58kB", "cluster: {host_link: {bandwidth: 4000}}\n").find(note) ==
        std::string::npos);
}
