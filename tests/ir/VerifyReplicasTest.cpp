// Replicas of a pipeline: what they must sum, and that nothing hangs by it.
#include "tests/ir/FindingsForTests.h"
#include "tests/ir/MutantCheck.h"
#include "tests/ir/PlanBuilderForTests.h"

using namespace sluice;
using namespace sluice::testing;
using verify::Finding;
using verify::Result;

namespace {

std::string errorsOf(const Plan &plan) {
  std::string text;
  for (const Finding &finding : verify::verifyPlan(plan).errors)
    text += std::string(verify::findingKindName(finding.kind)) + ": " +
            verify::describe(plan, finding) + "\n";
  return text;
}

/// A chain of which every rank has a collective over replicas.
Net replicated(uint32_t ranks, uint32_t microbatches, uint32_t replicas,
               uint32_t stages = 0) {
  Net net = chain(ranks, microbatches, true, stages);
  net.replicas = replicas;
  for (Id r = 0; r < ranks; ++r)
    net.collectives.push_back({r});
  return net;
}

/// Puts an all-reduce of each stage right before the first step of its rank.
Plan summed(const Net &net, const Lists &compute) {
  Lists lists = withOrderedMessages(net, compute);
  for (Id r = 0; r < net.ranks; ++r) {
    std::vector<std::string> list;
    for (const std::string &name : lists[r]) {
      bool step = name.find("STEP") != std::string::npos;
      if (step &&
          (list.empty() || list.back().find("STEP") == std::string::npos))
        for (Id s = r; s < net.stages.size(); s += net.ranks)
          list.push_back(opName(Op::AllReduceGradients, s, kNone) + "@" +
                         std::to_string(r));
      list.push_back(name);
    }
    lists[r] = list;
  }
  return buildPlan(net, lists);
}

Plan oneRank(const std::string &list, uint32_t replicas = 3) {
  return buildPlan(replicated(1, 2, replicas), std::vector<std::string>{list});
}

constexpr const char *kGood = "0F0 0B0 0F1 0B1 0ALL_REDUCE_G@0 0STEP";

} // namespace

TEST_CASE("verify: replicas that sum every stage once hold") {
  for (uint32_t replicas : {2u, 3u}) {
    Net net = replicated(2, 2, replicas, 4);
    Plan plan = summed(net, allForwardAllBackward(net, true));
    CHECK(errorsOf(plan).empty());
    Result result = verify::verifyPlan(plan);
    CHECK(holding(result) == kAllHold);
    // The same as one plan of all ranks, in which every stage has copies.
    CHECK(errorsOf(unfold(plan)).empty());
    CHECK(verify::verifyPlan(unfold(plan)).minBuffering == 0);
  }
}

TEST_CASE("verify: each replica sums every trained stage once, at the end") {
  CHECK(errorsOf(oneRank(kGood)).empty());
  CHECK(errorsOf(oneRank("0F0 0B0 0F1 0B1 0STEP")) ==
        "missing: 0ALL_REDUCE_G over replicas is missing on rank 0: 3 replicas "
        "hold stage 0 (operation 0 of rank 0, spec.yaml:10)\n");
  CHECK(errorsOf(
            oneRank("0F0 0B0 0F1 0B1 0ALL_REDUCE_G@0 0ALL_REDUCE_G@0 0STEP")) ==
        "duplicate: 0ALL_REDUCE_G stands twice on rank 0 (operation 5 of rank "
        "0, spec.yaml:10)\n");
  CHECK(errorsOf(oneRank("0F0 0B0 0ALL_REDUCE_G@0 0F1 0B1 0STEP")) ==
        "order: 0F1 stands after 0ALL_REDUCE_G (operation 3 of rank 0, "
        "spec.yaml:10)\n"
        "order: 0B1 stands after 0ALL_REDUCE_G (operation 4 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errorsOf(oneRank("0F0 0B0 0F1 0B1 0STEP 0ALL_REDUCE_G@0")) ==
        "order: 0ALL_REDUCE_G stands after 0STEP (operation 5 of rank 0, "
        "spec.yaml:10)\n");
  // Without a step nothing asks for the sum.
  CHECK(errorsOf(oneRank("0F0 0B0 0F1 0B1")).empty());
}

