// Operations of several ranks: what meets, who waits for whom, what they sum.
#include "ir/verify/Verify.h"
#include "tests/Catch.h"
#include "tests/ir/CollectiveNets.h"
#include "tests/ir/FindingsForTests.h"
#include "tests/ir/PlanBuilderForTests.h"

using namespace sluice;
using namespace sluice::testing;
using verify::FindingKind;
using verify::Result;

namespace {

std::string errorsOf(const Plan &plan) {
  return allOf(plan, verify::verifyPlan(plan).errors);
}

/// Both stages on both ranks; `tails` are what follows the computations.
Plan twoCopies(const std::vector<std::string> &tails) {
  return buildPlan(copies(2, 2, 2),
                   std::vector<std::string>{"0F0 1F0 0B0 1B0 " + tails[0],
                                            "0F1 1F1 0B1 1B1 " + tails[1]});
}

constexpr const char *kBoth = "0ALL_REDUCE_G@0 1ALL_REDUCE_G@1 0STEP 1STEP";

Plan crossing(const std::string &first, const std::string &second) {
  return buildPlan(messageAndCopies(),
                   std::vector<std::string>{
                       "0F0 0F1 2F0 2B0 " + first + " 0SEND_F1 2STEP",
                       "2F1 2B1 " + second + " 1RECV_F1 1F0 1F1 2STEP"});
}

} // namespace

TEST_CASE("verify: collectives in one order on all ranks hold") {
  Plan plan = twoCopies({kBoth, kBoth});
  Result result = verify::verifyPlan(plan);
  CHECK(allOf(plan, result.errors).empty());
  CHECK(allOf(plan, result.warnings).empty());
  CHECK(holding(result) == kAllHold);
  CHECK(result.minBuffering == 0);
}

TEST_CASE("verify: two communicators in opposite orders deadlock") {
  Plan plan = twoCopies({kBoth, "1ALL_REDUCE_G@1 0ALL_REDUCE_G@0 0STEP 1STEP"});
  Result result = verify::verifyPlan(plan);
  CHECK(allOf(plan, result.errors) ==
        "deadlock: rank 0 at 0ALL_REDUCE_G and rank 1 at 1ALL_REDUCE_G wait "
        "for each other (progress: rank): post 0ALL_REDUCE_G before "
        "1ALL_REDUCE_G, or put them in one group\n"
        "  rank 0 at 0ALL_REDUCE_G (spec.yaml:10) waits for rank 1 to reach "
        "0ALL_REDUCE_G\n"
        "  rank 1 reaches 0ALL_REDUCE_G (spec.yaml:10) only after "
        "1ALL_REDUCE_G\n"
        "  rank 1 at 1ALL_REDUCE_G (spec.yaml:11) waits for rank 0 to reach "
        "1ALL_REDUCE_G\n"
        "  rank 0 reaches 1ALL_REDUCE_G (spec.yaml:11) only after "
        "0ALL_REDUCE_G\n");
  // Each communicator is a queue of its own, and a stream.
  CHECK(holding(result) == "pair edge stream");
  CHECK(result.minBuffering == std::nullopt);
  Plan grouped = twoCopies({"( 0ALL_REDUCE_G@0 1ALL_REDUCE_G@1 ) 0STEP 1STEP",
                            "1ALL_REDUCE_G@1 0ALL_REDUCE_G@0 0STEP 1STEP"});
  CHECK(errorsOf(grouped).empty());
}

TEST_CASE(
    "verify: collectives of two groups in opposite orders are warned of") {
  const std::string turned = "( 1ALL_REDUCE_G@1 0ALL_REDUCE_G@0 ) 0STEP 1STEP";
  const std::string straight =
      "( 0ALL_REDUCE_G@0 1ALL_REDUCE_G@1 ) 0STEP 1STEP";
  Plan plan = twoCopies({straight, turned});
  Result result = verify::verifyPlan(plan);
  CHECK(allOf(plan, result.errors).empty());
  CHECK(allOf(plan, result.warnings) ==
        "deadlock: in one group rank 0 takes communicator 0 (0ALL_REDUCE_G) "
        "before communicator 1 (1ALL_REDUCE_G), rank 1 the other way round: "
        "NCCL asks for one order (operation 4 of rank 0, spec.yaml:10)\n");
  Plan same = twoCopies({straight, straight});
  CHECK(allOf(same, verify::verifyPlan(same).warnings).empty());
}

