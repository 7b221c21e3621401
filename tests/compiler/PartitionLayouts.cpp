//===- tests/compiler/PartitionLayouts.cpp - Layouts as they are written --===//
//
// Published layouts and what they come to; layout strings against the counts
// that they were made of.
//
//===----------------------------------------------------------------------===//
#include "compiler/partition/Partition.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include <algorithm>
#include <numeric>
#include <random>

using namespace sluice;

namespace {

using Counts = std::vector<uint32_t>;

std::string transformer(uint32_t layers) {
  return "model: {transformer: {layers: " + std::to_string(layers) +
         ", hidden: 64, heads: 4, vocab: 256, sequence: 32}}\n";
}

std::string explicitLayers(uint32_t layers) {
  return "model: {layers: [{repeat: " + std::to_string(layers) +
         ", forward: 1, backward: 2, output_bytes: 11}]}\n";
}

/// The cut of `model`, a section of a spec, with `mtp` layers before its head.
StageGraph cut(const std::string &model, uint32_t stages,
               const std::string &layout, uint32_t mtp = 0) {
  Diagnostics diagnostics;
  std::string text = "sluice: 1\n" + model +
                     "pipeline:\n  ranks: " + std::to_string(stages) +
                     "\n  layout: " + layout + "\n";
  std::optional<Spec> spec = parseSpec(text, "spec.yaml", {}, diagnostics);
  INFO(text << diagnostics.render());
  REQUIRE(spec);
  std::optional<Model> built = buildModel(*spec, diagnostics);
  REQUIRE(built);
  Layer layer = built->layers[built->layers.size() / 2];
  layer.kind = LayerKind::Mtp;
  built->layers.insert(built->layers.end() - 1, mtp, layer);
  std::optional<StageGraph> graph =
      partition(*spec, *built, stages, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(graph);
  return *graph;
}

Counts layersOf(const StageGraph &graph) {
  Counts counts;
  for (const Stage &stage : graph.stages)
    counts.push_back(stage.layers);
  return counts;
}

/// Layers of each of `ranks`, stage s on rank s mod ranks.
Counts perRank(const StageGraph &graph, uint32_t ranks) {
  Counts counts(ranks, 0);
  for (size_t stage = 0; stage < graph.stages.size(); ++stage)
    counts[stage % ranks] += graph.stages[stage].layers;
  return counts;
}

/// `values` one after the other, each as often as it says.
Counts runs(std::initializer_list<std::pair<uint32_t, uint32_t>> values) {
  Counts counts;
  for (auto [times, value] : values)
    counts.insert(counts.end(), times, value);
  return counts;
}

bool hasHead(const Stage &stage) {
  return stage.description.find("\nhead=1\n") != std::string::npos;
}

} // namespace

// DeepSeek-V3: 61 layers and one MTP layer, 16 ranks with two stages each.
TEST_CASE("layout string: 61 layers and MTP on 16 ranks") {
  StageGraph graph =
      cut(transformer(61), 32, "\"Et*3|(tt|)*29,m|L\"", /*mtp=*/1);
  CHECK(layersOf(graph) == runs({{1, 3}, {29, 2}, {2, 0}}));
  CHECK(perRank(graph, 16) == runs({{1, 5}, {13, 4}, {2, 2}}));
  const Stage &mtp = graph.stages[30], &block = graph.stages[29];
  CHECK(mtp.parameterCount == block.parameterCount / 2);
  CHECK(mtp.firstLayer == 61);
  CHECK_FALSE(hasHead(mtp));
  CHECK(hasHead(graph.stages[31]));
}

TEST_CASE("layout string: 80 layers on 8 ranks with five stages each") {
  StageGraph graph =
      cut(transformer(80), 40, "\"Et*2|(t*2|)*34,t*3|(t*2|)*3,tL\"");
  CHECK(perRank(graph, 8) == Counts{10, 10, 10, 11, 10, 10, 10, 9});
}

TEST_CASE("layout: embedding and head counted as layers") {
  // BLOOM-176B, Llama-3 405B.
  CHECK(layersOf(cut(transformer(70), 12, "{count: [embedding, head]}")) ==
        runs({{1, 5}, {10, 6}, {1, 5}}));
  CHECK(layersOf(cut(transformer(126), 16, "{count: [embedding, head]}")) ==
        runs({{1, 7}, {14, 8}, {1, 7}}));
  CHECK(layersOf(cut(transformer(11), 4, "{count: [embedding]}")) ==
        Counts{2, 3, 3, 3});
  CHECK(layersOf(cut(transformer(11), 4, "{count: [head]}")) ==
        Counts{3, 3, 3, 2});
  CHECK(layersOf(cut(transformer(5), 1, "{count: [embedding, head]}")) ==
        Counts{5});
  CHECK(layersOf(cut(transformer(2), 4, "{count: [head, embedding]}")) ==
        Counts{0, 1, 1, 0});
}

TEST_CASE("layout: counts of one end, and cuts that do not divide") {
  CHECK(layersOf(cut(transformer(10), 4, "{first: 1}")) == Counts{1, 3, 3, 3});
  CHECK(layersOf(cut(transformer(10), 4, "{last: 4}")) == Counts{2, 2, 2, 4});
  CHECK(layersOf(cut(explicitLayers(46), 4, "[11, 12, 12, 11]")) ==
        Counts{11, 12, 12, 11});
  CHECK(layersOf(cut(explicitLayers(42), 16, "auto")) ==
        runs({{10, 3}, {6, 2}}));
  CHECK(layersOf(cut(explicitLayers(38), 8, "auto")) == runs({{6, 5}, {2, 4}}));
}

TEST_CASE("layout: MTP layers stand with the head unless a string says more") {
  for (const char *layout : {"even", "[2, 2, 2]", "{first: 2, last: 2}"}) {
    StageGraph graph = cut(transformer(6), 3, layout, /*mtp=*/2);
    CHECK(layersOf(graph) == Counts{2, 2, 2});
    CHECK(graph.stages[2].parameterCount ==
          cut(transformer(8), 3, "[2, 2, 4]").stages[2].parameterCount);
  }
  StageGraph graph = cut(transformer(6), 3, "Ettt|ttt|mmL", /*mtp=*/2);
  CHECK(layersOf(graph) == Counts{3, 3, 0});
  CHECK(graph.stages[2].parameterCount ==
        cut(transformer(8), 3, "[3, 3, 2]").stages[2].parameterCount);
}

TEST_CASE("layout string: repetitions, nested, with ornament") {
  auto layers = [](uint32_t count, uint32_t stages, const char *text) {
    return layersOf(cut(explicitLayers(count), stages, text));
  };
  CHECK(layers(11, 7, "Et(t|(tt|)*2)*2,L") == Counts{2, 2, 2, 1, 2, 2, 0});
  CHECK(layers(4, 3, "E t, t |t|, t L") == Counts{2, 1, 1});
  CHECK(layers(3, 3, "\"E|*2t*3L\"") == Counts{0, 0, 3});
  CHECK(layers(2, 1, "EttL") == Counts{2});
  CHECK(layers(1, 1, "((E))*1(t)((L))") == Counts{1});
  CHECK(layers(2, 2, "E()*1000000000(|)*1t*002L") == Counts{0, 2});
}

TEST_CASE("layout string: stages without a layer hand on what they get") {
  StageGraph graph = cut(transformer(2), 4, "E||tt|L");
  CHECK(layersOf(graph) == Counts{0, 0, 2, 0});
  CHECK(graph.stages[1].forward == 0);
  CHECK(graph.stages[1].parameterCount == 0);
  REQUIRE(graph.edges.size() == 3);
  for (const StageEdge &edge : graph.edges)
    CHECK(edge.bytes == 32 * 64 * 2); // sequence, hidden, bf16
  // Explicit layers have neither embedding nor head: nothing goes into the
  // first one, and the output of the last one goes on.
  StageGraph bare = cut(explicitLayers(2), 3, "E|tt|L");
  REQUIRE(bare.edges.size() == 2);
  CHECK(bare.edges[0].bytes == 0);
  CHECK(bare.edges[1].bytes == 11);
}

namespace {
/// Writes `letters` with repetitions and parentheses where chance has it.
std::string written(const std::string &letters, std::mt19937 &random) {
  std::string text;
  for (size_t at = 0; at < letters.size();) {
    size_t size = 1 + random() % 6, copies = 1;
    std::string part = letters.substr(at, size);
    while (letters.compare(at + copies * part.size(), part.size(), part) == 0)
      ++copies;
    copies = 1 + random() % copies;
    at += copies * part.size();
    if (part.size() > 1 || random() % 4 == 0)
      part = "(" + (part.size() > 1 ? written(part, random) : part) + ")";
    if (copies > 1 || random() % 8 == 0)
      part += "*" + std::to_string(copies);
    text += part + (random() % 4 == 0 ? "," : "");
  }
  return text;
}
} // namespace

TEST_CASE("layout string: however written, it is the counts it was made of") {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    Counts counts(1 + random() % 12);
    uint32_t few = random() % 4; // so that neighbours are often alike
    for (uint32_t &count : counts)
      count = random() % (few + 1);
    counts.front() += 1;
    std::string letters = "E";
    for (size_t stage = 0; stage < counts.size(); ++stage)
      letters += (stage == 0 ? "" : "|") + std::string(counts[stage], 't');
    std::string text = written(letters, random) + "L";
    INFO(text);
    uint32_t sum = std::accumulate(counts.begin(), counts.end(), 0u);
    CHECK(layersOf(cut(explicitLayers(sum), counts.size(),
                       "\"" + text + "\"")) == counts);
  }
}
