//===- tests/compiler/LoweringTest.cpp - From a graph to a proven plan ---===//
//
// Properties of the walk over many sizes, and graphs that are no chain.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/GraphBuilder.h"
#include "compiler/passes/PassManager.h"
#include "compiler/schedules/Orders.h"
#include "compiler/simulate/Report.h"
#include "compiler/spec/Parser.h"
#include "ir/verify/Verify.h"

#include "tests/Catch.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

using namespace sluice;

namespace {
/// A spec of random sizes, costs and bytes.
struct RandomJob {
  explicit RandomJob(std::mt19937 &random) {
    auto pick = [&](uint32_t low, uint32_t high) {
      return std::uniform_int_distribution<uint32_t>(low, high)(random);
    };
    ranks = pick(1, 6);
    microbatches = pick(1, 9);
    schedule = std::vector<std::string>{"naive", "gpipe", "1f1b"}[pick(0, 2)];
    split = pick(0, 1);
    latency = pick(0, 1) ? pick(0, 40) : 0;
    for (uint32_t layer = 0, layers = ranks + pick(0, 3); layer < layers;
         ++layer)
      layerText += "    - {name: l, forward: " + std::to_string(pick(1, 30)) +
                   ", backward_input: " + std::to_string(pick(1, 30)) +
                   ", backward_weight: " + std::to_string(pick(1, 30)) +
                   ", params: " + std::to_string(pick(0, 900)) +
                   ", activation_bytes: " + std::to_string(pick(500, 3000)) +
                   ", kept_for_weight: " + std::to_string(pick(0, 500)) +
                   ", output_bytes: " + std::to_string(pick(0, 3) * 400) +
                   ", workspace_bytes: " + std::to_string(pick(0, 500)) + "}\n";
  }
  std::string text() const {
    return "sluice: 1\nmodel:\n  layers:\n" + layerText +
           "pipeline: {ranks: " + std::to_string(ranks) +
           ", microbatches: " + std::to_string(microbatches) +
           ", schedule: " + schedule + (split ? ", backward: split" : "") +
           "}\n" +
           (latency ? "cluster: {link: {latency: " + std::to_string(latency) +
                          "}}\n"
                    : "");
  }
  uint32_t ranks, microbatches, latency;
  std::string schedule, layerText;
  bool split;
};

/// Compute of each rank, in order.
std::vector<std::vector<std::string>> computeOrders(const Plan &plan) {
  std::vector<std::vector<std::string>> orders;
  for (const RankPlan &rank : plan.ranks) {
    orders.emplace_back();
    for (const PlanOp &op : rank.ops)
      if (isCompute(op.op))
        orders.back().push_back(opName(op.op, op.stage, op.microbatch));
  }
  return orders;
}

/// Every message operation with its channel's ends.
std::multiset<std::string> messagesOf(const Plan &plan) {
  std::multiset<std::string> messages;
  for (const RankPlan &rank : plan.ranks)
    for (const PlanOp &op : rank.ops)
      if (isMessage(op.op))
        messages.insert(opName(op.op, op.stage, op.microbatch) + "@" +
                        std::to_string(plan.channels[op.channel].source) + ">" +
                        std::to_string(plan.channels[op.channel].destination));
  return messages;
}

/// Proves `plan` right under every progress model.
void requireRight(const Plan &plan) {
  verify::Result result = verify::verifyPlan(plan);
  for (const verify::Finding &finding : result.errors)
    FAIL(verify::describe(plan, finding));
  CHECK(result.holds[0]);
  CHECK(result.holds[1]);
  CHECK(result.holds[2]);
  CHECK(result.minBuffering == 0u);
}

/// Runs the passes from a schedule that is there to a plan.
Plan lower(Compilation &compilation) {
  Pipeline pipeline;
  std::string error;
  REQUIRE(parsePipeline("verify-schedule,simulate,lower",
                        artifactsOf(compilation), pipeline, error));
  bool ok = runPipeline(pipeline, compilation);
  INFO(compilation.diagnostics.render());
  REQUIRE(ok);
  return *compilation.plan;
}
} // namespace

