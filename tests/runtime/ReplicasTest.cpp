//===- tests/runtime/ReplicasTest.cpp - Replicas of a plan in one job -----===//
#include "runtime/Replicas.h"

#include "runtime/Job.h"
#include "runtime/Standing.h"
#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/Catch.h"
#include "tests/ir/PlanBuilderForTests.h"
#include "tests/runtime/HookedModule.h"

#include <mutex>
#include <regex>
#include <set>

using namespace sluice;
using namespace sluice::runtime;
using namespace sluice::tests;

/// Two ranks with a stage each, whose gradients are summed over the replicas.
static Plan makeReplicas(uint32_t replicas) {
  testing::Net net = testing::chain(2, 1, true);
  net.replicas = replicas;
  net.collectives = {{0}, {1}};
  return testing::buildPlan(
      net, std::vector<std::string>{
               "0F0 0SEND_F0 0RECV_B0 0B0 0ALL_REDUCE_G@0 0STEP",
               "1RECV_F0 1F0 1B0 1SEND_B0 1ALL_REDUCE_G@1 1STEP"});
}

static JobOptions optionsFor(const sluice_module *module) {
  JobOptions options;
  options.module = module;
  options.steps = 2;
  options.timeoutSeconds = 20;
  return options;
}

TEST_CASE("runtime: replicas have numbers and paths of their own",
          "[runtime][replicas]") {
  const Plan plan = makeReplicas(3);
  CHECK(nameOfRank(plan, 5) == "rank 1 of replica 2");
  CHECK(nameOfRank(makeReplicas(1), 1) == "rank 1");
  const Paths paths = pathsOf(plan);
  REQUIRE(paths.channels.size() == 6);
  const Channel &back = paths.channels[channelOf(plan, 2, 1)];
  CHECK((back.source == 5 && back.destination == 4));
  REQUIRE(paths.collectives.size() == 2);
  CHECK(paths.collectives[1].ranks == std::vector<Id>{1, 3, 5});
  CHECK(collectivesOf(plan, 2) == std::vector<Id>{0, 1});

  // One within each replica, then one over all.
  Plan mixed = plan;
  mixed.collectives[0] = {0, {0, 1}};
  const Paths own = pathsOf(mixed);
  REQUIRE(own.collectives.size() == 4);
  CHECK(own.collectives[2].ranks == std::vector<Id>{4, 5});
  CHECK(own.collectives[3].ranks == std::vector<Id>{1, 3, 5});
  CHECK(collectivesOf(mixed, 2) == std::vector<Id>{2, 3});
}

TEST_CASE("runtime: each replica computes its part of the microbatches",
          "[runtime][replicas]") {
  std::mutex mutex;
  std::multiset<std::pair<Id, uint32_t>> forwards; // stage, microbatch
  WithHooks hooks({.before = [&](std::string_view name, Id stage,
                                 const sluice_call *call, sluice_error *) {
    const std::lock_guard lock(mutex);
    if (name == "forward")
      forwards.emplace(stage, call->microbatch);
    return 0;
  }});
  JobResult result;
  const Status status =
      runJob(makeReplicas(3), optionsFor(hookedModule()), result);
  INFO(status.message());
  REQUIRE(status.ok());
  CHECK(result.arenaBytes.size() == 6);
  CHECK(result.lastStep->ranks == 2);
  std::multiset<std::pair<Id, uint32_t>> expected;
  for (uint32_t step = 0; step < 2; ++step)
    for (Id stage = 0; stage < 2; ++stage)
      for (uint32_t microbatch = 0; microbatch < 3; ++microbatch)
        expected.emplace(stage, microbatch);
  CHECK(forwards == expected);
}

TEST_CASE("runtime: each replica steps its part of the parameters, and all "
          "gather them",
          "[runtime][replicas]") {
  testing::Net net = testing::chain(2, 1, true);
  net.replicas = 4;
  net.collectives = {{0}, {1}};
  for (const bool gradients : {false, true}) {
    for (Stage &stage : net.stages) {
      stage.optimizerParts = 4;
      stage.gradientParts = gradients ? 4 : 1;
    }
    const std::string sum = gradients ? "REDUCE_SCATTER_G@" : "ALL_REDUCE_G@";
    const Plan plan = testing::buildPlan(
        net,
        std::vector<std::string>{
            "0F0 0SEND_F0 0RECV_B0 0B0 0" + sum + "0 0STEP 0ALL_GATHER_P@0",
            "1RECV_F0 1F0 1B0 1SEND_B0 1" + sum + "1 1STEP 1ALL_GATHER_P@1"});
    JobOptions options = optionsFor(sluice_synthetic_module());
    options.steps = 3;
    JobResult result;
    Status status = runJob(plan, options, result);
    INFO(status.message());
    CHECK(status.ok());
    options.checkpointDirectory = "not-made";
    status = runJob(plan, options, result);
    CHECK(status.fault() == Fault::Input);
    CHECK(status.message() ==
          "checkpoints have the optimizer of a stage whole, but that of stage "
          "0 is in 4 parts (pipeline.zero); run it without --checkpoint-dir");
  }
}

TEST_CASE("runtime: who fails and who waits is told by replica and rank",
          "[runtime][replicas]") {
  WithHooks hooks({.before = [](std::string_view name, Id stage,
                                const sluice_call *call, sluice_error *error) {
    return name == "forward" && stage == 1 && call->microbatch == 1
               ? failWith(error, "no luck")
               : 0;
  }});
  std::string table;
  JobOptions options = optionsFor(hookedModule());
  options.onStuck = [&table](const std::string &told) {
    table = std::regex_replace(told, std::regex(" +"), " ");
  };
  JobResult result;
  const Status status = runJob(makeReplicas(2), options, result);
  CHECK(status.message() == "rank 1 of replica 1 failed at 1F0 (spec.yaml:11) "
                            "of step 0: no luck");
  INFO(table);
  CHECK(table.starts_with("replica rank step stands at line since waits for"));
  CHECK(table.find("\n1 1 0 1F0 spec.yaml:11 ") != std::string::npos);
}

TEST_CASE("runtime: a rank that waits for other replicas names them",
          "[runtime][replicas]") {
  const Plan plan = makeReplicas(4);
  Snapshot snapshot;
  snapshot.phase = Phase::Running;
  const std::vector<PlanOp> &ops = plan.ranks[0].ops;
  snapshot.done.assign(plan.ranks[0].streams.size(), 0);
  for (const PlanOp &op : ops)
    if (op.op != Op::AllReduceGradients && op.op != Op::OptimizerStep)
      ++snapshot.done[op.stream];
  CHECK(standingOf(plan, 4, snapshot).waitsFor ==
        "replicas 0, 1 and 3 to reach 0ALL_REDUCE_G");
}

TEST_CASE("runtime: more replicas than a job can have are refused",
          "[runtime][replicas]") {
  JobResult result;
  Plan plan = makeReplicas(40'000);
  Status status = runJob(plan, optionsFor(sluice_synthetic_module()), result);
  CHECK(status.fault() == Fault::Input);
  CHECK(status.message() == "the plan has 40000 replicas of 2 ranks, together "
                            "over the limit of 65536");
  plan.replicas = 30'000;
  plan.microbatches = 100'000;
  status = runJob(plan, optionsFor(sluice_synthetic_module()), result);
  CHECK(status.message() ==
        "the plan has 30000 replicas of 100000 microbatches, together over the "
        "limit of 2147483647");
}
