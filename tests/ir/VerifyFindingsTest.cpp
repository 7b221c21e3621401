// One plan per kind of fault, with the whole message.
#include "ir/verify/Verify.h"
#include "tests/Catch.h"
#include "tests/ir/PlanBuilderForTests.h"

using namespace sluice;
using namespace sluice::testing;
using verify::Finding;
using verify::Result;

namespace {

std::string errorsOf(const Plan &plan) {
  std::string text;
  Result result = verify::verifyPlan(plan);
  for (const Finding &finding : result.errors)
    text += std::string(verify::findingKindName(finding.kind)) + ": " +
            finding.message + "\n";
  return text;
}

Plan plainPlan(uint32_t ranks = 2, uint32_t microbatches = 2) {
  Net net = chain(ranks, microbatches);
  return buildPlan(net, withOrderedMessages(net, oneForwardOneBackward(net)));
}

/// Position of the operation of this name in the list of `rank`.
uint32_t find(const Plan &plan, Id rank, const std::string &name) {
  const std::vector<PlanOp> &ops = plan.ranks[rank].ops;
  for (uint32_t at = 0; at < ops.size(); ++at)
    if (opName(ops[at].op, ops[at].stage, ops[at].microbatch) == name)
      return at;
  throw std::invalid_argument(name);
}

PlanOp &at(Plan &plan, Id rank, const std::string &name) {
  return plan.ranks[rank].ops[find(plan, rank, name)];
}

/// Takes the waits of operation `index` away.
void dropWaits(RankPlan &rank, uint32_t index) {
  uint32_t first = rank.ops[index].firstWait;
  uint32_t end = index + 1 < rank.ops.size()
                     ? rank.ops[index + 1].firstWait
                     : static_cast<uint32_t>(rank.waits.size());
  rank.waits.erase(rank.waits.begin() + first, rank.waits.begin() + end);
  for (uint32_t later = index + 1; later < rank.ops.size(); ++later)
    rank.ops[later].firstWait -= end - first;
}

Operand &operandOf(Plan &plan, Id rank, const std::string &name,
                   BufferKind kind, Access access) {
  RankPlan &list = plan.ranks[rank];
  for (uint32_t o = at(plan, rank, name).firstOperand;; ++o)
    if (list.buffers[list.operands[o].buffer].kind == kind &&
        list.operands[o].access == unsigned(access))
      return list.operands[o];
}

} // namespace

TEST_CASE("verify: good plans of a chain have no finding") {
  for (uint32_t ranks : {1u, 2u, 3u, 5u})
    for (uint32_t microbatches : {1u, 2u, 7u})
      for (Streams streams :
           {Streams::One, Streams::Direction, Streams::Channel})
        for (bool reuse : {true, false}) {
          Net net = chain(ranks, microbatches);
          net.streams = streams;
          net.reuse = reuse;
          for (const Lists &compute :
               {oneForwardOneBackward(net), oneForwardOneBackward(net, false),
                allForwardAllBackward(net, false),
                allForwardAllBackward(net, true)})
            CHECK(errorsOf(buildPlan(net, withOrderedMessages(net, compute)))
                      .empty());
        }
}

TEST_CASE("verify: branches, skips, turns and stages without backward") {
  Net net = chain(3, 3, true, 6);
  net.rankOf = {0, 1, 2, 2, 1, 0};
  net.edges = {{0, 1, 8}, {0, 4, 16}, {1, 2, 8}, {2, 3, 8},
               {3, 4, 8}, {3, 5, 4},  {4, 5, 8}};
  net.stages[1] = testStage(1, false);
  CHECK(errorsOf(buildPlan(net, withOrderedMessages(
                                    net, allForwardAllBackward(net, false)))) ==
        "");
}

TEST_CASE("verify: a plan without microbatches or operations is complete") {
  Plan plan;
  plan.stages.resize(1);
  plan.ranks.resize(1);
  plan.ranks[0].streams = {"compute"};
  CHECK(errorsOf(plan).empty());
  plan.ranks.clear();
  CHECK(errorsOf(plan) == "malformed: the plan has no ranks\n");
}

