// Clipping: a step has the norms of all stages, each once.
#include "tests/ir/MutantCheck.h"
#include "tests/ir/PlanBuilderForTests.h"

using namespace sluice;
using namespace sluice::testing;
using verify::Finding;

namespace {

std::string errorsOf(const Plan &plan) {
  std::string text;
  for (const Finding &finding : verify::verifyPlan(plan).errors)
    text += std::string(verify::findingKindName(finding.kind)) + ": " +
            verify::describe(plan, finding) + "\n";
  return text;
}

/// A chain whose steps clip by the norms of three tensors.
Net clipping(uint32_t ranks, uint32_t microbatches, uint32_t stages = 0) {
  Net net = chain(ranks, microbatches, true, stages);
  for (Stage &stage : net.stages)
    stage.bytes.norms = 24;
  net.collectives.emplace_back();
  for (Id r = 0; r < ranks; ++r)
    net.collectives.back().push_back(r);
  return net;
}

/// Puts the norms of each stage, and their sum, before the first step of its
/// rank.
Plan normed(const Net &net, const Lists &compute) {
  Lists lists = withOrderedMessages(net, compute);
  for (Id r = 0; r < net.ranks; ++r) {
    std::vector<std::string> list;
    bool isSummed = false;
    for (const std::string &name : lists[r]) {
      if (name.find("STEP") != std::string::npos && !isSummed) {
        for (Id s = r; s < net.stages.size(); s += net.ranks)
          list.push_back(opName(Op::NormGradients, s, kNone));
        list.push_back("0ALL_REDUCE_N@0");
        isSummed = true;
      }
      list.push_back(name);
    }
    lists[r] = list;
  }
  return buildPlan(net, lists);
}

/// Two stages that pass nothing on, each on a rank.
std::string errors(const std::string &first, const std::string &second,
                   std::vector<Id> members = {0, 1}) {
  Net net = clipping(2, 1);
  net.edges.clear();
  net.collectives = {members};
  return errorsOf(buildPlan(
      net, std::vector<std::string>{"0F0 0B0 " + first, "1F0 1B0 " + second}));
}
constexpr const char *kFirst = "0NORM 0ALL_REDUCE_N 0STEP";
constexpr const char *kSecond = "1NORM 0ALL_REDUCE_N 1STEP";

} // namespace

TEST_CASE("verify: norms of all stages, summed before every step, are right") {
  CHECK(errors(kFirst, kSecond).empty());
  for (bool tied : {false, true})
    for (uint32_t stages : {2u, 4u}) {
      Net net = clipping(2, 2, stages);
      if (tied && stages == 4) // ranks 0 and 0, without messages
        tie(net, 0, 2);
      Plan plan = normed(net, allForwardAllBackward(net, true));
      CHECK(errorsOf(plan).empty());
    }
}

TEST_CASE("verify: norms that are missing, there twice or in wrong order") {
  CHECK(errors("0ALL_REDUCE_N 0STEP", kSecond) ==
        "missing: 0NORM is missing: 0STEP clips by the norms of all stages "
        "(operation 3 of rank 0, spec.yaml:10)\n");
  CHECK(errors("0NORM 0NORM 0ALL_REDUCE_N 0STEP", kSecond) ==
        "duplicate: 0NORM stands twice on rank 0 (operation 3 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errors("0ALL_REDUCE_N 0NORM 0STEP", kSecond) ==
        "order: 0NORM stands after 0ALL_REDUCE_N (operation 3 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errors("0NORM 0STEP 0ALL_REDUCE_N", kSecond) ==
        "order: 0ALL_REDUCE_N stands after 0STEP (operation 4 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errors("0NORM 0STEP", "1NORM 1STEP") ==
        "missing: 0ALL_REDUCE_N is missing on rank 0: 0STEP clips by the norms "
        "of all stages (operation 3 of rank 0, spec.yaml:10)\n"
        "missing: 1ALL_REDUCE_N is missing on rank 1: 1STEP clips by the norms "
        "of all stages (operation 3 of rank 1, spec.yaml:11)\n");
  CHECK(errors("0NORM 0ALL_REDUCE_N 0ALL_REDUCE_N 0STEP",
               "1NORM 0ALL_REDUCE_N 0ALL_REDUCE_N 1STEP") ==
        "duplicate: 0ALL_REDUCE_N stands after 0ALL_REDUCE_N of rank 0, which "
        "sums all there is (operation 4 of rank 0, spec.yaml:10)\n"
        "duplicate: 0ALL_REDUCE_N stands after 0ALL_REDUCE_N of rank 1, which "
        "sums all there is (operation 4 of rank 1, spec.yaml:10)\n");
}

