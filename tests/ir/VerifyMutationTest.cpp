// Small changes to good plans: the verifier must refuse them, or every
// interleaving of the changed plan must turn out harmless. Whether it hangs is
// told exactly.
#include "tests/ir/MutantCheck.h"
#include "tests/ir/PlanBuilderForTests.h"

using namespace sluice;
using namespace sluice::testing;

namespace {

std::vector<Plan> goodPlans() {
  std::vector<Plan> plans;
  for (Streams streams : {Streams::One, Streams::Direction})
    for (bool step : {true, false})
      for (auto [ranks, microbatches] :
           {std::pair(1u, 2u), std::pair(2u, 1u), std::pair(2u, 2u),
            std::pair(3u, 1u)}) {
        Net net = chain(ranks, microbatches);
        net.streams = streams;
        plans.push_back(buildPlan(
            net, withOrderedMessages(net, oneForwardOneBackward(net, step))));
        if (step)
          plans.push_back(buildPlan(
              net, withOrderedMessages(net, allForwardAllBackward(net, true))));
      }
  Net net = chain(2, 2);
  net.reuse = false;
  plans.push_back(buildPlan(
      net, std::vector<std::string>{
               "0F0 0SEND_F0 0F1 ( 0SEND_F1 0RECV_B0 ) 0B0 0RECV_B1 0B1",
               "1RECV_F0 1F0 1B0 ( 1SEND_B0 1RECV_F1 ) 1F1 1B1 1SEND_B1"}));
  Net apart = chain(2, 1);
  tie(apart, 0, 1);
  plans.push_back(
      buildPlan(apart, std::vector<std::string>{
                           "0F0 0SEND_F0 0RECV_B0 0B0 0SEND_T 0RECV_T 0STEP",
                           "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_T 1SEND_T 1STEP"}));
  Net together = chain(1, 2, /*backward=*/true, /*stages=*/2);
  tie(together, 0, 1);
  plans.push_back(buildPlan(together, allForwardAllBackward(together, true)));
  return plans;
}

} // namespace

TEST_CASE("verify: good plans run in every interleaving") {
  for (const Plan &plan : goodPlans()) {
    CHECK(verify::verifyPlan(plan).ok());
    Explored explored = Explorer(plan).explore();
    CHECK(explored.complete);
    CHECK(!explored.hangs);
    CHECK(!explored.wrongData);
  }
}

TEST_CASE("verify: the explorer sees what is wrong") {
  Net net = chain(2, 2);
  net.reuse = false;
  Plan hangs = buildPlan(
      net, std::vector<std::string>{
               "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
               "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"});
  CHECK(Explorer(hangs).explore().hangs);
  Plan races = goodPlans()[2];
  for (RankPlan &rank : races.ranks) {
    rank.waits.clear();
    for (PlanOp &op : rank.ops)
      op.firstWait = 0;
  }
  CHECK(Explorer(races).explore().wrongData);
}

TEST_CASE("verify: a value that lost some bytes keeps the others while used") {
  Net net = chain(2, 2);
  net.reuse = false;
  net.edges[0].bytes = 512;
  Plan plan = buildPlan(
      net, std::vector<std::string>{
               "0F0 0SEND_F0 0F1 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1",
               "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"});
  REQUIRE(verify::verifyPlan(plan).ok());
  RankPlan &rank = plan.ranks[1];
  auto bufferOf = [&](uint32_t at) -> Buffer & {
    return rank.buffers[rank.operandsOf(at).back().buffer];
  };
  // What 1F0 reads loses its first half to what 1B0 writes, after it on its
  // stream, and its second to what 1RECV_F1 writes, at any time.
  Bytes base = rank.arenaBytes;
  rank.arenaBytes += 1024;
  bufferOf(2).offset = base;
  bufferOf(0).offset = base + 256;
  bufferOf(4).offset = base + 512;
  CHECK(Explorer(plan).exploreCells(Queue::None).wrongData);
  verify::Result result = verify::verifyPlan(plan);
  REQUIRE(result.errors.size() == 1);
  CHECK(result.errors[0].kind == verify::FindingKind::Lifetime);
  CHECK(result.errors[0].place->index == 4);
}

TEST_CASE("verify: one cell at a time shows what the whole plan does") {
  std::mt19937 random(7);
  std::vector<Plan> plans = goodPlans();
  unsigned right = 0, wrong = 0;
  for (unsigned n = 0; n < 1500; ++n) {
    Plan plan = plans[random() % plans.size()];
    if (!mutate(plan, static_cast<Change>(n % kChangeCount), random) ||
        has(verify::verifyPlan(plan), verify::FindingKind::Malformed))
      continue;
    for (Queue queue : {Queue::Rank, Queue::None}) {
      Explorer explorer(plan);
      if (explorer.hangs(queue))
        continue;
      Explored whole = explorer.explore(queue, 20'000);
      Explored cells = explorer.exploreCells(queue);
      INFO("mutant " << n);
      CHECK(!cells.hangs);
      CHECK((cells.wrongData == whole.wrongData || !whole.complete));
      ++(cells.wrongData ? wrong : right);
    }
  }
  CHECK(right > 100);
  CHECK(wrong > 100);
}

TEST_CASE("verify: what is accepted is harmless in every interleaving") {
  unsigned count = countFromEnvironment("SLUICE_MUTANTS", 4000);
  MutantCounts counts = checkMutants(goodPlans(), count, 20240607);
  CHECK(counts.refused > counts.accepted);
  CHECK(counts.accepted > count / 50);
  CHECK(counts.deadlocks > 10);
  if (count > 4000)
    WARN(describe(counts));
}