TEST_CASE("verify: missing") {
  Net net = chain(1, 2);
  CHECK(errorsOf(buildPlan(net, std::vector<std::string>{"0F0 0B0 0STEP"})) ==
        "missing: 0F1 is missing\nmissing: 0B1 is missing\n");
  CHECK(errorsOf(buildPlan(
            net, std::vector<std::string>{"0F0 0F1 0I0 0W0 0I1 0STEP"})) ==
        "missing: 0W1 is missing\n");
  Net two = chain(2, 1);
  CHECK(errorsOf(buildPlan(
            two, std::vector<std::string>{"0F0 0SEND_F0 0RECV_B0 0B0 0STEP",
                                          "1RECV_F0 1F0 1B0 1SEND_B0"})) ==
        "missing: 1STEP is missing on rank 1\n");
}

TEST_CASE("verify: a huge count of microbatches makes no huge table") {
  Plan plan = plainPlan();
  plan.microbatches = 0x7fffffff;
  CHECK(errorsOf(plan) == "missing: 4294967294 forwards are needed, there are "
                          "18 operations\n");
}

TEST_CASE("verify: duplicate") {
  Net net = chain(1, 1);
  CHECK(errorsOf(
            buildPlan(net, std::vector<std::string>{"0F0 0B0 0STEP 0STEP"})) ==
        "duplicate: 0STEP stands twice on rank 0\n");
  CHECK(errorsOf(buildPlan(net, std::vector<std::string>{"0F0 0F0 0B0"})) ==
        "duplicate: 0F0 stands twice\n");
  std::string split =
      errorsOf(buildPlan(net, std::vector<std::string>{"0F0 0B0 0I0 0W0"}));
  CHECK(split.substr(0, split.find('\n') + 1) ==
        "duplicate: 0I0 stands beside 0B0: a backward is whole or split, not "
        "both\n");
  CHECK(split.find("0W0") == std::string::npos);
}

TEST_CASE("verify: mismatch of payload, bytes and count") {
  Plan payload = plainPlan();
  std::swap(at(payload, 1, "1RECV_F0").microbatch,
            at(payload, 1, "1RECV_F1").microbatch);
  Result result = verify::verifyPlan(payload);
  CHECK(errorsOf(payload) ==
        "mismatch: message 1 from rank 0 to rank 1: 0SEND_F0 "
        "meets 1RECV_F1\n");
  CHECK((!result.holds[0] && !result.holds[1] && !result.holds[2]));

  Plan bytes = plainPlan();
  RankPlan &receiver = bytes.ranks[1];
  receiver
      .buffers[receiver.operands[at(bytes, 1, "1RECV_F1").firstOperand].buffer]
      .bytes = 12;
  CHECK(errorsOf(bytes) ==
        "mismatch: message 2 from rank 0 to rank 1: 0SEND_F1 "
        "sends 8 bytes, 1RECV_F1 takes 12\n");

  Net net = chain(2, 1, false);
  CHECK(
      errorsOf(buildPlan(net, std::vector<std::string>{"0F0 0SEND_F0 0SEND_F0",
                                                       "1RECV_F0 1F0"})) ==
      "mismatch: from rank 0 to rank 1 there are 2 sends "
      "and 1 receive: 0SEND_F0 meets no 1RECV_F0\n");
}

TEST_CASE("verify: order: a stage spread over ranks, or after its step") {
  Net one = chain(1, 2);
  CHECK(errorsOf(buildPlan(
            one, std::vector<std::string>{"0F0 0F1 0B0 0STEP 0B1"})) ==
        "order: 0B1 stands after 0STEP\n");

  Net net = chain(2, 1, false);
  net.edges.clear();
  Plan spread = buildPlan(net, std::vector<std::string>{"0F0", "1F0"});
  spread.stages[1].backward = true;
  spread.stages[1].bytes = {};
  spread.ranks[0].ops.push_back({1, 0, kNone, kNone, 0, 2, Op::Backward, 0});
  CHECK(errorsOf(spread).find("order: 1F0 is on rank 1, the rest of stage 1, "
                              "microbatch 0 on rank 0\n") == 0);
}

