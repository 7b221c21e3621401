//===- tests/runtime/RecomputeTraining.cpp - Forwards that run again ------===//
//
// Recomputation and offloading change what is kept and where, not what is
// computed: weights and losses are the same bit for bit.
//
//===----------------------------------------------------------------------===//
#include "tests/runtime/ScheduleTraining.h"

#include "runtime/Weights.h"
#include "runtime/modules/gpt/Module.h"
#include "runtime/modules/synthetic/Synthetic.h"

#include "tests/Catch.h"
#include "tests/Repository.h"

#include <map>
#include <string>
#include <vector>

using namespace sluice;
using namespace sluice::tests;

namespace {

constexpr uint64_t kSteps = 3;

/// The bytes of every tensor by its name.
struct WeightsInMemory final : runtime::WeightsSink {
  std::map<std::string, std::string> tensors;
  Status begin(uint64_t) override { return {}; }
  Status tensor(const sluice_tensor &of) override {
    tensors[of.name] =
        std::string(static_cast<const char *>(of.data), of.bytes);
    return {};
  }
  Status end() override { return {}; }
};

struct Trained {
  std::map<std::string, std::string> tensors;
  std::vector<double> losses;
  Bytes arenas = 0, hostArenas = 0;
};

Trained train(const Plan &plan, const sluice_module *module) {
  WeightsInMemory weights;
  runtime::JobOptions options;
  options.module = module;
  options.steps = kSteps;
  options.timeoutSeconds = 60;
  runtime::JobResult result;
  const Status status = runtime::runJob(plan, options, result, &weights);
  INFO(status.message());
  REQUIRE(status.ok());
  Trained trained{std::move(weights.tensors), std::move(result.losses), 0};
  REQUIRE(result.arenaBytes.size() == plan.ranks.size());
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    CHECK(result.arenaBytes[rank] == plan.ranks[rank].arenaBytes);
    CHECK(result.hostArenaBytes[rank] == plan.ranks[rank].hostArenaBytes);
    trained.arenas += result.arenaBytes[rank];
    trained.hostArenas += result.hostArenaBytes[rank];
  }
  return trained;
}

struct Case {
  const char *schedule;
  uint32_t chunks = 1; ///< stages per rank
  bool evenRanks = false;
};
constexpr Case kCases[] = {{"1f1b"},
                           {"1f1b, backward: split"},
                           {"gpipe"},
                           {"zb-h1"},
                           {"zb-v", 2},
                           {"interleaved-1f1b", 2},
                           {"dualpipe", 1, true},
                           {"hanayo", 2},
                           {"dualpipev", 2}};

std::string specOf(const Case &of, uint32_t ranks, bool flash, bool tied,
                   const std::string &policy) {
  return "sluice: 1\n"
         "model:\n"
         "  transformer: {layers: 9, hidden: 16, ffn: 24, heads: 2, vocab: "
         "256, sequence: 10, flash_attention: " +
         std::string(flash ? "true" : "false") +
         ", tied_embeddings: " + (tied ? "true" : "false") +
         ", dtype: fp32}\n"
         "pipeline: {ranks: " +
         std::to_string(ranks) +
         ", virtual_stages: " + std::to_string(of.chunks) +
         ", microbatches: 8, microbatch_size: 2, schedule: " + of.schedule +
         ", recompute: " + policy +
         "}\n"
         "cluster: {host_link: {latency: 0}}\n"
         "run: {data: " +
         inRepository("LICENSE") + ", learning_rate: 0.01}\n";
}

/// A policy per stage, in turn.
std::string mixed(uint32_t stages) {
  std::string list;
  for (uint32_t stage = 0; stage < stages; ++stage)
    list += (stage == 0 ? "[" : ", ") +
            std::string(kRecomputePolicies[(stage + 2) % 3]);
  return list + "]";
}

unsigned countOf(const Plan &plan, Op wanted) {
  unsigned count = 0;
  for (const RankPlan &rank : plan.ranks)
    for (const PlanOp &op : rank.ops)
      count += op.op == wanted;
  return count;
}

/// Whether as much is recomputed as `policy` says, and whatever goes to host
/// memory comes back.
void checkOps(const Plan &plan, const std::string &policy, bool flash) {
  // Only blocks without flash attention have something to select.
  uint32_t selective = 0;
  for (const Stage &stage : plan.stages)
    selective += stage.layers != 0 && !flash;
  unsigned recomputes = countOf(plan, Op::Recompute);
  if (policy == "none")
    CHECK(recomputes == 0);
  if (policy == "full")
    CHECK(recomputes == plan.stages.size() * plan.microbatches);
  if (policy == "selective")
    CHECK(recomputes == selective * plan.microbatches);
  CHECK(countOf(plan, Op::Offload) == countOf(plan, Op::Reload));
}

