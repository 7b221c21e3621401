// Small changes to good plans: the verifier must refuse them, or every
// interleaving of the changed plan must turn out harmless. Whether it hangs is
// told exactly.
#include "ir/verify/Verify.h"
#include "tests/Catch.h"
#include "tests/ir/Explorer.h"
#include "tests/ir/PlanBuilderForTests.h"

#include <cstdlib>
#include <random>

using namespace sluice;
using namespace sluice::testing;
using verify::FindingKind;
using verify::Result;

namespace {

/// A rank's list with each operation's waits and operands beside it, so that
/// operations can be moved.
struct LooseOp {
  PlanOp op;
  std::vector<size_t> waits; ///< original positions
  std::vector<Operand> operands;
  size_t origin;
};
using LooseList = std::vector<LooseOp>;

LooseList loosen(const RankPlan &rank) {
  LooseList list;
  for (uint32_t at = 0; at < rank.ops.size(); ++at) {
    auto waits = rank.waitsOf(at);
    auto operands = rank.operandsOf(at);
    list.push_back({rank.ops[at],
                    {waits.begin(), waits.end()},
                    {operands.begin(), operands.end()},
                    at});
  }
  return list;
}

/// Waits follow the operation that they name; where it now stands later, or
/// is gone, the wait is dropped: a list cannot say it.
void tighten(const LooseList &list, RankPlan &rank) {
  rank.ops.clear();
  rank.waits.clear();
  rank.operands.clear();
  std::map<size_t, uint32_t> now;
  for (const LooseOp &each : list) {
    PlanOp op = each.op;
    op.firstWait = static_cast<uint32_t>(rank.waits.size());
    op.firstOperand = static_cast<uint32_t>(rank.operands.size());
    for (size_t wait : each.waits)
      if (auto found = now.find(wait); found != now.end())
        rank.waits.push_back(found->second);
    rank.operands.insert(rank.operands.end(), each.operands.begin(),
                         each.operands.end());
    now.try_emplace(each.origin, static_cast<uint32_t>(rank.ops.size()));
    rank.ops.push_back(op);
  }
}

constexpr const char *kChanges[] = {"swap",
                                    "drop",
                                    "duplicate",
                                    "retarget stage",
                                    "retarget microbatch",
                                    "resize",
                                    "drop wait",
                                    "overlap",
                                    "retarget buffer",
                                    "move stream"};

/// Applies one random change; false if it changes nothing.
bool mutate(Plan &plan, unsigned kind, std::mt19937 &random) {
  auto below = [&random](size_t bound) { return random() % bound; };
  RankPlan &rank = plan.ranks[below(plan.ranks.size())];
  LooseList list = loosen(rank);
  size_t at = below(list.size());
  switch (kind) {
  case 0: {
    size_t other = below(list.size());
    if (other == at)
      return false;
    std::swap(list[at], list[other]);
    break;
  }
  case 1:
    list.erase(list.begin() + at);
    break;
  case 2:
    list.insert(list.begin() + below(list.size()), LooseOp(list[at]));
    break;
  case 3:
    list[at].op.stage = below(plan.stages.size());
    break;
  case 4:
    if (list[at].op.microbatch == kNone || plan.microbatches < 2)
      return false;
    list[at].op.microbatch = below(plan.microbatches);
    break;
  case 5: {
    Buffer &buffer = rank.buffers[below(rank.buffers.size())];
    buffer.bytes = below(2) ? buffer.bytes / 2 : buffer.bytes + 256;
    rank.arenaBytes += 256;
    return true;
  }
  case 6:
    if (list[at].waits.empty())
      return false;
    list[at].waits.erase(list[at].waits.begin() + below(list[at].waits.size()));
    break;
  case 7: {
    Buffer &buffer = rank.buffers[below(rank.buffers.size())];
    Bytes offset = rank.buffers[below(rank.buffers.size())].offset;
    if (offset == buffer.offset || offset + buffer.bytes > rank.arenaBytes)
      return false;
    buffer.offset = offset;
    return true;
  }
  case 8:
    if (list[at].operands.empty())
      return false;
    list[at].operands[below(list[at].operands.size())].buffer =
        below(rank.buffers.size());
    break;
  case 9:
    if (isMessage(list[at].op.op))
      return false;
    list[at].op.stream = below(rank.streams.size());
    break;
  }
  tighten(list, rank);
  return true;
}

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

bool has(const Result &result, FindingKind kind) {
  for (const verify::Finding &finding : result.errors)
    if (finding.kind == kind)
      return true;
  return false;
}

/// The number in the environment, for longer runs by hand.
unsigned mutantCount(unsigned standard) {
  const char *text = std::getenv("SLUICE_MUTANTS");
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10))
              : standard;
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

TEST_CASE("verify: what is accepted is harmless in every interleaving") {
  std::mt19937 random(20240607);
  std::vector<Plan> plans = goodPlans();
  unsigned mutants = 0, refused = 0, accepted = 0, deadlocks = 0;
  for (unsigned n = 0; n < mutantCount(4000); ++n) {
    unsigned kind = n % std::size(kChanges);
    const Plan &good = plans[random() % plans.size()];
    Plan plan = good;
    if (!mutate(plan, kind, random))
      continue;
    ++mutants;
    Result result = verify::verifyPlan(plan);
    INFO("mutant " << n << ": " << kChanges[kind]);
    Explorer explorer(plan);
    bool deadlock = has(result, FindingKind::Deadlock);
    deadlocks += deadlock;
    if (!has(result, FindingKind::Malformed) &&
        !has(result, FindingKind::Mismatch))
      CHECK(explorer.hangs() == deadlock);
    if (!result.ok()) {
      ++refused;
      continue;
    }
    ++accepted;
    Explored explored = explorer.explore();
    CHECK(!explorer.mismatched);
    CHECK(explored.complete);
    CHECK(!explored.hangs);
    CHECK(!explored.wrongData);
  }
  CHECK(refused > accepted);
  CHECK(deadlocks > 10);
  if (std::getenv("SLUICE_MUTANTS"))
    WARN(mutants << " mutants, " << refused << " refused, " << accepted
                 << " accepted and harmless, " << deadlocks << " deadlocks");
}