TEST_CASE("verify: order: nothing makes the reader wait") {
  Plan plan = plainPlan();
  dropWaits(plan.ranks[1], find(plan, 1, "1F0"));
  CHECK(errorsOf(plan) ==
        "order: 1F0 reads buffer 0 (activation) while "
        "1RECV_F0 may still write it: nothing makes it wait\n");
}

TEST_CASE("verify: order: the wrong microbatch") {
  Net net = chain(1, 2, false, 2);
  net.rankOf = {0, 0};
  net.reuse = false;
  Plan plan = buildPlan(net, std::vector<std::string>{"0F0 0F1 1F0 1F1"});
  Operand &first =
      operandOf(plan, 0, "1F0", BufferKind::Activation, Access::Read);
  Operand &second =
      operandOf(plan, 0, "1F1", BufferKind::Activation, Access::Read);
  Id number = second.buffer;
  second.buffer = first.buffer;
  CHECK(errorsOf(plan) ==
        "order: 1F1 needs the activation of microbatch 1 from stage 0 to stage "
        "1, buffer " +
            std::to_string(first.buffer) +
            " (activation) holds the activation of microbatch 0 from stage 0 "
            "to stage 1\n");
  second.buffer = number;
  CHECK(errorsOf(plan).empty());
}

TEST_CASE("verify: order: state of another stage") {
  Net net = chain(1, 1, false, 2);
  Plan plan = buildPlan(net, std::vector<std::string>{"0F0 1F0"});
  operandOf(plan, 0, "1F0", BufferKind::Parameters, Access::Read) =
      operandOf(plan, 0, "0F0", BufferKind::Parameters, Access::Read);
  CHECK(errorsOf(plan) ==
        "order: 1F0 reads buffer 0 (parameters) of stage 0\n");
}

/// Two stages that are tied, on a rank each, with optimizer steps.
Plan tiedPlan(const std::string &endOfFirst = "0SEND_T 0RECV_T 0STEP",
              const std::string &endOfSecond = "1RECV_T 1SEND_T 1STEP") {
  Net net = chain(2, 1);
  tie(net, 0, 1);
  return buildPlan(net, std::vector<std::string>{
                            "0F0 0SEND_F0 0RECV_B0 0B0 " + endOfFirst,
                            "1RECV_F0 1F0 1B0 1SEND_B0 " + endOfSecond});
}

/// ... and on one rank, in this order.
Plan tiedPlanOfOneRank(const std::string &order) {
  Net net = chain(1, 2, /*backward=*/true, /*stages=*/2);
  tie(net, 0, 1);
  return buildPlan(net, std::vector<std::string>{order});
}

TEST_CASE("verify: tied stages take the sum of both parts") {
  CHECK(errorsOf(tiedPlan()) == "");
  const std::string both = "0F0 0F1 1F0 1F1 1B0 0B0 1B1 0B1 ";
  CHECK(errorsOf(tiedPlanOfOneRank(both + "0STEP 1STEP")) == "");
  CHECK(errorsOf(tiedPlanOfOneRank(both + "1STEP 0STEP")) == "");
  Plan apart = plainPlan(2, 1);
  for (Id s : {0u, 1u}) {
    apart.stages[s].tiedTo = 1 - s;
    apart.stages[s].bytes.tied = 8;
  }
  CHECK(errorsOf(apart) ==
        "order: 0STEP reads 0 of kind tied_gradients, not 1\n"
        "order: 1STEP reads 0 of kind tied_gradients, not 1\n");
  CHECK(errorsOf(tiedPlan("0RECV_T 0STEP", "1SEND_T 1STEP")) ==
        "lifetime: 1STEP reads buffer 8 (tied_gradients) before anything is "
        "written to it\n");
  CHECK(errorsOf(tiedPlan("0STEP 0SEND_T 0RECV_T"))
            .find("order: 0SEND_T stands after 0STEP\n") != std::string::npos);
  CHECK(errorsOf(tiedPlan("0SEND_T 0RECV_T 0RECV_T 0STEP"))
            .find("mismatch: from rank 1 to rank 0") == 0);
}

