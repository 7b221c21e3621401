#include "compiler/partition/Partition.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"
#include "tests/compiler/SpecForTests.h"

using namespace sluice;

namespace {

using Counts = std::vector<uint32_t>;

StageGraph cut(const std::string &text) {
  Diagnostics diagnostics;
  std::optional<Spec> spec =
      parseSpec("sluice: 1\n" + text, "spec.yaml", {}, diagnostics);
  std::optional<Model> model =
      spec ? buildModel(*spec, diagnostics) : std::nullopt;
  std::optional<StageGraph> graph =
      model ? partition(*spec, *model, stagesOf(*spec), diagnostics)
            : std::nullopt;
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

std::string layers(int count) {
  return "model:\n  layers:\n    - {repeat: " + std::to_string(count) +
         ", forward: 1, backward: 2}\n";
}

std::string pipeline(int ranks, const std::string &layout) {
  return "pipeline: {ranks: " + std::to_string(ranks) + ", layout: " + layout +
         "}\n";
}

std::string transformer(int count, const std::string &more) {
  return "model:\n  transformer: {layers: " + std::to_string(count) +
         ", hidden: 64, heads: 4, sequence: 32, dtype: fp32" + more + "}\n";
}

} // namespace

TEST_CASE("partition: layouts give their layers") {
  CHECK(layersOf(cut(layers(24) + pipeline(4, "auto"))) == Counts{6, 6, 6, 6});
  CHECK(layersOf(cut(layers(24) + pipeline(4, "even"))) == Counts{6, 6, 6, 6});
  CHECK(layersOf(cut(layers(24) + pipeline(4, "[3, 9, 11, 1]"))) ==
        Counts{3, 9, 11, 1});
  CHECK(layersOf(cut(layers(24) + pipeline(4, "{first: 3, last: 5}"))) ==
        Counts{3, 8, 8, 5});
  CHECK(layersOf(cut(layers(24) + pipeline(2, "{first: 3, last: 21}"))) ==
        Counts{3, 21});
  CHECK(layersOf(cut(layers(38) + pipeline(8, "auto"))) ==
        Counts{5, 5, 5, 5, 5, 5, 4, 4});
  CHECK(
      layersOf(cut(layers(24) + "pipeline: {ranks: 4, virtual_stages: 2}\n")) ==
      Counts{3, 3, 3, 3, 3, 3, 3, 3});
}

TEST_CASE("partition: costs, bytes and edges of explicit layers") {
  StageGraph graph = cut(R"(model:
  parameter_bytes: 1
  gradient_bytes: 10
  optimizer_bytes: 100
  layers:
    - {repeat: 2, forward: 1, backward: 3, params: 5, activation_bytes: 7,
       kept_for_weight: 3, output_bytes: 11, workspace_bytes: 13}
    - {forward: 10, backward_input: 4, backward_weight: 2, params: 100,
       activation_bytes: 200, output_bytes: 50, workspace_bytes: 2}
    - {forward: 1, backward: 1, output_bytes: 9}
pipeline: {ranks: 3, layout: [1, 2, 1]}
)");
  REQUIRE(graph.stages.size() == 3);
  const Stage &first = graph.stages[0], &second = graph.stages[1];
  CHECK(first.firstLayer == 0);
  CHECK(second.firstLayer == 1);
  CHECK(graph.stages[2].firstLayer == 3);
  CHECK(second.backward);
  CHECK(second.forward == 11'000'000);
  CHECK(second.backwardInput == 5'500'000);
  CHECK(second.backwardWeight == 3'500'000);
  CHECK(second.parameterCount == 105);
  CHECK(second.activeParameterCount == 105);
  CHECK(second.bytes.parameters == 105);
  CHECK(second.bytes.gradients == 1050);
  CHECK(second.bytes.optimizer == 10500);
  CHECK(second.bytes.activation == 207);
  CHECK(second.bytes.keptForWeight == 3);
  CHECK(second.bytes.workspace == 13);
  CHECK(second.location == SourceLocation{0, 7, 7});
  CHECK(graph.stages[2].location == SourceLocation{0, 11, 7});
  CHECK(second.description.empty());
  REQUIRE(graph.edges.size() == 2);
  CHECK(graph.edges[0].from == 0);
  CHECK(graph.edges[0].to == 1);
  CHECK(graph.edges[0].bytes == 11);
  CHECK(graph.edges[1].from == 1);
  CHECK(graph.edges[1].to == 2);
  CHECK(graph.edges[1].bytes == 50);
}

// A block costs 3 units (1 + 1.04 + 0.96), the head 0.96 with a vocabulary of
// 256 and 12 with one of 3200.
TEST_CASE("partition: embedding and head count, with blocks where possible") {
  std::string light = ", vocab: 256", heavy = ", vocab: 3200";
  CHECK(layersOf(cut(transformer(8, light) + pipeline(4, "auto"))) ==
        Counts{2, 2, 2, 2});
  CHECK(layersOf(cut(transformer(8, heavy) + pipeline(3, "auto"))) ==
        Counts{4, 4, 0});
  CHECK(layersOf(cut(transformer(12, heavy) + pipeline(3, "auto"))) ==
        Counts{6, 5, 1}); // 18, 15, 15; as good as 15, 15, 18
  // 15 and 15; with the head alone it would be 18 and 12.
  CHECK(layersOf(cut(transformer(6, heavy) + pipeline(2, "auto"))) ==
        Counts{5, 1});
  CHECK(layersOf(cut(transformer(8, heavy) + pipeline(4, "even"))) ==
        Counts{2, 2, 2, 2});
  CHECK(layersOf(cut(transformer(8, heavy) + pipeline(3, "[4, 4, 0]"))) ==
        Counts{4, 4, 0});
  CHECK(layersOf(cut(transformer(2, light) + pipeline(4, "auto"))) ==
        Counts{0, 1, 1, 0});
}

TEST_CASE("partition: stages of a transformer") {
  StageGraph graph = cut(transformer(3, ", vocab: 256") +
                         "pipeline: {ranks: 2, layout: [2, 1]}\n");
  REQUIRE(graph.stages.size() == 2);
  const Stage &first = graph.stages[0], &last = graph.stages[1];
  // Block 12 h^2 + 13 h = 49984; embedding (256 + 32) h, head 256 h + 2 h.
  CHECK(first.parameterCount == 2 * 49984 + 288 * 64);
  CHECK(last.parameterCount == 49984 + 258 * 64);
  CHECK(first.bytes.parameters == 4 * first.parameterCount);
  CHECK(last.bytes.optimizer == 8 * last.parameterCount);
  CHECK(last.forward == 1'320'000);
  CHECK(graph.edges[0].bytes == 32 * 64 * 4);
  std::string tail =
      first.description.substr(first.description.find("first_layer"));
  CHECK(tail == "first_layer=0\nstage_layers=2\nembedding=1\nhead=0\n");
  tail = last.description.substr(last.description.find("first_layer"));
  CHECK(tail == "first_layer=2\nstage_layers=1\nembedding=0\nhead=1\n");
  CHECK(last.description.rfind("kind=gpt\nhidden=64\n", 0) == 0);
}

TEST_CASE("partition: a tied head apart from the embedding keeps a copy") {
  std::string model = transformer(2, ", vocab: 256, tied_embeddings: true");
  StageGraph apart = cut(model + "pipeline: {ranks: 2, layout: [1, 1]}\n");
  const Stage &last = apart.stages[1];
  CHECK(last.parameterCount == 49984 + 2 * 64);
  CHECK(last.bytes.parameters == 4 * (last.parameterCount + 256 * 64));
  CHECK(last.bytes.gradients == 4 * (last.parameterCount + 256 * 64));
  CHECK(last.tiedTo == 0);
  CHECK(apart.stages[0].tiedTo == 1);
  CHECK(apart.stages[0].bytes.gradients == 4 * apart.stages[0].parameterCount);
  for (const Stage &stage : apart.stages)
    CHECK(stage.bytes.tied == 4 * 256 * 64);
  StageGraph together = cut(model);
  CHECK(together.stages[0].bytes.parameters ==
        4 * together.stages[0].parameterCount);
  // The gradients by the embedding and by the head are summed apart.
  CHECK(together.stages[0].bytes.gradients ==
        4 * (together.stages[0].parameterCount + 256 * 64));
  CHECK(together.stages[0].tiedTo == kNone);
  CHECK(together.edges.empty());
}