/// Trains as `spec` says; the weights and losses must be those of `expected`.
void checkSame(const std::string &spec, const std::string &policy, bool flash,
               bool moves, const Trained &expected) {
  INFO(spec);
  const Plan plan = compileSpec(spec);
  checkOps(plan, policy, flash);
  if (moves)
    CHECK(countOf(plan, Op::Offload) != 0);
  const Trained other = train(plan, sluice_gpt_module());
  CHECK((other.hostArenas != 0) == (countOf(plan, Op::Offload) != 0));
  CHECK(other.losses == expected.losses);
  CHECK((other.tensors == expected.tensors));
}

void checkPolicies(const Case &of, uint32_t ranks, bool flash, bool tied) {
  const Trained none = train(
      compileSpec(specOf(of, ranks, flash, tied, "none")), sluice_gpt_module());
  REQUIRE(none.losses.size() == kSteps);
  REQUIRE(none.tensors.size() > 9 * 12);
  CHECK(none.hostArenas == 0);
  for (const std::string &policy :
       {std::string("none"), std::string("full"), std::string("selective"),
        mixed(ranks * of.chunks)}) {
    if (policy != "none")
      checkSame(specOf(of, ranks, flash, tied, policy), policy, flash, false,
                none);
    if (!flash)
      checkSame(
          specOf(of, ranks, flash, tied, policy + ", offload: activations"),
          policy, flash, ranks == 4, none);
  }
}

} // namespace

// train() holds the arenas that were used, the device's and the host's, against
// those of the plan.
TEST_CASE("training: weights are the same with recompute none, selective, full "
          "and with offload, and arenas are as planned",
          "[training]") {
  for (const Case &of : kCases)
    for (const uint32_t ranks : {1u, 2u, 4u}) {
      if (of.evenRanks && ranks == 1)
        continue;
      for (const bool flash : {true, false})
        checkPolicies(of, ranks, flash, ranks == 2);
    }
}

// That the loss falls shows that the steps above move the weights.
TEST_CASE("training: less is held with recomputation", "[training]") {
  const Case gpipe = {"gpipe"};
  std::map<std::string, Bytes> arenas;
  for (const char *policy : {"none", "selective", "full"}) {
    const Trained trained =
        train(compileSpec(specOf(gpipe, 2, false, false, policy)),
              sluice_gpt_module());
    CHECK(trained.losses.back() < trained.losses.front());
    arenas[policy] = trained.arenas;
  }
  const Trained moved = train(
      compileSpec(specOf(gpipe, 2, false, false, "none, offload: activations")),
      sluice_gpt_module());
  CHECK(moved.arenas < arenas["none"]);
  CHECK(moved.hostArenas != 0);
  CHECK(arenas["full"] < arenas["selective"]);
  CHECK(arenas["selective"] < arenas["none"]);
}

// The synthetic module checks that every byte that it reads is what was to be
// written there; of explicit layers in uneven sizes.
TEST_CASE("training: synthetic stages find what was made again", "[training]") {
  for (const Case &of : kCases)
    for (const uint32_t ranks : {2u, 4u}) {
      std::string layers;
      const uint32_t stages = ranks * of.chunks;
      for (uint32_t i = 0; i < stages; ++i)
        layers += std::string(i == 0 ? "" : ", ") +
                  "{name: l, forward: 1, backward: 2, params: 10, "
                  "activation_bytes: " +
                  std::to_string(700 + 100 * i) +
                  ", kept_for_weight: " + std::to_string(i % 3 * 300) +
                  ", output_bytes: " + std::to_string(40 + i) + "}";
      const Plan plan = compileSpec(
          "sluice: 1\nmodel: {layers: [" + layers +
          "]}\npipeline: {ranks: " + std::to_string(ranks) +
          ", virtual_stages: " + std::to_string(of.chunks) +
          ", microbatches: 8, schedule: " + of.schedule +
          ", recompute: " + mixed(stages) +
          ", offload: activations}\ncluster: {host_link: {latency: 1}}\n");
      CHECK(countOf(plan, Op::Recompute) != 0);
      CHECK((ranks == 2 || countOf(plan, Op::Offload) != 0));
      CHECK(countOf(plan, Op::Offload) == countOf(plan, Op::Reload));
      train(plan, sluice_synthetic_module());
    }
}