TEST_CASE("verify: gradients of a tied stage are summed before they are sent") {
  Net net = chain(2, 2);
  tie(net, 0, 1);
  Plan early = buildPlan(
      net, std::vector<std::string>{
               "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0SEND_T 0RECV_B1 0B1 "
               "0RECV_T 0STEP",
               "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1RECV_T 1B1 1SEND_B1 "
               "1SEND_T 1STEP"});
  CHECK(
      errorsOf(early) ==
      "order: 0B1 stands after 0SEND_T\n"
      "lifetime: 0B1 updates buffer 9 (gradients) while 0SEND_T may still use "
      "it: nothing makes it wait\n");
  CHECK(errorsOf(
            tiedPlanOfOneRank("0F0 0F1 1F0 1F1 1B0 0B0 1B1 1STEP 0B1 0STEP")) ==
        "order: 1STEP reads the gradients of stage 0 before 0B1 adds to "
        "them\n");
  Plan other = tiedPlanOfOneRank("0F0 0F1 1F0 1F1 1B0 0B0 1B1 0B1 0STEP 1STEP");
  other.stages[0].tiedTo = other.stages[1].tiedTo = kNone;
  other.stages[0].bytes.tied = other.stages[1].bytes.tied = 0;
  CHECK(errorsOf(other) ==
        "order: 0STEP reads buffer 13 (gradients) of stage 1\n"
        "order: 1STEP reads buffer 15 (gradients) of stage 0\n");
}

TEST_CASE("verify: a rank does not have the gradients that others compute") {
  Plan plan = plainPlan(2, 1);
  for (Id r : {0u, 1u}) {
    plan.stages[r].tiedTo = 1 - r;
    plan.stages[r].bytes.tied = 8;
    RankPlan &rank = plan.ranks[r];
    rank.buffers.push_back({rank.arenaBytes, 16, 1 - r, BufferKind::Gradients});
    rank.arenaBytes += 256;
    rank.operands.push_back(operand(static_cast<Id>(rank.buffers.size() - 1),
                                    Access::Read)); // of its STEP
  }
  CHECK(errorsOf(plan) ==
        "order: 0STEP reads the gradients of stage 1, which rank 0 does not "
        "compute\n"
        "order: 1STEP reads the gradients of stage 0, which rank 1 does not "
        "compute\n");
}

TEST_CASE("verify: the other part of a tied table is there and has its bytes") {
  Plan plan = tiedPlan();
  dropWaits(plan.ranks[0], find(plan, 0, "0STEP"));
  CHECK(errorsOf(plan) ==
        "order: 0STEP reads buffer 7 (tied_gradients) while 0RECV_T may still "
        "write it: nothing makes it wait\n");
  plan = tiedPlan();
  plan.stages[0].bytes.tied = plan.stages[1].bytes.tied = 12;
  CHECK(
      errorsOf(plan) ==
      "mismatch: message 2 from rank 0 to rank 1: 0SEND_T "
      "sends 12 bytes, 1RECV_T takes 8\n"
      "mismatch: message 2 from rank 1 to rank 0: 1SEND_T "
      "sends 12 bytes, 0RECV_T takes 8\n"
      "malformed: 0RECV_T writes 12 bytes to buffer 7 (tied_gradients), which "
      "has 8\n"
      "malformed: 1RECV_T writes 12 bytes to buffer 7 (tied_gradients), which "
      "has 8\n");
}

TEST_CASE("verify: malformed: a tie is so both ways") {
  auto after = [](auto change) {
    Plan plan = tiedPlan();
    change(plan.stages);
    return errorsOf(plan);
  };
  auto both = [](const std::string &first, const std::string &second) {
    return "malformed: stage 0 " + first + "\nmalformed: stage 1 " + second +
           "\n";
  };
  const std::string notToIt = "is tied to stage 0, which is not tied to it";
  using Stages = std::vector<Stage>;
  CHECK(after([](Stages &s) { s[1].tiedTo = 7; }) ==
        both("is tied to stage 1, which is not tied to it",
             "is tied to stage 7, but there are 2"));
  CHECK(after([](Stages &s) { s[0].tiedTo = 7; }) ==
        both("is tied to stage 7, but there are 2", notToIt));
  CHECK(after([](Stages &s) { s[0].tiedTo = 0; }) == both(notToIt, notToIt));
  CHECK(after([](Stages &s) { s[0].tiedTo = kNone; }) ==
        both("has 8 tied bytes, but is tied to no stage", notToIt));
  CHECK(after([](Stages &s) { s[1].bytes.tied = 4; }) ==
        both("is tied to stage 1 by 8 bytes, which is tied to it by 4",
             "is tied to stage 0 by 4 bytes, which is tied to it by 8"));
  CHECK(after([](Stages &s) { s[0].bytes.tied = s[1].bytes.tied = 17; }) ==
        both("is tied to stage 1 by 17 of 16 bytes of gradients",
             "is tied to stage 0 by 17 of 16 bytes of gradients"));
  CHECK(after([](Stages &s) { s[1].backward = false; }) ==
        both("is tied to stage 1, and one of the two has no backward",
             "is tied to stage 0, and one of the two has no backward"));
}

