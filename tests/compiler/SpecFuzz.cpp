//===- tests/compiler/SpecFuzz.cpp - Random damage to specs ---------------===//
#include "compiler/model/Layer.h"
#include "compiler/partition/Partition.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"
#include "tests/compiler/SpecForTests.h"

#include <iterator>
#include <random>

using namespace sluice;

namespace {

constexpr const char *kSeeds[] = {
    R"(sluice: 1
model:
  name: my-model
  layers:
    - &l {name: a, repeat: 6, forward: 1, backward: 2, params: 7}
    - {<<: *l, forward: 2, backward_input: 1, backward_weight: 1}
pipeline:
  ranks: 4
  microbatches: 8
  layout: [2, 2, 2, 1]
  schedule: 1f1b
cluster: {link: {latency: 1, bandwidth: 100}, devices_per_node: 8}
run: {steps: 50, learning_rate: 3e-4}
)",
    R"(sluice: 1
model:
  transformer: {layers: 4, hidden: 64, heads: 4, vocab: 99, sequence: 32}
pipeline: {ranks: 2, layout: auto, memory_limit: 80GiB}
cluster:
  device: {name: h100, flops: 989T, efficiency: 0.5}
)"};

constexpr const char *kPieces[] = {
    "-",         "- ",  ": ",   "\n",   "\n  ", "[",
    "]",         "{",   "}",    "'",    "\"",   "#",
    "&a ",       "*a",  "? ",   "!x ",  "|\n",  ">\n",
    "---\n",     "...", "\t",   ",",    "%",    "@",
    "1e99",      "-1",  "010",  "0",    ".nan", "1ms",
    "~",         "\r",  "\xc3", "\x01", "<<: ", "9999999999999999999999",
    "ranks: 3\n"};

std::string damaged(std::string text, std::mt19937 &random) {
  unsigned edits = 1 + random() % 4;
  for (unsigned i = 0; i < edits && !text.empty(); ++i) {
    size_t at = random() % text.size();
    switch (random() % 5) {
    case 0:
      text.erase(at, 1 + random() % 8);
      break;
    case 1:
      text.insert(at, kPieces[random() % std::size(kPieces)]);
      break;
    case 2:
      text[at] = static_cast<char>(random());
      break;
    case 3:
      text.insert(at, text.substr(random() % text.size(), random() % 40));
      break;
    case 4:
      text.resize(at);
      break;
    }
  }
  return text;
}

/// Either a spec, or an error; then the same of what follows.
void checkOutcome(const std::string &text) {
  Diagnostics diagnostics;
  std::optional<Spec> spec = parseSpec(text, "fuzz.yaml", {}, diagnostics);
  INFO(text);
  REQUIRE(spec.has_value() != diagnostics.hasErrors());
  std::optional<Model> model =
      spec ? buildModel(*spec, diagnostics) : std::nullopt;
  if (model) {
    std::optional<StageGraph> graph =
        partition(*spec, *model, stagesOf(*spec), diagnostics);
    REQUIRE(graph.has_value() != diagnostics.hasErrors());
  }
  REQUIRE((model || !diagnostics.render().empty()));
}

} // namespace

TEST_CASE("spec: damaged specs end in a spec or an error") {
  std::mt19937 random(20240607);
  for (unsigned round = 0; round < 4000; ++round)
    checkOutcome(damaged(kSeeds[round % std::size(kSeeds)], random));
}