TEST_CASE("verify: on one stream opposite orders deadlock under every model") {
  Net net = copies(2, 2, 2);
  net.streams = Streams::One;
  Plan plan = buildPlan(
      net, std::vector<std::string>{
               std::string("0F0 1F0 0B0 1B0 ") + kBoth,
               "0F1 1F1 0B1 1B1 1ALL_REDUCE_G@1 0ALL_REDUCE_G@0 0STEP 1STEP"});
  CHECK(holding(verify::verifyPlan(plan)) == "");
}

TEST_CASE("verify: a collective that crosses a message deadlocks") {
  const std::string message = "0SEND_F0", reduce = "2ALL_REDUCE_G";
  const std::string receive = "1RECV_F0";
  Plan plan = crossing(message + " " + reduce, reduce + " " + receive);
  Result result = verify::verifyPlan(plan);
  CHECK(allOf(plan, result.errors) ==
        "deadlock: rank 0 at 0SEND_F0 and rank 1 at 2ALL_REDUCE_G wait for "
        "each other (progress: rank): post 2ALL_REDUCE_G before 0SEND_F0, or "
        "put them in one group\n"
        "  rank 0 at 0SEND_F0 (spec.yaml:10) waits for rank 1 to reach "
        "1RECV_F0\n"
        "  rank 1 reaches 1RECV_F0 (spec.yaml:11) only after 2ALL_REDUCE_G\n"
        "  rank 1 at 2ALL_REDUCE_G (spec.yaml:12) waits for rank 0 to reach "
        "2ALL_REDUCE_G\n"
        "  rank 0 reaches 2ALL_REDUCE_G (spec.yaml:12) only after 0SEND_F0\n");
  CHECK(holding(result) == "pair edge stream");
  // The send may end without its receive; the collective needs no buffer.
  CHECK(result.minBuffering == 1);
  CHECK(errorsOf(crossing(message + " " + reduce, receive + " " + reduce))
            .empty());
  CHECK(errorsOf(crossing("( " + message + " " + reduce + " )",
                          reduce + " " + receive))
            .empty());
  CHECK(errorsOf(crossing(message + " " + reduce,
                          "( " + reduce + " " + receive + " )"))
            .empty());
}

TEST_CASE("verify: buffers are for messages, not for collectives") {
  // Rank 1 would receive first what rank 0 sends after the collective.
  Plan plan = crossing("2ALL_REDUCE_G 0SEND_F0", "1RECV_F0 2ALL_REDUCE_G");
  Result result = verify::verifyPlan(plan);
  CHECK(has(result, FindingKind::Deadlock));
  CHECK(result.minBuffering == std::nullopt);
}

TEST_CASE("verify: three ranks wait in a circle of collectives") {
  Net net = copies(3, 6, 3);
  net.collectives = {{0, 1}, {1, 2}, {0, 2}};
  // Stage s is computed on two ranks: 0 on 0 and 1, 1 on 1 and 2, 2 on 0 and 2.
  auto computes = [](Id stage, Id from) {
    std::string text;
    for (Id k = from; k < 6; k += 2)
      text += opName(Op::Forward, stage, k) + " " +
              opName(Op::Backward, stage, k) + " ";
    return text;
  };
  std::vector<std::string> ranks = {computes(0, 0) + computes(2, 0),
                                    computes(0, 1) + computes(1, 0),
                                    computes(1, 1) + computes(2, 1)};
  Plan plan = buildPlan(
      net, std::vector<std::string>{
               ranks[0] + "0ALL_REDUCE_G@0 2ALL_REDUCE_G@2 0STEP 2STEP",
               ranks[1] + "1ALL_REDUCE_G@1 0ALL_REDUCE_G@0 0STEP 1STEP",
               ranks[2] + "2ALL_REDUCE_G@2 1ALL_REDUCE_G@1 1STEP 2STEP"});
  Result result = verify::verifyPlan(plan);
  REQUIRE(result.errors.size() == 1);
  CHECK(result.errors[0].message ==
        "rank 0 at 0ALL_REDUCE_G, rank 1 at 1ALL_REDUCE_G and rank 2 at "
        "2ALL_REDUCE_G wait in a circle (progress: rank): post 0ALL_REDUCE_G "
        "before 1ALL_REDUCE_G, or put them in one group");
  CHECK(result.errors[0].cycle.size() == 6);
}