TEST_CASE("verify: order: a weight gradient before its input gradient") {
  Net net = chain(1, 1);
  CHECK(errorsOf(buildPlan(net, std::vector<std::string>{"0F0 0W0 0I0"}))
            .find("order: 0W0 stands before 0I0\n") != std::string::npos);
}

TEST_CASE("verify: lifetime: bytes given out while still in use") {
  // 0F2 takes the bytes of the activation of microbatch 0 after it was sent.
  Net net = chain(2, 3, false);
  net.streams = Streams::One;
  Plan plan = buildPlan(
      net, std::vector<std::string>{"0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2",
                                    "1RECV_F0 1F0 1RECV_F1 1F1 1RECV_F2 1F2"});
  CHECK(errorsOf(plan).empty());
  dropWaits(plan.ranks[0], find(plan, 0, "0F1"));
  CHECK(errorsOf(plan) ==
        "lifetime: 0F1 writes buffer 3 (activation) over buffer 2 (activation) "
        "while 0SEND_F0 may still use it: nothing makes it wait\n");
}

TEST_CASE("verify: lifetime: overlapping buffers, read before written") {
  Plan plan = plainPlan(1, 2);
  RankPlan &rank = plan.ranks[0];
  Id first = operandOf(plan, 0, "0F0", BufferKind::Saved, Access::Write).buffer;
  rank.buffers[first].offset = rank.buffers[0].offset;
  CHECK(errorsOf(plan) == "lifetime: 0F0 writes buffer " +
                              std::to_string(first) +
                              " (saved) over buffer 0 (parameters), which "
                              "lives for the whole run\n");

  Net net = chain(1, 2);
  net.reuse = false;
  Plan apart = buildPlan(net, std::vector<std::string>{"0F0 0F1 0B0 0B1"});
  CHECK(errorsOf(apart).empty());
  auto saved = [&](const std::string &name) {
    return operandOf(apart, 0, name, BufferKind::Saved, Access::Write).buffer;
  };
  apart.ranks[0].buffers[saved("0F1")].offset =
      apart.ranks[0].buffers[saved("0F0")].offset;
  CHECK(errorsOf(apart) == "lifetime: 0B0 reads buffer " +
                               std::to_string(saved("0F0")) +
                               " (saved) after 0F1 wrote over its bytes\n");

  Plan early = buildPlan(net, std::vector<std::string>{"0F0 0B1 0F1 0B0"});
  CHECK(errorsOf(early).find("lifetime: 0B1 reads buffer 5 (saved) before "
                             "anything is written to it\n") == 0);
}

TEST_CASE("verify: memory") {
  Plan plan = plainPlan(1, 2);
  plan.memoryLimit = plan.ranks[0].arenaBytes;
  CHECK(errorsOf(plan).empty());
  plan.memoryAllowance = 1;
  std::string arena = std::to_string(plan.ranks[0].arenaBytes);
  CHECK(errorsOf(plan) ==
        "memory: rank 0 needs an arena of " + arena +
            " bytes and 1 bytes for the device's context, the limit is " +
            arena + " bytes; the peak is at 0F0\n");
  plan.memoryAllowance = kMaxBytes;
  CHECK(errorsOf(plan).substr(0, 7) == "memory:");
}