TEST_CASE("lowering: random specs give proven plans that keep the schedule") {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    RandomJob job(random);
    INFO(job.text());
    Diagnostics diagnostics;
    Compilation compilation(diagnostics);
    compilation.spec = parseSpec(job.text(), "job.yaml", {}, diagnostics);
    REQUIRE(compilation.spec.has_value());
    Pipeline pipeline = fullPipeline();
    bool ok = runPipeline(pipeline, compilation);
    INFO(diagnostics.render());
    REQUIRE(ok);
    requireRight(*compilation.plan);

    // The order of compute is the schedule's; a message each way per
    // microbatch and cut; nothing is lost by sharing bytes.
    const Plan &plan = *compilation.plan;
    std::vector<std::vector<std::string>> orders(job.ranks);
    for (Id rank = 0; rank < job.ranks; ++rank)
      for (Id id : compilation.schedule->rank(rank)) {
        const Node &node = compilation.graph->nodes[id];
        orders[rank].push_back(opName(node.op, node.stage, node.microbatch));
      }
    CHECK(computeOrders(plan) == orders);
    CHECK(messagesOf(plan).size() ==
          size_t(job.ranks - 1) * job.microbatches * 4);

    // What is compared with the limit holds what is live at the peak.
    for (const RankPlan &rank : plan.ranks)
      CHECK(findMemoryPeak(rank).bytes <= rank.arenaBytes);

    std::optional<PlanTiming> timing = simulatePlan(plan);
    REQUIRE(timing.has_value());
    if (job.latency == 0)
      CHECK(timing->makespan == compilation.timing->makespan);
    else
      CHECK(timing->makespan >= compilation.timing->makespan);
  }
}

TEST_CASE("lowering: replicas sum each trained stage once, and change nothing "
          "else") {
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    RandomJob job(random);
    auto compiled = [&](uint32_t replicas) {
      Diagnostics diagnostics;
      Compilation compilation(diagnostics);
      std::string text = job.text();
      text.insert(text.find("microbatches: "),
                  "data_parallel: " + std::to_string(replicas) + ", ");
      INFO(text);
      compilation.spec = parseSpec(text, "job.yaml", {}, diagnostics);
      REQUIRE(compilation.spec.has_value());
      REQUIRE(runPipeline(fullPipeline(), compilation));
      return *compilation.plan;
    };
    const Plan one = compiled(1), plan = compiled(2 + round % 3);
    requireRight(plan);
    CHECK(plan.replicas == 2u + round % 3);
    CHECK(computeOrders(plan) == computeOrders(one));
    CHECK(messagesOf(plan) == messagesOf(one));
    CHECK(plan.collectives.size() == plan.ranks.size());
    std::multiset<Id> summed;
    for (Id rank = 0; rank < plan.ranks.size(); ++rank) {
      CHECK(plan.ranks[rank].arenaBytes == one.ranks[rank].arenaBytes);
      for (const PlanOp &op : plan.ranks[rank].ops)
        if (op.op == Op::AllReduceGradients) {
          summed.insert(op.stage);
          CHECK(plan.collectives[op.channel].ranks == std::vector<Id>{rank});
        }
    }
    std::multiset<Id> all;
    for (Id stage = 0; stage < plan.stages.size(); ++stage)
      all.insert(stage);
    CHECK(summed == all);
  }
}