TEST_CASE("verify: operations of a collective that differ are a mismatch") {
  Plan stages = twoCopies({kBoth, kBoth});
  for (PlanOp &op : stages.ranks[1].ops)
    if (isCollective(op.op))
      op.channel = 1 - op.channel;
  for (RankPlan &rank : stages.ranks)
    for (PlanOp &op : rank.ops)
      if (isCollective(op.op))
        op.stream = 3;
  CHECK(errorsOf(stages) ==
        "mismatch: collective operation 1 on communicator 0: 0ALL_REDUCE_G of "
        "rank 0 (operation 4) meets 1ALL_REDUCE_G of rank 1 (operation 5 of "
        "rank 1, spec.yaml:11)\n"
        "mismatch: collective operation 1 on communicator 1: 1ALL_REDUCE_G of "
        "rank 0 (operation 5) meets 0ALL_REDUCE_G of rank 1 (operation 4 of "
        "rank 1, spec.yaml:10)\n");
  CHECK(holding(verify::verifyPlan(stages)) == "");

  Plan bytes = twoCopies({kBoth, kBoth});
  for (Buffer &buffer : bytes.ranks[1].buffers)
    if (buffer.kind == BufferKind::Gradients && buffer.stage == 1)
      buffer.bytes = 20;
  CHECK(errorsOf(bytes) ==
        "mismatch: collective operation 1 on communicator 1: 1ALL_REDUCE_G of "
        "rank 0 (operation 5) sums 16 bytes, 1ALL_REDUCE_G of rank 1 20 "
        "(operation 5 of rank 1, spec.yaml:11)\n");
}

TEST_CASE("verify: a collective that a rank leaves out is a mismatch") {
  Net net = copies(2, 2, 2);
  net.collectives = {{0, 1}};
  const std::string all = "0ALL_REDUCE_G 1ALL_REDUCE_G 0STEP 1STEP";
  auto errors = [&](const std::string &other) {
    return errorsOf(
        buildPlan(net, std::vector<std::string>{"0F0 1F0 0B0 1B0 " + all,
                                                "0F1 1F1 0B1 1B1 " + other}));
  };
  CHECK(errors(all).empty());
  CHECK(errors("1ALL_REDUCE_G 0STEP 1STEP") ==
        "missing: 0ALL_REDUCE_G is missing on rank 1: 2 ranks hold stage 0 "
        "(operation 0 of rank 1, spec.yaml:10)\n"
        "mismatch: on communicator 0 rank 0 has 2 collective operations, rank "
        "1 has 1: 0ALL_REDUCE_G meets none of rank 1 (operation 4 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errors("0ALL_REDUCE_G 0STEP 1STEP") ==
        "missing: 1ALL_REDUCE_G is missing on rank 1: 2 ranks hold stage 1 "
        "(operation 0 of rank 1, spec.yaml:10)\n"
        "mismatch: on communicator 0 rank 0 has 2 collective operations, rank "
        "1 has 1: 1ALL_REDUCE_G meets none of rank 1 (operation 5 of rank 0, "
        "spec.yaml:11)\n");
}

TEST_CASE("verify: gradients are reduced over all copies, once, at the end") {
  auto errors = [](const std::string &first, const std::string &second) {
    return errorsOf(
        buildPlan(copies(2, 2, 1),
                  std::vector<std::string>{"0F0 " + first, "0F1 " + second}));
  };
  const std::string good = "0B0 0ALL_REDUCE_G 0STEP";
  const std::string other = "0B1 0ALL_REDUCE_G 0STEP";
  CHECK(errors(good, other).empty());
  CHECK(errors("0B0 0ALL_REDUCE_G 0ALL_REDUCE_G 0STEP",
               "0B1 0ALL_REDUCE_G 0ALL_REDUCE_G 0STEP") ==
        "duplicate: 0ALL_REDUCE_G stands twice on rank 0 (operation 3 of rank "
        "0, spec.yaml:10)\n"
        "duplicate: 0ALL_REDUCE_G stands twice on rank 1 (operation 3 of rank "
        "1, spec.yaml:10)\n");
  CHECK(errors("0ALL_REDUCE_G 0B0 0STEP", other) ==
        "order: 0ALL_REDUCE_G stands before any gradient of stage 0 on rank 0 "
        "(operation 1 of rank 0, spec.yaml:10)\n"
        "order: 0B0 stands after 0ALL_REDUCE_G (operation 2 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errors("0B0 0STEP 0ALL_REDUCE_G", other) ==
        "order: 0ALL_REDUCE_G stands after 0STEP (operation 3 of rank 0, "
        "spec.yaml:10)\n");
  CHECK(errors("0B0 0STEP", "0B1 0STEP") ==
        "missing: 0SEND_G is missing on rank 0: 2 ranks hold stage 0 "
        "(operation 0 of rank 0, spec.yaml:10)\n"
        "missing: 0ADD_G is missing on rank 0: 2 ranks hold stage 0 "
        "(operation 0 of rank 0, spec.yaml:10)\n"
        "missing: 0SEND_G is missing on rank 1: 2 ranks hold stage 0 "
        "(operation 0 of rank 1, spec.yaml:10)\n"
        "missing: 0ADD_G is missing on rank 1: 2 ranks hold stage 0 "
        "(operation 0 of rank 1, spec.yaml:10)\n");
}