TEST_CASE("verify: malformed") {
  auto after = [](auto change) {
    Plan plan = plainPlan();
    change(plan);
    return errorsOf(plan);
  };
  CHECK(after([](Plan &p) { at(p, 0, "0F1").stage = 7; }) ==
        "malformed: 7F1 belongs to stage 7, but there are 2\n");
  CHECK(after([](Plan &p) { at(p, 0, "0F1").microbatch = 9; }) ==
        "malformed: 0F9 belongs to microbatch 9, but there are 2\n");
  CHECK(after([](Plan &p) { at(p, 0, "0F1").stream = 9; }) ==
        "malformed: 0F1 is on stream 9, but there are 3\n");
  CHECK(after([](Plan &p) { at(p, 0, "0F1").op = static_cast<Op>(77); }) ==
        "malformed: rank 0, operation 2 is of an unknown kind 77\n");
  CHECK(after([](Plan &p) { at(p, 0, "0STEP").group = 3; }) ==
        "malformed: 0STEP is in group 3, but neither a message nor does it "
        "compute\n");
  CHECK(after([](Plan &p) { at(p, 0, "0SEND_F1").channel = 1; }) ==
        "malformed: 0SEND_F1 sends on channel 1, which leads from rank 1 to "
        "rank 0\n");
  CHECK(after([](Plan &p) { p.edges[0].to = 2; }) ==
        "malformed: the edge 0 -> 2 names stage 2, but there are 2\n");
  CHECK(after([](Plan &p) { p.edges.push_back(p.edges[0]); }) ==
        "malformed: the edge 0 -> 1 stands after the edge 0 -> 1, but edges "
        "are sorted, each given once\n");
  CHECK(after([](Plan &p) { p.ranks[0].waits[0] = 17; }) ==
        "malformed: 0SEND_F0 waits for operation 17, which does not stand "
        "before it\n");
  CHECK(after([](Plan &p) { p.ranks[0].buffers[0].bytes = ~Bytes(0); }) ==
        "malformed: rank 0, buffer 0 takes 18446744073709551615 bytes at "
        "offset 0 of an arena of " +
            std::to_string(plainPlan().ranks[0].arenaBytes) + "\n");
  CHECK(after([](Plan &p) {
          p.ranks[0].operands[at(p, 0, "0SEND_F0").firstOperand].access =
              unsigned(Access::Write);
        }) == "malformed: 0SEND_F0 is a send that does not read its buffer\n");
  CHECK(after([](Plan &p) {
          p.ranks[0].operands[at(p, 0, "0SEND_F0").firstOperand].buffer = 0;
        }) == "malformed: 0SEND_F0 must read a buffer of kind activation\n");
  CHECK(after([](Plan &p) {
          at(p, 0, "0SEND_F0").group = 0;
          at(p, 0, "0SEND_F1").group = 0;
        }) ==
        "malformed: 0SEND_F1 is in group 0, which does not stand together: "
        "operation 1 is in it too\n");
  CHECK(after([](Plan &p) { at(p, 0, "0SEND_F1").stream = 2; }) ==
        "malformed: 0SEND_F1 uses communicator 0 on stream 2, rank 0 uses it "
        "on stream 1\n");
  CHECK(
      after([](Plan &p) { p.stages[0].bytes.parameters = 99; }) ==
      "malformed: 0F0 needs 99 bytes of parameters, buffer 0 (parameters) has "
      "16\n"
      "malformed: 0F1 needs 99 bytes of parameters, buffer 0 (parameters) has "
      "16\n"
      "malformed: 0B0 needs 99 bytes of parameters, buffer 0 (parameters) has "
      "16\n"
      "malformed: 0B1 needs 99 bytes of parameters, buffer 0 (parameters) has "
      "16\n"
      "malformed: 0STEP needs 99 bytes of parameters, buffer 0 (parameters) "
      "has 16\n");
}

TEST_CASE("verify: of each kind the first hundred are told in full") {
  Plan plan = plainPlan(1, 150);
  plan.stages[0].bytes.activation = 99;
  Result result = verify::verifyPlan(plan);
  REQUIRE(result.errors.size() == 101);
  CHECK(result.errors.back().message == "and 200 more of kind malformed");
}
