#include "compiler/passes/OrderTrial.h"
#include "compiler/passes/PassManager.h"
#include "compiler/passes/WarmupSearch.h"
#include "compiler/simulate/Report.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include <random>

using namespace sluice;

namespace {

using Random = std::mt19937;

std::string pick(Random &random, std::initializer_list<const char *> of) {
  return of.begin()[random() % of.size()];
}

std::string randomLayers(Random &random, uint32_t count, bool instant) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i)
    text +=
        std::string(i == 0 ? "" : ", ") + "{name: l" + std::to_string(i) +
        ", forward: " + (instant ? "0" : pick(random, {"1", "1.5", "3"})) +
        ", backward_input: " +
        (instant ? pick(random, {"0", "1"}) : pick(random, {"1", "2"})) +
        ", backward_weight: " + pick(random, {"0.5", "1", "2"}) +
        ", activation_bytes: " + pick(random, {"0", "700", "1024", "3000"}) +
        ", kept_for_weight: " + pick(random, {"0", "0", "512"}) +
        ", output_bytes: " + pick(random, {"0", "200", "1024", "1000"}) +
        ", workspace_bytes: 300, params: 100}";
  for (const char *bad : {"activation_bytes: 0, kept_for_weight: 512"})
    for (size_t at; (at = text.find(bad)) != std::string::npos;)
      text.replace(at, std::string(bad).size(),
                   "activation_bytes: 0, kept_for_weight: 0");
  return text;
}

std::string randomSpec(Random &random, const std::string &schedule,
                       uint32_t chunks, bool instant,
                       const std::string &policy = "") {
  uint32_t ranks = 1 + random() % 5;
  uint32_t microbatches =
      chunks == 1 ? 1 + random() % 12 : ranks * (1 + random() % 4);
  return "sluice: 1\nmodel: {layers: [" +
         randomLayers(random, ranks * chunks + random() % 3, instant) +
         "]}\npipeline: {ranks: " + std::to_string(ranks) +
         ", microbatches: " + std::to_string(microbatches) +
         ", virtual_stages: " + std::to_string(chunks) +
         ", schedule: " + schedule + policy + "}\ncluster: {link: {latency: " +
         pick(random, {"0", "0.5", "1", "4"}) +
         ", bandwidth: " + pick(random, {"100", "1000", "1e6"}) + "}}\n";
}

/// Compiles `text` with counts that differ from the standard at random, and
/// holds what a trial says of the same order against the simulation and the
/// arenas of the plan.
void checkTrial(Random &random, const std::string &text, bool instant) {
  INFO(text);
  Diagnostics diagnostics;
  Compilation c(diagnostics);
  c.spec = parseSpec(text, "job.yaml", {}, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(c.spec);
  REQUIRE(runPipeline(pipelineBefore("order"), c));
  uint32_t extra = random() % 4;
  uint32_t most = c.choice->sizes.microbatches * c.choice->sizes.chunks;
  for (uint32_t &count : c.warmup->perRank)
    count = std::min(count + extra, most);
  c.orders = ordersWith(*c.choice, *c.stages, c.warmup->perRank);
  for (bool (*pass)(Compilation &) :
       {passes::BuildGraph, passes::ScheduleOps, passes::SimulateOps,
        passes::LowerToPlan, passes::AssignBuffers})
    REQUIRE(pass(c));
  Network network = c.network();
  OrderTrial trial(*c.stages, c.choice->placement, c.choice->sizes.microbatches,
                   c.spec->model.timeUnit, network);
  REQUIRE(trial.run(*c.orders));
  CHECK(trial.makespan() == c.timing->makespan);
  CHECK(trial.span() == c.timing->span);
  std::vector<Bytes> arenas, least = trial.leastBytes(*c.orders);
  for (const RankPlan &rank : c.plan->ranks)
    arenas.push_back(rank.arenaBytes);
  std::vector<Bytes> counted = trial.arenas();
  if (!instant)
    CHECK(counted == arenas);
  for (size_t rank = 0; rank < arenas.size(); ++rank) {
    CHECK(counted[rank] >= findMemoryPeak(c.plan->ranks[rank]).aligned);
    CHECK(least[rank] <= arenas[rank]);
  }
}

} // namespace