TEST_CASE("verify: norms of some ranks alone are not those of the model") {
  Net net = clipping(2, 1);
  net.edges.clear();
  net.collectives = {{0}, {1}};
  CHECK(errorsOf(buildPlan(
            net,
            std::vector<std::string>{"0F0 0B0 0NORM 0ALL_REDUCE_N@0 0STEP",
                                     "1F0 1B0 1NORM 0ALL_REDUCE_N@1 1STEP"})) ==
        "order: 0ALL_REDUCE_N sums over 1 rank, 2 take steps (operation 3 of "
        "rank 0, spec.yaml:10)\n"
        "order: 0ALL_REDUCE_N sums over 1 rank, 2 take steps (operation 3 of "
        "rank 1, spec.yaml:10)\n");
}

TEST_CASE("verify: of two copies of a stage one computes its norms") {
  Net net = clipping(2, 2, 1);
  auto both = [&](const std::string &end, const std::string &other) {
    const std::string exchange = " 0RECV_G 0ADD_G ";
    return errorsOf(buildPlan(
        net,
        std::vector<std::string>{"0F0 0B0 0SEND_G" + exchange + end,
                                 "0F1 0B1 0RECV_G 0SEND_G 0ADD_G " + other}));
  };
  const std::string sum = "0ALL_REDUCE_N 0STEP";
  CHECK(both("0NORM " + sum, sum).empty());
  CHECK(both("0NORM " + sum, "0NORM " + sum) ==
        "duplicate: 0NORM stands on rank 0 and on rank 1: the norms of both "
        "would be added (operation 5 of rank 1, spec.yaml:10)\n");
}

TEST_CASE("verify: norms without room, or of one stage's own") {
  Net net = clipping(1, 1);
  Plan good = buildPlan(
      net, std::vector<std::string>{"0F0 0B0 0NORM 0ALL_REDUCE_N 0STEP"});
  REQUIRE(errorsOf(good).empty());
  Plan plan = good;
  plan.stages[0].bytes.norms = 0;
  CHECK(errorsOf(plan) == "malformed: 0NORM computes norms, but stage 0 has "
                          "room for none (operation 2 of rank 0, "
                          "spec.yaml:10)\n");
  plan = good;
  for (Buffer &buffer : plan.ranks[0].buffers)
    if (buffer.kind == BufferKind::Norms)
      buffer.stage = 0;
  CHECK(errorsOf(plan) == "malformed: rank 0, buffer 5 belongs to stage 0, "
                          "but norms are those of a rank\n");
  plan = good;
  plan.stages[0].bytes.norms = 32;
  CHECK(errorsOf(plan).find("needs 32 bytes of norms") != std::string::npos);
}

TEST_CASE("verify: random changes of plans with norms, as the explorer finds "
          "them") {
  std::vector<Plan> plans;
  for (Streams streams : {Streams::One, Streams::Channel})
    for (bool split : {false, true}) {
      Net net = clipping(2, split ? 2 : 1, split ? 2 : 4);
      net.streams = streams;
      plans.push_back(normed(net, allForwardAllBackward(net, split)));
    }
  for (const Plan &plan : plans)
    REQUIRE(errorsOf(plan).empty());
  unsigned count = countFromEnvironment("SLUICE_MUTANTS", 2000);
  MutantCounts counts = checkMutants(plans, count, 20261201);
  CHECK(counts.refused > counts.accepted);
  CHECK(counts.accepted > count / 50);
  CHECK(counts.deadlocks > 10);
  if (count > 2000)
    WARN(describe(counts));
}