TEST_CASE("lowering: with zero 1 each replica steps one part of every trained "
          "stage, and gathers the others") {
  std::mt19937 random(10);
  for (int round = 0; round < 100; ++round) {
    RandomJob job(random);
    auto compiled = [&](const std::string &pipeline) {
      Diagnostics diagnostics;
      Compilation compilation(diagnostics);
      std::string text = job.text();
      text.insert(text.find("microbatches: "), pipeline);
      INFO(text);
      compilation.spec = parseSpec(text, "job.yaml", {}, diagnostics);
      REQUIRE(compilation.spec.has_value());
      REQUIRE(runPipeline(fullPipeline(), compilation));
      return *compilation.plan;
    };
    const uint32_t parts = 2 + round % 3;
    const std::string replicas =
        "data_parallel: " + std::to_string(parts) + ", ";
    const Plan whole = compiled(replicas),
               plan = compiled(replicas + "zero: 1, ");
    requireRight(plan);
    CHECK(computeOrders(plan) == computeOrders(whole));
    CHECK(messagesOf(plan) == messagesOf(whole));
    for (Id stage = 0; stage < plan.stages.size(); ++stage) {
      const Stage &cut = plan.stages[stage], &before = whole.stages[stage];
      CHECK(cut.optimizerParts == parts);
      CHECK(cut.gradientParts == parts);
      CHECK(cut.bytes.optimizer * parts >= before.bytes.optimizer);
      CHECK(cut.bytes.optimizer * parts - before.bytes.optimizer < parts * 12);
    }
    for (Id rank = 0; rank < plan.ranks.size(); ++rank) {
      std::multiset<Id> scattered, gathered, stepped;
      for (const PlanOp &op : plan.ranks[rank].ops) {
        CHECK(op.op != Op::AllReduceGradients);
        if (op.op == Op::ReduceScatterGradients)
          scattered.insert(op.stage);
        if (op.op == Op::AllGatherParameters)
          gathered.insert(op.stage);
        if (op.op == Op::OptimizerStep)
          stepped.insert(op.stage);
      }
      CHECK(scattered == stepped);
      CHECK(gathered == stepped);
      CHECK(!stepped.empty());
    }
  }
}

TEST_CASE("lowering: sharing bytes adds waits and takes nothing away") {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    RandomJob job(random);
    Diagnostics diagnostics;
    Compilation compilation(diagnostics);
    compilation.spec = parseSpec(job.text(), "job.yaml", {}, diagnostics);
    Pipeline pipeline;
    std::string error;
    REQUIRE(parsePipeline("choose-schedule,build-model,partition,warmup,order,"
                          "build-graph,schedule,simulate,lower",
                          artifactsOf(compilation), pipeline, error));
    REQUIRE(runPipeline(pipeline, compilation));
    Plan apart = *compilation.plan, shared = apart;
    requireRight(apart);
    for (RankPlan &rank : shared.ranks)
      placeShared(rank);
    requireRight(shared);
    CHECK(computeOrders(apart) == computeOrders(shared));
    CHECK(messagesOf(apart) == messagesOf(shared));
    for (size_t rank = 0; rank < apart.ranks.size(); ++rank)
      CHECK(shared.ranks[rank].arenaBytes <= apart.ranks[rank].arenaBytes);
  }
}

TEST_CASE(
    "lowering: 1f1b reuses buffers, so neither its arena nor their number "
    "grows with m") {
  auto arenas = [](uint32_t microbatches) {
    std::string text =
        "sluice: 1\nmodel: {layers: [{name: l, repeat: 4, forward: 1, "
        "backward: 2, activation_bytes: 1000, output_bytes: 300}]}\n"
        "pipeline: {ranks: 4, microbatches: " +
        std::to_string(microbatches) + "}\n";
    Diagnostics diagnostics;
    Compilation compilation(diagnostics);
    compilation.spec = parseSpec(text, "job.yaml", {}, diagnostics);
    REQUIRE(runPipeline(fullPipeline(), compilation));
    std::vector<std::pair<Bytes, size_t>> sizes;
    for (const RankPlan &rank : compilation.plan->ranks)
      sizes.emplace_back(rank.arenaBytes, rank.buffers.size());
    return sizes;
  };
  CHECK(arenas(8) == arenas(64));
}

