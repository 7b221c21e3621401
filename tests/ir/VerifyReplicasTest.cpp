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

/// Cuts the optimizer of every stage into a part for each replica, and the
/// gradients too if wanted.
Net cut(Net net, bool gradients = true) {
  for (Stage &stage : net.stages) {
    stage.optimizerParts = net.replicas;
    stage.gradientParts = gradients ? net.replicas : 1;
  }
  return net;
}

/// Puts the reduction of each stage right before the first step of its rank,
/// and what gathers its parameters, where they are in parts, behind its own.
Plan summed(const Net &net, const Lists &compute) {
  Lists lists = withOrderedMessages(net, compute);
  for (Id r = 0; r < net.ranks; ++r) {
    std::vector<std::string> list;
    bool isReduced = false;
    for (const std::string &name : lists[r]) {
      bool step = name.find("STEP") != std::string::npos;
      for (Id s = r; step && !isReduced && s < net.stages.size();
           s += net.ranks)
        list.push_back(opName(net.stages[s].gradientParts > 1
                                  ? Op::ReduceScatterGradients
                                  : Op::AllReduceGradients,
                              s, kNone) +
                       "@" + std::to_string(r));
      isReduced |= step;
      list.push_back(name);
      if (step && net.stages[parseOpName(name)->stage].optimizerParts > 1)
        list.push_back(
            opName(Op::AllGatherParameters, parseOpName(name)->stage, kNone) +
            "@" + std::to_string(r));
    }
    lists[r] = list;
  }
  return buildPlan(net, lists);
}

Plan oneRank(const std::string &list, uint32_t replicas = 3) {
  return buildPlan(replicated(1, 2, replicas), std::vector<std::string>{list});
}

constexpr const char *kGood = "0F0 0B0 0F1 0B1 0ALL_REDUCE_G@0 0STEP";

/// One rank of two replicas whose optimizer is in parts.
Plan oneRankCut(const std::string &end, bool gradients = true) {
  return buildPlan(cut(replicated(1, 2, 2), gradients),
                   std::vector<std::string>{"0F0 0B0 0F1 0B1 " + end});
}

constexpr const char *kGoodCut = "0REDUCE_SCATTER_G@0 0STEP 0ALL_GATHER_P@0";

} // namespace

