// Random operations of several ranks, against the explorer.
#include "tests/ir/CollectiveNets.h"
#include "tests/ir/FindingsForTests.h"
#include "tests/ir/MutantCheck.h"
#include "tests/ir/PlanBuilderForTests.h"

using namespace sluice;
using namespace sluice::testing;
using verify::FindingKind;
using verify::Result;

namespace {

/// Copies of stages 4 to 6 on ranks of their own choice, the first two by one
/// collective, and values both ways between ranks 0 and 1.
class RandomPlan {
public:
  RandomPlan(std::mt19937 &numbers, uint32_t count)
      : random(numbers), ranks(count) {}

  Plan make() {
    net.ranks = ranks;
    net.microbatches = ranks;
    net.streams = static_cast<Streams>(random() % 3);
    net.rankOf = {0, 1, 1, 0};
    net.edges = {{0, 1, 8}, {2, 3, 8}};
    for (Id s = 0; s < 4; ++s)
      net.stages.push_back(testStage(s, false));
    before.resize(ranks);
    between.resize(ranks);
    after.resize(ranks);
    for (Id c = 0; c < 2; ++c)
      addCollective(c);
    for (Id k = 0; k < net.microbatches; ++k)
      addMessages(k);
    Lists lists;
    for (Id r = 0; r < ranks; ++r)
      lists.push_back(listOf(r));
    return buildPlan(net, lists);
  }

private:
  void addCollective(Id number) {
    std::vector<Id> members;
    for (Id r = 0; r < ranks; ++r)
      members.push_back(r);
    if (ranks > 2 && random() % 2 == 0)
      members.erase(members.begin() + random() % ranks);
    net.collectives.push_back(members);
    for (Id copy = 0; copy < 2 - number; ++copy) {
      auto stage = static_cast<Id>(net.stages.size());
      net.stages.push_back(testStage(stage, true));
      net.rankOf.push_back(0);
      for (Id k = 0; k < net.microbatches; ++k)
        for (Op op : {Op::Forward, Op::Backward})
          before[members[k % members.size()]].push_back(opName(op, stage, k));
      for (Id r : members)
        between[r].push_back(opName(Op::AllReduceGradients, stage, kNone) +
                             "@" + std::to_string(number));
    }
  }

  void addMessages(Id k) {
    for (auto [from, to] : {std::pair(Id(0), Id(1)), std::pair(Id(2), Id(3))}) {
      before[net.rankOf[from]].push_back(opName(Op::Forward, from, k));
      between[net.rankOf[from]].push_back(opName(Op::SendForward, from, k));
      between[net.rankOf[to]].push_back(opName(Op::RecvForward, to, k));
      after[net.rankOf[to]].push_back(opName(Op::Forward, to, k));
    }
  }

  /// What communicates in a random order, but that of each path is kept.
  std::vector<std::string> listOf(Id r) {
    auto pathOf = [](const std::string &name) {
      size_t mark = name.find('@');
      return mark == std::string::npos ? name.substr(0, name.size() - 1)
                                       : name.substr(mark);
    };
    std::map<std::string, std::vector<std::string>> paths;
    std::vector<std::string> turns;
    for (const std::string &name : between[r]) {
      paths[pathOf(name)].push_back(name);
      turns.push_back(pathOf(name));
    }
    std::shuffle(turns.begin(), turns.end(), random);
    std::vector<std::string> list = before[r];
    size_t open = 0;
    for (const std::string &path : turns) {
      if (open == 0 && random() % 4 == 0) {
        list.push_back("(");
        open = 2 + random() % 2;
      }
      list.push_back(paths[path].front());
      paths[path].erase(paths[path].begin());
      if (open != 0 && --open == 0)
        list.push_back(")");
    }
    if (open != 0)
      list.push_back(")");
    list.insert(list.end(), after[r].begin(), after[r].end());
    return list;
  }

  std::mt19937 &random;
  uint32_t ranks;
  Net net;
  Lists before, between, after; ///< per rank
};

} // namespace

TEST_CASE("verify: random orders of collectives, as the explorer finds them") {
  std::mt19937 random(20260701);
  std::map<std::string, unsigned> models;
  unsigned buffered = 0;
  for (unsigned n = 0; n < countFromEnvironment("SLUICE_ORDERS", 1500); ++n) {
    Plan plan = RandomPlan(random, 2 + n % 2).make();
    INFO("plan " << n);
    Result result = verify::verifyPlan(plan);
    REQUIRE(!has(result, FindingKind::Mismatch));
    REQUIRE(!has(result, FindingKind::Malformed));
    Explorer explorer(plan);
    REQUIRE(!explorer.mismatched);
    checkHangs(explorer, result);
    CHECK(has(result, FindingKind::Deadlock) == !result.holds[0]);
    ++models[holding(result)];
    buffered += result.minBuffering.value_or(0) != 0;
  }
  // Each model parts some from the next stricter one.
  CHECK(models[kAllHold] > 10);
  CHECK(models["pair edge stream"] > 10);
  CHECK(models["edge stream"] > 10);
  CHECK(models[""] > 10);
  CHECK(buffered > 10);
}

TEST_CASE("verify: random changes of plans with collectives") {
  std::vector<Plan> plans;
  for (Streams streams : {Streams::One, Streams::Channel}) {
    for (auto [ranks, stages] :
         {std::pair(2u, 1u), std::pair(2u, 2u), std::pair(3u, 1u)}) {
      Net net = copies(ranks, ranks, stages);
      net.streams = streams;
      std::vector<std::string> lists(ranks);
      for (Id r = 0; r < ranks; ++r) {
        std::string end;
        for (Id s = 0; s < stages; ++s) {
          lists[r] += opName(Op::Forward, s, r) + " " +
                      opName(Op::BackwardInput, s, r) + " " +
                      opName(Op::BackwardWeight, s, r) + " ";
          end += " " + opName(Op::OptimizerStep, s, kNone);
        }
        for (Id s = 0; s < stages; ++s)
          lists[r] += opName(Op::AllReduceGradients, s, kNone) + "@" +
                      std::to_string(s) + " ";
        lists[r] += end;
      }
      plans.push_back(buildPlan(net, lists));
    }
    Net net = messageAndCopies();
    net.streams = streams;
    plans.push_back(buildPlan(
        net, std::vector<std::string>{
                 "0F0 0F1 2F0 2B0 0SEND_F0 ( 2ALL_REDUCE_G 0SEND_F1 ) 2STEP",
                 "2F1 2B1 1RECV_F0 1F0 2ALL_REDUCE_G 1RECV_F1 1F1 2STEP"}));
  }
  for (const Plan &plan : plans) {
    REQUIRE(verify::verifyPlan(plan).ok());
    Explored explored = Explorer(plan).explore();
    CHECK((explored.complete && !explored.hangs && !explored.wrongData));
  }
  unsigned count = countFromEnvironment("SLUICE_MUTANTS", 4000);
  MutantCounts counts = checkMutants(plans, count, 20260702);
  CHECK(counts.refused > counts.accepted);
  CHECK(counts.accepted > count / 50);
  CHECK(counts.deadlocks > 10);
  if (count > 4000)
    WARN(describe(counts));
}