namespace {
/// Three stages in a row, each on its rank, with a skip from the first to the
/// last. `frozen` stages have no backward.
StageGraph skipGraph(std::set<Id> frozen) {
  StageGraph cut;
  for (Id stage = 0; stage < 3; ++stage) {
    Stage info;
    info.backward = !frozen.count(stage);
    info.forward = 1'000'000 * (stage + 1);
    info.backwardInput = 1'000'000;
    info.backwardWeight = 2'000'000;
    info.bytes.activation = 700;
    info.bytes.keptForWeight = 300;
    cut.stages.push_back(info);
  }
  cut.edges = {{0, 1, 100}, {0, 2, 50}, {1, 2, 200}};
  return cut;
}
} // namespace

TEST_CASE("lowering: skips, frozen stages and unequal microbatches") {
  for (const std::set<Id> &frozen : {std::set<Id>{}, std::set<Id>{0},
                                     std::set<Id>{0, 1}, std::set<Id>{0, 1, 2}})
    for (bool split : {false, true})
      for (uint32_t warmup : {0u, 1u, 4u}) {
        Diagnostics diagnostics;
        Compilation compilation(diagnostics);
        compilation.graph = buildGraph(skipGraph(frozen), 4, TimeUnit::Unit,
                                       [&](Id, Id) { return split; });
        for (Value &value : compilation.graph->values) // larger, the later
          value.bytes *=
              1 + compilation.graph->nodes[value.producer].microbatch;
        std::vector<RankProgram> programs;
        for (uint32_t rank = 0; rank < 3; ++rank)
          programs.push_back(
              pairedProgram(4, std::max(warmup, std::min(2 - rank, 4u))));
        ScheduleProblem sizes{3, 1, 4, 4};
        Placement placement(PlacementKind::Linear, 3, 3, 4);
        auto trained = [&](Id stage) { return !frozen.count(stage); };
        compilation.schedule = findInGraph(
            *compilation.graph,
            listOrders({sizes, placement, Lanes::Groups, split, trained},
                       programs));
        Plan plan = lower(compilation);
        requireRight(plan);
        for (RankPlan &rank : plan.ranks)
          placeShared(rank);
        requireRight(plan);
        // Forward along three edges; back along those between trained stages.
        size_t back = 0;
        for (const StageEdge &edge : plan.edges)
          back += !frozen.count(edge.from) && !frozen.count(edge.to);
        CHECK(messagesOf(plan).size() == (3 + back) * 4 * 2);
        // A plan has costs per stage, a graph per operation: equal here.
        REQUIRE(simulatePlan(plan).has_value());
        CHECK(simulatePlan(plan)->makespan == compilation.timing->makespan);
        // And whatever the operations last, the plan holds.
        for (Node &node : compilation.graph->nodes)
          node.duration *= 1 + node.microbatch;
        Plan uneven = lower(compilation);
        requireRight(uneven);
        for (RankPlan &rank : uneven.ranks)
          placeShared(rank);
        requireRight(uneven);
      }
}

TEST_CASE("lowering: tied ends on two ranks send each other their gradients") {
  struct Case {
    std::string pipeline;
    size_t messages; ///< tied gradients, both ways
  };
  for (const Case &job :
       {Case{"schedule: 1f1b", 2}, Case{"schedule: zb-h2", 2},
        Case{"schedule: interleaved-1f1b, virtual_stages: 2", 2},
        Case{"schedule: zb-v, virtual_stages: 2", 0},
        Case{"schedule: dualpipe", 0}, Case{"schedule: chimera", 0},
        Case{"schedule: forward-only", 0}})
    for (uint32_t ranks : {2u, 4u}) {
      INFO(job.pipeline << " on " << ranks << " ranks");
      Diagnostics diagnostics;
      Compilation compilation(diagnostics);
      compilation.spec = parseSpec(
          "sluice: 1\n"
          "model: {transformer: {layers: 8, hidden: 8, heads: 1, vocab: 50, "
          "sequence: 4, tied_embeddings: true}}\n"
          "pipeline: {ranks: " +
              std::to_string(ranks) + ", microbatches: 8, " + job.pipeline +
              "}\n",
          "job.yaml", {}, diagnostics);
      REQUIRE(compilation.spec.has_value());
      REQUIRE(runPipeline(fullPipeline(), compilation));
      size_t sent = 0;
      Bytes bytes = 0;
      for (const RankPlan &rank : compilation.plan->ranks)
        for (const PlanOp &op : rank.ops)
          if (op.op == Op::SendTied) {
            ++sent;
            bytes += messageBytes(*compilation.plan, rank, op);
          }
      CHECK(sent == job.messages);
      CHECK(bytes == job.messages * 50 * 8 * 4); // gradients of 4 bytes
      CHECK(verify::verifyPlan(*compilation.plan, {}).ok());
    }
}

