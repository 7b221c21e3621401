#include "compiler/model/Layer.h"
#include "compiler/model/Network.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

using namespace sluice;

namespace {

Model modelOf(const std::string &text) {
  Diagnostics diagnostics;
  std::optional<Spec> spec = parseSpec(text, "spec.yaml", {}, diagnostics);
  std::optional<Model> model =
      spec ? buildModel(*spec, diagnostics) : std::nullopt;
  INFO(diagnostics.render());
  REQUIRE(model);
  return *model;
}

} // namespace

TEST_CASE("model: explicit layers are repeated and keep their values") {
  Model model = modelOf(R"(sluice: 1
model:
  name: two
  gradient_bytes: 3
  layers:
    - {name: a, repeat: 3, forward: 2, backward_input: 3, backward_weight: 4}
    - {forward: 1, backward: 1, params: 5, activation_bytes: 9,
       kept_for_weight: 8, output_bytes: 7, workspace_bytes: 6}
)");
  CHECK(model.name == "two");
  CHECK(model.timeUnit == TimeUnit::Unit);
  CHECK(model.parameterBytes == 2);
  CHECK(model.gradientBytes == 3);
  CHECK(model.optimizerBytes == 12);
  CHECK(model.description.empty());
  REQUIRE(model.layers.size() == 4);
  CHECK(model.countedLayers() == 4);
  const Layer &a = model.layers[2], &b = model.layers[3];
  CHECK(a.name == "a");
  CHECK(a.kind == LayerKind::Explicit);
  CHECK(a.forward == 2'000'000);
  CHECK(a.backwardInput == 3'000'000);
  CHECK(a.backwardWeight == 4'000'000);
  CHECK(a.activation == 0);
  CHECK(a.location == SourceLocation{0, 6, 7});
  CHECK(b.name == "layer");
  CHECK(b.parameters == 5);
  CHECK(b.activation == 9);
  CHECK(b.keptForWeight == 8);
  CHECK(b.output == 7);
  CHECK(b.workspace == 6);
  CHECK(b.location == SourceLocation{0, 7, 7});
}

TEST_CASE("model: a whole backward is halved, the input part rounded up") {
  Model model = modelOf("sluice: 1\nmodel:\n  layers:\n"
                        "    - {forward: 1, backward: 1}\n"
                        "    - {forward: 1, backward: 0.000003}\n");
  CHECK(model.layers[0].backwardInput == 500'000);
  CHECK(model.layers[0].backwardWeight == 500'000);
  CHECK(model.layers[1].backwardInput == 2);
  CHECK(model.layers[1].backwardWeight == 1);
}

TEST_CASE("model: a link is occupied for bytes over bandwidth, rounded up") {
  Link link{5, 3};
  CHECK(link.occupancy(0, TimeUnit::Unit) == 0);
  CHECK(link.occupancy(6, TimeUnit::Unit) == 2'000'000);
  CHECK(link.occupancy(7, TimeUnit::Unit) == 2'333'334);
  // 64 MiB at 50 GB/s: 1342.17728 us.
  CHECK(Link{0, 50'000'000'000}.occupancy(67'108'864, TimeUnit::Seconds) ==
        1'342'177'280);
  CHECK(Link{}.occupancy(Bytes(1) << 62, TimeUnit::Seconds) == 0);
  CHECK(Link{0, 1}.occupancy(Bytes(1) << 62, TimeUnit::Seconds) == kMaxTicks);
}

TEST_CASE("model: links within and between nodes") {
  Network network(Link{1, 10}, Link{2, 20}, 4);
  CHECK(network.between(0, 3).latency == 1);
  CHECK(network.between(3, 4).latency == 2);
  CHECK(network.between(4, 3).bandwidth == 20);
  CHECK(network.between(7, 4).bandwidth == 10);
  Network flat(Link{1, 10}, Link{2, 20}, 0);
  CHECK(flat.between(0, 1000).latency == 1);
  CHECK(flat.betweenReplicas().latency == 1);
  CHECK(Network(Link{1, 10}, Link{2, 20}, 4).betweenReplicas().latency == 2);
  CHECK(Network().between(0, 1).latency == 0);
}

TEST_CASE("model: links of a plan's channels") {
  Plan plan;
  plan.channels = {{0, 0, 1, 7, 70}, {0, 1, 0, 8, 80}};
  plan.collectives = {{1, {0, 1}, 5, 50}, {2, {1}, 9, 90, true}};
  Network network(plan);
  CHECK(network.betweenReplicas().latency == 9);
  CHECK(network.betweenReplicas().bandwidth == 90);
  CHECK(network.between(0, 1).latency == 7);
  CHECK(network.between(1, 0).bandwidth == 80);
  CHECK(network.between(1, 2).latency == 0);
}
