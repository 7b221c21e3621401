// Freedom from deadlock: progress models, groups, buffering, witnesses.
#include "ir/verify/Verify.h"
#include "tests/Catch.h"
#include "tests/ir/FindingsForTests.h"
#include "tests/ir/PlanBuilderForTests.h"

using namespace sluice;
using namespace sluice::testing;
using verify::Finding;
using verify::FindingKind;
using verify::Options;
using verify::Progress;
using verify::Result;

namespace {

/// Two ranks; with two microbatches rank 0 sends its second activation while
/// rank 1 sends its first gradient.
std::vector<std::string> bothSendFirst(const std::string &open,
                                       const std::string &close) {
  return {"0F0 0SEND_F0 0F1 " + open + "0SEND_F1 0RECV_B0" + close +
              " 0B0 0RECV_B1 0B1",
          "1RECV_F0 1F0 1B0 " + open + "1SEND_B0 1RECV_F1" + close +
              " 1F1 1B1 1SEND_B1"};
}

/// A chain of forwards only, twice around four ranks: with m >= 4 each rank
/// comes to send to the next before it receives from the last.
Net ring() {
  Net net = chain(4, 4, false, 8);
  net.streams = Streams::Direction;
  net.reuse = false;
  return net;
}

} // namespace

TEST_CASE("verify: two ranks that both send first wait for each other") {
  Net net = chain(2, 2);
  net.reuse = false;
  Plan plan = buildPlan(net, bothSendFirst("", ""));
  Result result = verify::verifyPlan(plan);
  CHECK(allOf(plan, result.errors) ==
        "deadlock: rank 0 at 0SEND_F1 and rank 1 at 1SEND_B0 wait for each "
        "other (progress: rank): post 0RECV_B0 before 0SEND_F1, or send them "
        "in one group\n"
        "  rank 0 at 0SEND_F1 (spec.yaml:10) waits for rank 1 to reach "
        "1RECV_F1\n"
        "  rank 1 reaches 1RECV_F1 (spec.yaml:11) only after 1SEND_B0\n"
        "  rank 1 at 1SEND_B0 (spec.yaml:11) waits for rank 0 to reach "
        "0RECV_B0\n"
        "  rank 0 reaches 0RECV_B0 (spec.yaml:10) only after 0SEND_F1\n");
  CHECK(holding(result) == "edge stream");
  CHECK(result.minBuffering == 1);
}

TEST_CASE("verify: what the message of a deadlock proposes helps") {
  Net net = chain(2, 2);
  net.reuse = false;
  Plan posted = buildPlan(
      net, std::vector<std::string>{
               "0F0 0SEND_F0 0F1 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1",
               "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"});
  CHECK(allOf(posted, verify::verifyPlan(posted).errors).empty());
  Plan grouped = buildPlan(net, bothSendFirst("( ", " )"));
  Result result = verify::verifyPlan(grouped);
  CHECK(allOf(grouped, result.errors).empty());
  CHECK(allOf(grouped, result.warnings) ==
        "deadlock: in one group rank 0 takes communicator 0 (0SEND_F1) before "
        "communicator 1 (0RECV_B0), rank 1 the other way round: NCCL asks for "
        "one order (operation 3 of rank 0, spec.yaml:10)\n");
  CHECK(holding(result) == kAllHold);
  CHECK(result.minBuffering == 0);
}

TEST_CASE("verify: a group on one side alone is enough") {
  Net net = chain(2, 2);
  net.reuse = false;
  Plan plan =
      buildPlan(net, std::vector<std::string>{bothSendFirst("( ", " )")[0],
                                              bothSendFirst("", "")[1]});
  CHECK(holding(verify::verifyPlan(plan)) == kAllHold);
}

TEST_CASE("verify: a ring that sends first holds under pair only") {
  Net net = ring();
  Plan plan =
      buildPlan(net, withNaiveMessages(net, allForwardAllBackward(net, false)));
  Result result = verify::verifyPlan(plan);
  CHECK(holding(result) == "pair edge stream");
  // Each of the four messages from the last rank to the first closes a circle.
  REQUIRE(result.errors.size() == 4);
  CHECK(result.errors[0].message ==
        "rank 0 at 0SEND_F3, rank 1 at 1SEND_F2, rank 2 at 2SEND_F1 and rank 3 "
        "at 3SEND_F0 wait in a circle (progress: rank): post 1RECV_F3 before "
        "1SEND_F2, or send them in one group");
  CHECK(result.errors[0].cycle.size() == 8);
  Options pair;
  pair.progress = Progress::Pair;
  CHECK(verify::verifyPlan(plan, pair).ok());
}