TEST_CASE("schedule: warmup counts of a spec are checked") {
  auto messages = [](const std::string &warmup) {
    std::string text =
        "sluice: 1\nmodel: {layers: [{name: l, repeat: 3, forward: 1, "
        "backward: 2}]}\npipeline: {ranks: 3, microbatches: 4, warmup: " +
        warmup + "}\n";
    Diagnostics diagnostics;
    Compilation compilation(diagnostics);
    compilation.spec = parseSpec(text, "job.yaml", {}, diagnostics);
    if (compilation.spec)
      (void)runPipeline(fullPipeline(), compilation);
    std::string all;
    for (const Diagnostic &diagnostic : diagnostics.all())
      all += diagnostic.message + "\n";
    return all;
  };
  CHECK(messages("[2, 1, 0]").empty());
  CHECK(messages("[0, 0, 0]").empty());
  CHECK(messages("[4, 4, 4]").empty());
  CHECK(messages("[2, 1]") == "warmup has 2 counts, but there are 3 ranks\n");
  CHECK(messages("[5, 1, 0]") ==
        "warmup of rank 0 is 5, more than the 4 microbatches\n");
  CHECK(messages("[1, 2, 0]") ==
        "warmup of rank 1 is 2, more than the 1 of rank 0\n");
}

TEST_CASE("schedule: unknown names and keys without effect are told") {
  auto render = [](const std::string &pipeline) {
    std::string text = "sluice: 1\nmodel: {layers: [{name: l, repeat: 2, "
                       "forward: 1, backward: 2}]}\npipeline: " +
                       pipeline + "\n";
    Diagnostics diagnostics;
    Compilation compilation(diagnostics);
    compilation.spec = parseSpec(text, "job.yaml", {}, diagnostics);
    if (compilation.spec)
      (void)runPipeline(fullPipeline(), compilation);
    return diagnostics.render();
  };
  CHECK(render("{ranks: 2, schedule: 1f2b}") ==
        "job.yaml:3:32: error: there is no schedule '1f2b'\n"
        "  pipeline: {ranks: 2, schedule: 1f2b}\n"
        "                                 ^\n"
        "note: did you mean '1f1b'?\n"
        "note: known schedules: naive, gpipe, 1f1b, eager-1f1b, "
        "interleaved-1f1b, breadth-first, zb-h1, zb-h2, zb-v, v-half, v-min, "
        "dualpipe, dualpipev, chimera, hanayo, forward-only\n");
  CHECK(render("{ranks: 2, schedule: gpipe, warmup: [1, 0]}") ==
        "job.yaml:3:47: warning: pipeline.warmup has no effect with schedule "
        "gpipe\n"
        "  pipeline: {ranks: 2, schedule: gpipe, warmup: [1, 0]}\n"
        "                                                ^\n"
        "note: schedules that take warmup counts: 1f1b, eager-1f1b, "
        "interleaved-1f1b, zb-h1, zb-h2\n");
  CHECK(render("{ranks: 1, virtual_stages: 2, schedule: gpipe}") ==
        "job.yaml:3:38: error: schedule gpipe has 1 virtual stage per rank, "
        "not 2\n"
        "  pipeline: {ranks: 1, virtual_stages: 2, schedule: gpipe}\n"
        "                                       ^\n"
        "note: set pipeline.virtual_stages to 1\n");
}