TEST_CASE("verify: a sum within one replica is none over replicas") {
  Plan plan = oneRank(kGood);
  plan.collectives[0].overReplicas = false;
  CHECK(errorsOf(plan) ==
        "order: 0ALL_REDUCE_G sums within one replica, 3 replicas hold stage 0 "
        "(operation 4 of rank 0, spec.yaml:10)\n");
}

TEST_CASE("verify: the numbers of replicas that no plan can have") {
  Plan plan = oneRank(kGood);
  plan.replicas = 1;
  CHECK(errorsOf(plan) ==
        "malformed: collective 0 is over replicas, but the plan has one\n");
  plan.replicas = 0;
  CHECK(errorsOf(plan) == "malformed: the plan has 0 replicas, not between 1 "
                          "and 2147483647\n");
}

TEST_CASE("verify: a step waits for the sum over replicas") {
  Plan plan = oneRank(kGood);
  REQUIRE(plan.ranks[0].waitsOf(5).size() == 1);
  plan.ranks[0].waits.pop_back();
  CHECK(errorsOf(plan) ==
        "lifetime: 0STEP reads buffer 4 (gradients) while 0ALL_REDUCE_G may "
        "still use it: nothing makes it wait (operation 5 of rank 0, "
        "spec.yaml:10)\n");
}

TEST_CASE("verify: copies of a stage are summed in each replica, then over "
          "them") {
  Net net = chain(2, 2, true, 1);
  net.replicas = 2;
  net.collectives = {{0}, {1}};
  auto plan = [&](const std::string &end, const std::string &other) {
    return errorsOf(buildPlan(
        net, std::vector<std::string>{"0F0 0B0 " + end, "0F1 0B1 " + other}));
  };
  const std::string exchange = "0SEND_G 0RECV_G 0ADD_G ";
  CHECK(plan(exchange + "0ALL_REDUCE_G@0 0STEP",
             "0RECV_G 0SEND_G 0ADD_G 0ALL_REDUCE_G@1 0STEP")
            .empty());
  CHECK(plan("0ALL_REDUCE_G@0 0STEP", "0ALL_REDUCE_G@1 0STEP") ==
        "missing: 0SEND_G is missing on rank 0: 2 ranks hold stage 0 "
        "(operation 0 of rank 0, spec.yaml:10)\n"
        "missing: 0ADD_G is missing on rank 0: 2 ranks hold stage 0 (operation "
        "0 of rank 0, spec.yaml:10)\n"
        "missing: 0SEND_G is missing on rank 1: 2 ranks hold stage 0 "
        "(operation 0 of rank 1, spec.yaml:10)\n"
        "missing: 0ADD_G is missing on rank 1: 2 ranks hold stage 0 (operation "
        "0 of rank 1, spec.yaml:10)\n");
  CHECK(plan(exchange + "0STEP", "0RECV_G 0SEND_G 0ADD_G 0STEP") ==
        "missing: 0ALL_REDUCE_G over replicas is missing on rank 0: 2 replicas "
        "hold stage 0 (operation 0 of rank 0, spec.yaml:10)\n"
        "missing: 0ALL_REDUCE_G over replicas is missing on rank 1: 2 replicas "
        "hold stage 0 (operation 0 of rank 1, spec.yaml:10)\n");
  // One collective over both copies and all replicas does for all.
  net.collectives = {{0, 1}};
  CHECK(plan("0ALL_REDUCE_G 0STEP", "0ALL_REDUCE_G 0STEP").empty());
}

TEST_CASE("verify: random changes of plans with replicas, as the explorer of "
          "all replicas finds them") {
  std::vector<Plan> plans;
  for (Streams streams : {Streams::One, Streams::Channel})
    for (bool split : {false, true}) {
      Net net = replicated(2, 1, 2, split ? 2 : 4);
      net.streams = streams;
      Lists lists = allForwardAllBackward(net, split);
      plans.push_back(summed(net, lists));
    }
  for (const Plan &plan : plans) {
    REQUIRE(errorsOf(plan).empty());
    REQUIRE(errorsOf(unfold(plan)).empty());
  }
  unsigned count = countFromEnvironment("SLUICE_MUTANTS", 2000);
  MutantCounts counts = checkMutants(plans, count, 20261130);
  CHECK(counts.refused > counts.accepted);
  CHECK(counts.accepted > count / 50);
  CHECK(counts.deadlocks > 10);
  if (count > 2000)
    WARN(describe(counts));
}