TEST_CASE("verify: on one stream the ring deadlocks under every model") {
  Net net = ring();
  net.streams = Streams::One;
  Plan plan =
      buildPlan(net, withNaiveMessages(net, allForwardAllBackward(net, false)));
  CHECK(holding(verify::verifyPlan(plan)) == "");
}

TEST_CASE("verify: five sends in a group meet groups of four and one") {
  Net net = chain(2, 5, false);
  net.reuse = false;
  Plan plan = buildPlan(
      net,
      std::vector<std::string>{
          "0F0 0F1 0F2 0F3 0F4 ( 0SEND_F0 0SEND_F1 0SEND_F2 0SEND_F3 0SEND_F4 "
          ")",
          "( 1RECV_F0 1RECV_F1 1RECV_F2 1RECV_F3 ) 1RECV_F4 1F0 1F1 1F2 1F3 "
          "1F4"});
  Result result = verify::verifyPlan(plan);
  CHECK(allOf(plan, result.errors).empty());
  CHECK(holding(result) == kAllHold);
  CHECK(allOf(plan, result.warnings) ==
        "mismatch: groups of different sizes meet from rank 0 to rank 1: "
        "0SEND_F4 is one of 5 sends, 1RECV_F4 one of 1 receive "
        "(operation 9 of rank 0, spec.yaml:10)\n");
}

TEST_CASE("verify: a group that needs its own receive never starts") {
  // Rank 1 would send on what it receives in the same group: 1F0 between them
  // cannot be in the group, so the send waits for the receive itself.
  Net net = chain(3, 1, false);
  Plan plan = buildPlan(
      net, std::vector<std::string>{"0F0 0SEND_F0", "( 1RECV_F0 1SEND_F0 ) 1F0",
                                    "2RECV_F0 2F0"});
  RankPlan &rank = plan.ranks[1];
  rank.waits.insert(rank.waits.begin(), 0);
  rank.ops[1].firstWait = 0;
  rank.ops[2].firstWait += 1;
  Result result = verify::verifyPlan(plan);
  REQUIRE(!result.errors.empty());
  const Finding &first = result.errors[0];
  CHECK(first.kind == FindingKind::Deadlock);
  CHECK(verify::describe(plan, first) ==
        "1SEND_F0 waits for 1RECV_F0 of its own group, which ends only as a "
        "whole (progress: rank): take 1RECV_F0 out of its group, before the "
        "group\n"
        "  rank 1 starts 1SEND_F0 (spec.yaml:11) only after the end of "
        "1RECV_F0\n"
        "  rank 1 ends 1RECV_F0 (spec.yaml:11) together with 1SEND_F0, which "
        "is in the same group");
  CHECK(holding(result) == "");
  CHECK(result.minBuffering == std::nullopt);
}

TEST_CASE("verify: a group whose receive needs what the group ends") {
  // Rank 2 computes stage 1 from the skip 0 -> 1 and stage 3 from stage 2,
  // which rank 1 computes from stage 1.
  Net net = chain(3, 1, false, 4);
  net.rankOf = {0, 2, 1, 2};
  std::vector<std::string> lists = {"0F0 0SEND_F0", "2RECV_F0 2F0 2SEND_F0",
                                    "( 1RECV_F0 3RECV_F0 ) 1F0 1SEND_F0 3F0"};
  Plan grouped = buildPlan(net, lists);
  Result result = verify::verifyPlan(grouped);
  CHECK(holding(result) == "");
  CHECK(result.minBuffering == std::nullopt);
  CHECK(allOf(grouped, result.errors) ==
        "deadlock: rank 1 at 2RECV_F0 and rank 2 at 3RECV_F0 wait for each "
        "other (progress: rank): take 3RECV_F0 out of its group, behind "
        "1SEND_F0\n"
        "  rank 1 at 2RECV_F0 (spec.yaml:12) waits for rank 2 to reach "
        "1SEND_F0\n"
        "  rank 2 reaches 1SEND_F0 (spec.yaml:11) only after 3RECV_F0\n"
        "  rank 2 at 3RECV_F0 (spec.yaml:13) waits for rank 1 to reach "
        "2SEND_F0\n"
        "  rank 1 reaches 2SEND_F0 (spec.yaml:12) only after 2RECV_F0\n");
  for (Progress progress : {Progress::Edge, Progress::Stream}) {
    std::vector<Finding> errors =
        verify::verifyPlan(grouped, {.progress = progress}).errors;
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].message.ends_with(
        "): take 3RECV_F0 out of its group, behind 1RECV_F0"));
  }
  lists[2] = "1RECV_F0 1F0 1SEND_F0 3RECV_F0 3F0";
  CHECK(verify::verifyPlan(buildPlan(net, lists)).ok());
}