TEST_CASE("a trial of an order is its simulation and the arenas of its plan") {
  Random random(1);
  for (unsigned i = 0; i < 80; ++i) {
    bool instant = i % 4 == 0; // some operations take no time
    for (const char *schedule :
         {"1f1b", "eager-1f1b", "zb-h1", "zb-h2", "1f1b, backward: split"})
      checkTrial(random, randomSpec(random, schedule, 1, instant), instant);
    for (uint32_t chunks : {2u, 3u})
      checkTrial(random,
                 randomSpec(random, "interleaved-1f1b", chunks, instant),
                 instant);
  }
}

/// `text` with times and checkpoints for recomputation in its layers.
std::string recomputable(Random &random, std::string text) {
  constexpr const char *kEnd = "params: 100}";
  for (size_t at = 0; (at = text.find(kEnd, at)) != std::string::npos;) {
    std::string more =
        "params: 100, recompute: " + pick(random, {"0.25", "1", "2"}) +
        ", checkpoint_bytes: " + pick(random, {"0", "200", "512"}) + "}";
    text.replace(at, std::string(kEnd).size(), more);
    at += more.size();
  }
  return text;
}

TEST_CASE("a trial of an order that recomputes") {
  Random random(3);
  for (unsigned i = 0; i < 40; ++i)
    for (const char *policy : {", recompute: full", ", recompute: selective"}) {
      for (const char *schedule :
           {"1f1b", "eager-1f1b", "zb-h1", "zb-h2", "1f1b, backward: split"})
        checkTrial(random,
                   recomputable(random,
                                randomSpec(random, schedule, 1, false, policy)),
                   /*instant=*/false);
      checkTrial(random,
                 recomputable(random, randomSpec(random, "interleaved-1f1b", 2,
                                                 false, policy)),
                 /*instant=*/false);
    }
}

TEST_CASE("a trial of an order of a transformer with tied embeddings") {
  Random random(1);
  for (uint32_t ranks : {2u, 4u})
    for (const char *schedule :
         {"1f1b", "zb-h2", "interleaved-1f1b, virtual_stages: 2"})
      checkTrial(random,
                 "sluice: 1\nmodel: {transformer: {layers: 8, hidden: 64, ffn: "
                 "256, heads: 4, kv_heads: 4, vocab: 512, sequence: 32, "
                 "tied_embeddings: true, dtype: "
                 "bf16}}\npipeline: {ranks: " +
                     std::to_string(ranks) +
                     ", microbatches: 8, schedule: " + schedule +
                     "}\ncluster: {device: {name: d, memory: 80GiB, flops: "
                     "1G, efficiency: 0.5}, link: {latency: 5us}}\n",
                 /*instant=*/false);
}

TEST_CASE("a trial says where ranks wait for each other") {
  Diagnostics diagnostics;
  Compilation c(diagnostics);
  c.spec = parseSpec("sluice: 1\nmodel: {layers: [{name: l, repeat: 2, "
                     "forward: 1, backward: 1}]}\npipeline: {ranks: 2, "
                     "microbatches: 4, schedule: 1f1b}\n",
                     "job.yaml", {}, diagnostics);
  REQUIRE(runPipeline(pipelineBefore("order"), c));
  Network network = c.network();
  OrderTrial trial(*c.stages, c.choice->placement, 4, TimeUnit::Unit, network);
  // Rank 0 computes 0B0 behind 0F0, rank 1 makes its gradient behind 1F1.
  CHECK_FALSE(trial.run(ordersWith(*c.choice, *c.stages, {0, 1})));
  CHECK(trial.run(ordersWith(*c.choice, *c.stages, {1, 1})));
}