TEST_CASE("verify: a collective over some of a stage's ranks is no sum") {
  Net net = copies(3, 3, 1);
  net.collectives = {{0, 1}, {2}};
  Plan plan =
      buildPlan(net, std::vector<std::string>{"0F0 0B0 0ALL_REDUCE_G@0 0STEP",
                                              "0F1 0B1 0ALL_REDUCE_G@0 0STEP",
                                              "0F2 0B2 0ALL_REDUCE_G@1 0STEP"});
  CHECK(errorsOf(plan) ==
        "order: 0ALL_REDUCE_G sums over 2 ranks, 3 hold stage 0 (operation 2 "
        "of rank 0, spec.yaml:10)\n"
        "order: 0ALL_REDUCE_G sums over 2 ranks, 3 hold stage 0 (operation 2 "
        "of rank 1, spec.yaml:10)\n"
        "order: 0ALL_REDUCE_G sums over 1 rank, 3 hold stage 0 (operation 2 of "
        "rank 2, spec.yaml:10)\n");
}

TEST_CASE("verify: a step waits for the collective by an event") {
  Plan plan = buildPlan(
      copies(2, 2, 1), std::vector<std::string>{"0F0 0B0 0ALL_REDUCE_G 0STEP",
                                                "0F1 0B1 0ALL_REDUCE_G 0STEP"});
  REQUIRE(plan.ranks[0].waitsOf(3).size() == 1);
  plan.ranks[0].waits.pop_back();
  CHECK(errorsOf(plan) ==
        "lifetime: 0STEP reads buffer 4 (gradients) while 0ALL_REDUCE_G may "
        "still use it: nothing makes it wait (operation 3 of rank 0, "
        "spec.yaml:10)\n");
}

TEST_CASE("verify: a collective that no plan can have is malformed") {
  const Plan good = twoCopies({kBoth, kBoth});
  auto errors = [&](auto change) {
    Plan plan = good;
    change(plan);
    return errorsOf(plan);
  };
  CHECK(errors([](Plan &p) {
          p.collectives[1].ranks = {0, 2};
        }) == "malformed: collective 1 names rank 2, but there are 2\n");
  CHECK(errors([](Plan &p) {
          p.collectives[0].ranks = {0, 1, 1};
        }) ==
        "malformed: collective 0 names rank 1 after rank 1, but ranks stand "
        "in ascending order, each once\n");
  CHECK(errors([](Plan &p) { p.collectives[0].communicator = 1; }) ==
        "malformed: collective 1 has the communicator of collective 0\n");
  CHECK(errors([](Plan &p) { p.collectives[0].ranks = {1}; }) ==
        "malformed: 0ALL_REDUCE_G takes part in collective 0, which rank 0 is "
        "not in (operation 4 of rank 0, spec.yaml:10)\n");
  CHECK(errors([](Plan &p) { p.ranks[0].ops[4].channel = 2; }) ==
        "malformed: 0ALL_REDUCE_G has collective 2, but there are 2 (operation "
        "4 of rank 0, spec.yaml:10)\n");
  CHECK(errors([](Plan &p) {
          RankPlan &rank = p.ranks[1];
          rank.operands[rank.ops[5].firstOperand].access =
              unsigned(Access::Read);
        }) == "malformed: 1ALL_REDUCE_G is a collective that does not "
              "update its buffer (operation 5 of rank 1, spec.yaml:11)\n");
  CHECK(errors([](Plan &p) {
          RankPlan &rank = p.ranks[1];
          rank.buffers[rank.operands[rank.ops[5].firstOperand].buffer].bytes =
              18;
        }) == "malformed: 1ALL_REDUCE_G sums 18 bytes, which is not a multiple "
              "of 4 (operation 5 of rank 1, spec.yaml:11)\n");
  CHECK(errors([](Plan &p) {
          p.ranks[0].ops[4].channel = p.ranks[0].ops[5].channel = 0;
        }) == "malformed: 1ALL_REDUCE_G uses communicator 0 on stream 4, rank "
              "0 uses it on stream 3 (operation 5 of rank 0, spec.yaml:11)\n");
}