TEST_CASE("verify: replicas that sum every stage once hold") {
  for (uint32_t replicas : {2u, 3u}) {
    Net net = replicated(2, 2, replicas, 4);
    Plan plan = summed(net, allForwardAllBackward(net, true));
    CHECK(errorsOf(plan) == "");
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

TEST_CASE("verify: a step of one part of the parameters") {
  for (uint32_t replicas : {2u, 4u})
    for (bool gradients : {false, true}) {
      Net net = cut(replicated(2, 2, replicas, 4), gradients);
      Plan plan = summed(net, allForwardAllBackward(net, true));
      CHECK(errorsOf(plan) == "");
      CHECK(holding(verify::verifyPlan(plan)) == kAllHold);
      CHECK(errorsOf(unfold(plan)).empty());
    }
  CHECK(errorsOf(oneRankCut(kGoodCut)).empty());
  CHECK(errorsOf(oneRankCut("0ALL_REDUCE_G@0 0STEP 0ALL_GATHER_P@0", false))
            .empty());
  CHECK(errorsOf(oneRankCut("0REDUCE_SCATTER_G@0")).empty()); // and no step
}

TEST_CASE("verify: parts that are not summed, not gathered, or twice") {
  CHECK(errorsOf(oneRankCut("0REDUCE_SCATTER_G@0 0STEP")) ==
        "missing: 0ALL_GATHER_P is missing on rank 0: 0STEP changes one of 2 "
        "parts (operation 0 of rank 0, spec.yaml:10)\n");
  CHECK(errorsOf(oneRankCut("0STEP 0ALL_GATHER_P@0")) ==
        "missing: 0REDUCE_SCATTER_G over replicas is missing on rank 0: 2 "
        "replicas hold stage 0 (operation 0 of rank 0, spec.yaml:10)\n");
  CHECK(errorsOf(oneRankCut("0REDUCE_SCATTER_G@0 0REDUCE_SCATTER_G@0 0STEP "
                            "0ALL_GATHER_P@0 0ALL_GATHER_P@0")) ==
        "duplicate: 0REDUCE_SCATTER_G stands twice on rank 0 (operation 5 of "
        "rank 0, spec.yaml:10)\n"
        "duplicate: 0ALL_GATHER_P stands twice on rank 0 (operation 8 of rank "
        "0, spec.yaml:10)\n");
  CHECK(errorsOf(oneRankCut("0ALL_REDUCE_G@0 0REDUCE_SCATTER_G@0 0STEP "
                            "0ALL_GATHER_P@0")) ==
        "order: 0REDUCE_SCATTER_G stands after 0ALL_REDUCE_G (operation 5 of "
        "rank 0, spec.yaml:10)\n");
}

TEST_CASE("verify: parts in the wrong order") {
  CHECK(errorsOf(oneRankCut("0REDUCE_SCATTER_G@0 0ALL_GATHER_P@0 0STEP")) ==
        "order: 0STEP stands after 0ALL_GATHER_P (operation 6 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errorsOf(oneRankCut("0STEP 0REDUCE_SCATTER_G@0 0ALL_GATHER_P@0")) ==
        "order: 0REDUCE_SCATTER_G stands after 0STEP (operation 5 of rank 0, "
        "spec.yaml:10)\n");
}

TEST_CASE("verify: parts where all is needed, and all where a part is") {
  CHECK(errorsOf(oneRankCut("0ALL_REDUCE_G@0 0STEP 0ALL_GATHER_P@0")) ==
        "malformed: 0ALL_REDUCE_G does not cut the gradients of stage 0 into "
        "parts, but 0STEP changes one of 2 parts (operation 4 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errorsOf(oneRankCut(kGoodCut, false)) ==
        "malformed: 0REDUCE_SCATTER_G cuts the gradients of stage 0 into "
        "parts, but they are needed whole (operation 4 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errorsOf(oneRank(std::string(kGood) + " 0ALL_GATHER_P@0")) ==
        "malformed: 0ALL_GATHER_P cuts the parameters of stage 0 into parts, "
        "but 0STEP changes all of its parameters (operation 6 of rank 0, "
        "spec.yaml:10)\n");
  Plan plan = oneRankCut(kGoodCut);
  plan.stages[0].optimizerParts = plan.stages[0].gradientParts = 4;
  CHECK(errorsOf(plan) ==
        "malformed: 0REDUCE_SCATTER_G cuts into 2 parts, one for each of its "
        "ranks, but 0STEP changes one of 4 parts (operation 4 of rank 0, "
        "spec.yaml:10)\n"
        "malformed: 0ALL_GATHER_P cuts into 2 parts, one for each of its "
        "ranks, but 0STEP changes one of 4 parts (operation 6 of rank 0, "
        "spec.yaml:10)\n");
}

TEST_CASE("verify: parts that a stage cannot have") {
  auto told = [](auto change) {
    Net net = cut(replicated(2, 1, 2));
    Plan plan = summed(net, allForwardAllBackward(net, false));
    change(plan.stages);
    return errorsOf(plan);
  };
  using Stages = std::vector<Stage>;
  CHECK(told([](Stages &stages) { stages[1].gradientParts = 4; }) ==
        "malformed: stage 1 has 2 parts of its optimizer and 4 of its "
        "gradients\n");
  CHECK(told([](Stages &stages) { stages[1].optimizerParts = 0; }) ==
        "malformed: stage 1 has 0 parts of its optimizer and 2 of its "
        "gradients\n");
  CHECK(told([](Stages &stages) { stages[1].bytes.parameters = 15; }) ==
        "malformed: stage 1 has its optimizer in 2 parts, but 15 bytes of "
        "parameters\n");
  CHECK(told([](Stages &stages) { stages[1].bytes.gradients = 12; }) ==
        "malformed: stage 1 has its optimizer in 2 parts, but 12 bytes of "
        "gradients, of 4 each\n");
  CHECK(told([](Stages &stages) { stages[1].bytes.norms = 8; }) ==
        "malformed: stage 1 has its optimizer in 2 parts, but their norms are "
        "computed of whole gradients\n");
  CHECK(told([](Stages &stages) {
          stages[0].tiedTo = 1;
          stages[1].tiedTo = 0;
        }) == "malformed: stage 0 has its optimizer in 2 parts, but its "
              "gradients are needed whole by stage 1, which it is tied to\n"
              "malformed: stage 1 has its optimizer in 2 parts, but its "
              "gradients are needed whole by stage 0, which it is tied to\n");
}

TEST_CASE("verify: what is gathered waits for the step of it") {
  Plan plan = oneRankCut(kGoodCut);
  REQUIRE(!plan.ranks[0].waitsOf(6).empty());
  plan.ranks[0].waits.resize(plan.ranks[0].ops[6].firstWait);
  CHECK(errorsOf(plan) ==
        "lifetime: 0ALL_GATHER_P updates buffer 0 (parameters) while 0STEP may "
        "still use it: nothing makes it wait (operation 6 of rank 0, "
        "spec.yaml:10)\n");
}

TEST_CASE("verify: copies that scatter their sums gather from the same ranks") {
  Net net = chain(2, 2, true, 1);
  net.replicas = 2;
  net.collectives = {{0, 1}, {0}, {1}};
  auto plan = [&](uint32_t parts, const std::string &gather,
                  const std::string &other) {
    net.stages[0].optimizerParts = net.stages[0].gradientParts = parts;
    return errorsOf(
        buildPlan(net, std::vector<std::string>{
                           "0F0 0B0 0REDUCE_SCATTER_G@0 0STEP " + gather,
                           "0F1 0B1 0REDUCE_SCATTER_G@0 0STEP " + other}));
  };
  CHECK(plan(4, "0ALL_GATHER_P@0", "0ALL_GATHER_P@0").empty());
  const std::string wrong = plan(4, "0ALL_GATHER_P@1", "0ALL_GATHER_P@2");
  CHECK(wrong.find("order: 0ALL_GATHER_P gathers from other ranks than "
                   "0REDUCE_SCATTER_G sums over (operation 4 of rank 0, "
                   "spec.yaml:10)\n") != std::string::npos);
  CHECK(plan(4, "0ALL_GATHER_P@0", "").find("mismatch: ") != std::string::npos);
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
      plans.push_back(summed(cut(net), lists));
      plans.push_back(summed(cut(net, false), lists));
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