TEST_CASE("verify: naive 1F1B needs one buffer, ordered 1F1B none") {
  Net net = chain(4, 8);
  net.streams = Streams::Channel;
  net.reuse = false;
  Lists compute = oneForwardOneBackward(net);
  Plan naive = buildPlan(net, withNaiveMessages(net, compute));
  Result result = verify::verifyPlan(naive);
  CHECK(holding(result) == "edge stream");
  CHECK(result.minBuffering == 1);
  // Rank r runs w = 3 - r forwards first. Then it sends forward w + j before it
  // receives backward j, which rank r + 1 sends before it receives forward
  // w + j: 5, 6 and 7 crossings between the neighbours.
  REQUIRE(result.errors.size() == 18);
  for (const Finding &finding : result.errors)
    CHECK(finding.cycle.size() == 4);
  Options buffered;
  buffered.buffered = 1;
  CHECK(verify::verifyPlan(naive, buffered).ok());
  Options edge;
  edge.progress = Progress::Edge;
  CHECK(verify::verifyPlan(naive, edge).minBuffering == 0);

  Plan ordered = buildPlan(net, withOrderedMessages(net, compute));
  CHECK(holding(verify::verifyPlan(ordered)) == kAllHold);
}

TEST_CASE("verify: the least buffering is found by doubling and bisection") {
  for (uint32_t late : {1u, 2u, 3u, 5u, 6u}) {
    // Two paths from rank 0 to rank 1: stage 0 -> 2 and stage 1 -> 3. Rank 0
    // sends `late` messages of the first path, then one of the second, which
    // rank 1 takes first: so `late` messages must lie in buffers.
    Net net;
    net.ranks = 2;
    net.microbatches = late;
    net.rankOf = {0, 0, 1, 1};
    net.edges = {{0, 2, 8}, {1, 3, 8}};
    net.reuse = false;
    for (Id s = 0; s < 4; ++s)
      net.stages.push_back(testStage(s, false));
    std::string sends, receives, computes;
    for (Id k = 0; k < late; ++k) {
      std::string number = std::to_string(k);
      sends += "0F" + number + " 1F" + number + " ";
      receives += "2RECV_F" + number + " 3RECV_F" + number + " ";
      computes += "2F" + number + " 3F" + number + " ";
    }
    Lists lists{split(sends), {}};
    for (Id k = 0; k < late; ++k)
      lists[0].push_back("0SEND_F" + std::to_string(k));
    for (Id k = 0; k < late; ++k)
      lists[0].push_back("1SEND_F" + std::to_string(k));
    for (Id k = 0; k < late; ++k)
      lists[1].push_back("3RECV_F" + std::to_string(k));
    for (Id k = 0; k < late; ++k)
      lists[1].push_back("2RECV_F" + std::to_string(k));
    for (const std::string &name : split(computes))
      lists[1].push_back(name);
    Plan plan = buildPlan(net, lists);
    // The builder puts both paths on one channel; give the second its own.
    plan.channels.push_back({1, 0, 1, 0, 0});
    for (RankPlan &rank : plan.ranks)
      for (PlanOp &op : rank.ops)
        if (isMessage(op.op) && (op.stage == 1 || op.stage == 3))
          op.channel = 1;
    Result result = verify::verifyPlan(plan);
    INFO(late);
    CHECK(holding(result) == "");
    CHECK(result.minBuffering == late);
  }
}

TEST_CASE("verify: a cycle of events and data is no matter of buffers") {
  // Each rank waits to receive before it sends.
  Net net = chain(2, 1, true, 2);
  Plan plan =
      buildPlan(net, std::vector<std::string>{"0F0 0RECV_B0 0SEND_F0 0B0",
                                              "1RECV_F0 1F0 1B0 1SEND_B0"});
  Result result = verify::verifyPlan(plan);
  REQUIRE(!result.errors.empty());
  CHECK(result.errors[0].kind == FindingKind::Deadlock);
  CHECK(holding(result) == "edge stream");
  CHECK(result.minBuffering == std::nullopt);
}
