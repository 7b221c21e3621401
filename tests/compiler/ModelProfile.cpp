//===- tests/compiler/ModelProfile.cpp - Times that were measured ---------===//
#include "compiler/model/Layer.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include <filesystem>
#include <fstream>

using namespace sluice;

namespace {

const std::string kTiny =
    "layers: 2, hidden: 64, heads: 4, vocab: 256, sequence: 32";

struct Built {
  std::optional<Spec> spec;
  std::optional<Model> model;
  std::string messages; ///< with the folder left out
};

/// A spec beside a profile.yaml of this text.
Built build(const std::string &profile, const std::string &cluster = "",
            const std::string &pipeline = "", const std::string &fields = "",
            const std::string &name = "profile.yaml") {
  static unsigned count = 0;
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("sluice-profile-" + std::to_string(count++) + "-" +
       std::to_string(reinterpret_cast<uintptr_t>(&profile)));
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "profile.yaml", std::ios::binary) << profile;
  Diagnostics diagnostics;
  Built built;
  std::string prefix = folder.string() + "/";
  built.spec =
      parseSpec("sluice: 1\nmodel: {profile: " + name + ", transformer: {" +
                    kTiny + fields + "}}\npipeline: {" + pipeline +
                    "}\ncluster: {" + cluster + "}\n",
                prefix + "spec.yaml", {}, diagnostics);
  if (built.spec)
    built.model = buildModel(*built.spec, diagnostics);
  built.messages = diagnostics.render();
  for (size_t at; (at = built.messages.find(prefix)) != std::string::npos;)
    built.messages.erase(at, prefix.size());
  std::filesystem::remove_all(folder);
  return built;
}

bool told(const Built &built, const std::string &line) {
  return built.messages.find(line) != std::string::npos;
}

const std::string kHead = "sluice_profile: 1\n";
const std::string kDevice = "device: {flops: 1T}";

} // namespace

TEST_CASE("profile: measured times come instead of computed ones") {
  Built built = build(kHead + "layers:\n  dense_block: {forward: 3ms, "
                              "backward_weight: 2.5ms, recompute: 3.5ms}\n",
                      kDevice);
  INFO(built.messages);
  REQUIRE(built.model);
  CHECK(built.messages.empty());
  const Layer &block = built.model->layers[1];
  CHECK(block.forward == 3'000'000'000);
  CHECK(block.backwardWeight == 2'500'000'000);
  CHECK(block.recomputeFull == 3'500'000'000);
  // 32 (2 * 49152 + 2 * 2 * 32 * 64) operations, which the profile leaves out.
  CHECK(block.backwardInput == 3'407'872);
  CHECK(built.model->layers[3].forward == 2 * 64 * 256 * 32); // the head
  unsigned measured = 0;
  for (const CostRow &row : built.model->costs)
    if (row.bound == CostBound::Profile) {
      ++measured;
      CHECK(row.layer == "dense_block");
      CHECK(row.kind == "measured");
      CHECK(toCount(row.work.flops) ==
            (row.pass == CostPass::Forward ? 3'276'800 : 3'145'728));
    }
  CHECK(measured == 2);
}

TEST_CASE("profile: a device's speed is not needed where all is measured") {
  const std::string each =
      ": {forward: 1ms, backward_input: 1ms, backward_weight: 1ms}\n";
  const std::string all = kHead +
                          "layers:\n  embedding: {forward: 20us}\n  "
                          "dense_block" +
                          each + "  head" + each;
  Built built = build(all, "link: {latency: 5us}");
  INFO(built.messages);
  REQUIRE(built.model);
  CHECK(built.model->timeUnit == TimeUnit::Seconds);
  CHECK(built.model->layers[0].forward == 20'000'000);
  Built missing = build(kHead + "layers:\n  dense_block" + each);
  CHECK_FALSE(missing.spec);
  CHECK(told(missing, "profile.yaml:3:26: error: profile.layers.dense_block."
                      "forward is 1ms, in seconds, but model.transformer has "
                      "times in abstract units without cluster.device.flops; a "
                      "spec must not mix the two\n"));
}

TEST_CASE("profile: faults are told at their places in its own file") {
  auto refused = [](const std::string &profile, const std::string &message) {
    Built built = build(profile, kDevice);
    INFO(built.messages);
    CHECK_FALSE(built.spec);
    CHECK(told(built, message));
  };
  refused(kHead + "layers:\n  dens_block: {forward: 1ms}\n",
          "profile.yaml:3:3: error: unknown key profile.layers.dens_block; did "
          "you mean dense_block?\n");
  refused(kHead + "layers:\n  head: {backward: 1ms}\n",
          "profile.yaml:3:10: error: unknown key profile.layers.head.backward; "
          "did you mean backward_input?\n");
  refused(kHead + "layers:\n  head: {forward: -1ms}\n",
          "profile.yaml:3:19: error: profile.layers.head.forward is -1ms, must "
          "be a time");
  refused(kHead + "layers:\n  head: {forward: 1}\n",
          "error: profile.layers.head.forward is 1, in abstract units");
  refused(
      "sluice_profile: 2\nlayers: {}\n",
      "profile.yaml:1:17: error: profile.sluice_profile is 2, but only 1 is "
      "supported yet\n");
  refused("layers: {}\n", "error: profile has no sluice_profile");
  refused("sluice_profile: 1\n", "error: profile has no layers");
  refused(kHead + "layers: [1]\n", "error: profile.layers is a list, must be a "
                                   "map");
  refused("]", "profile.yaml:1:1: error: ");
  Built absent = build("", kDevice, "", "", "other.yaml");
  CHECK(told(absent, "cannot open 'other.yaml'"));
}

TEST_CASE("profile: sizes it was measured with are compared") {
  Built built = build(kHead + "measured: {device: h100, microbatch_size: 2, "
                              "tensor_parallel: 1, sequence: 64}\nlayers:\n  "
                              "head: {forward: 1ms}\n",
                      kDevice);
  REQUIRE(built.model);
  CHECK(told(built, "profile.yaml:2:43: warning: the profile's times were "
                    "measured with microbatch_size 2, the spec has 1\n"));
  CHECK(told(built, "measured with sequence 64, the spec has 32\n"));
  CHECK_FALSE(told(built, "tensor_parallel 1"));
}

TEST_CASE("profile: has no effect on explicit layers") {
  Diagnostics diagnostics;
  CHECK(parseSpec("sluice: 1\nmodel: {profile: none.yaml, layers: [{forward: "
                  "1, backward: 1}]}\n",
                  "spec.yaml", {}, diagnostics));
  CHECK(diagnostics.render().find(
            "warning: model.profile has no effect on explicit layers\n") !=
        std::string::npos);
}

TEST_CASE("costs: a bandwidth that nothing follows from is warned of") {
  Diagnostics diagnostics;
  CHECK(parseSpec("sluice: 1\nmodel: {layers: [{forward: 1ms, backward: 1ms}]}"
                  "\ncluster: {device: {flops: 1T, bandwidth: 3.35TB/s}}\n",
                  "spec.yaml", {}, diagnostics));
  CHECK(diagnostics.render().find("warning: cluster.device.bandwidth has no "
                                  "effect on explicit layers\n") !=
        std::string::npos);
}
