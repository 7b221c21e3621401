// Jobs whose ranks wait for what never comes.
#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/ir/PlanBuilderForTests.h"
#include "tests/runtime/EndingForTests.h"
#include "tests/runtime/PlanForTests.h"

using namespace sluice;
using namespace sluice::runtime;
using namespace sluice::tests;

/// Two ranks that both send before they receive: a deadlock by rendezvous.
static Plan bothSendFirst() {
  Plan plan;
  plan.source = "both.yaml";
  plan.microbatches = 1;
  plan.stages.resize(2);
  plan.stages[0].location.line = 4;
  plan.stages[1].location.line = 5;
  plan.channels = {{0, 0, 1, 0, 0}, {0, 1, 0, 0, 0}};
  plan.ranks.resize(2);
  for (Id r = 0; r < 2; ++r) {
    ListBuilder list(plan.ranks[r]);
    const Id out = list.buffer(BufferKind::Activation, r, 64);
    const Id in = list.buffer(BufferKind::Activation, r, 64);
    const uint32_t forward = list.add(Op::Forward, r, 0, {}, {});
    const uint32_t send =
        list.add(r == 0 ? Op::SendForward : Op::SendBackward, r, 0, {forward},
                 {operand(out, Access::Read)}, r);
    const uint32_t receive =
        list.add(r == 0 ? Op::RecvBackward : Op::RecvForward, r, 0, {send},
                 {operand(in, Access::Write)}, 1 - r);
    list.add(Op::Backward, r, 0, {receive}, {});
  }
  return plan;
}

TEST_CASE("runtime: two ranks that both send first end with the table",
          "[runtime][failure]") {
  const Ending ending =
      runToFailure(bothSendFirst(), sluice_synthetic_module());
  CHECK(ending.status.fault() == Fault::Environment);
  CHECK(ending.status.message() ==
        "rank 0 has made no progress for 0.5 s at 0SEND_F0 (both.yaml:4) of "
        "step 0: it waits for rank 1 to reach 1RECV_F0");
  CHECK(ending.table ==
        "rank step stands at line since waits for\n"
        "0 0 0SEND_F0 both.yaml:4 T rank 1 to reach 1RECV_F0\n"
        "1 0 1SEND_B0 both.yaml:5 T rank 0 to reach 0RECV_B0\n");
  CHECK(ending.tables == 1);
  checkTimeout(ending);
}

TEST_CASE("runtime: a receive that nothing matches is told",
          "[runtime][failure]") {
  Plan plan = bothSendFirst();
  // Rank 1 loses its receive and the backward behind it.
  plan.ranks[1].ops.resize(2);
  plan.ranks[1].waits.resize(1);
  plan.ranks[1].operands.resize(1);
  const Ending ending = runToFailure(plan, sluice_synthetic_module());
  CHECK(ending.table ==
        "rank step stands at line since waits for\n"
        "0 0 0SEND_F0 both.yaml:4 T rank 1, which has nothing to match\n"
        "1 0 1SEND_B0 both.yaml:5 T rank 0 to reach 0RECV_B0\n");
}

/// Copies of two stages on two ranks, which sum the gradients of one and of the
/// other first.
static Plan oppositeSums() {
  testing::Net net = testing::chain(2, 2, true, 2);
  net.edges.clear();
  net.streams = testing::Streams::One;
  net.collectives = {{0, 1}, {0, 1}};
  return testing::buildPlan(
      net, std::vector<std::string>{
               "0F0 1F0 0B0 1B0 0ALL_REDUCE_G@0 1ALL_REDUCE_G@1 0STEP 1STEP",
               "0F1 1F1 0B1 1B1 1ALL_REDUCE_G@1 0ALL_REDUCE_G@0 0STEP 1STEP"});
}

TEST_CASE("runtime: collectives in opposite orders end with the table",
          "[runtime][failure]") {
  const Ending ending = runToFailure(oppositeSums(), sluice_synthetic_module());
  CHECK(ending.status.fault() == Fault::Environment);
  CHECK(ending.status.message() ==
        "rank 0 has made no progress for 0.5 s at 0ALL_REDUCE_G (spec.yaml:10) "
        "of step 0: it waits for rank 1 to reach 0ALL_REDUCE_G");
  CHECK(ending.table ==
        "rank step stands at line since waits for\n"
        "0 0 0ALL_REDUCE_G spec.yaml:10 T rank 1 to reach 0ALL_REDUCE_G\n"
        "1 0 1ALL_REDUCE_G spec.yaml:11 T rank 0 to reach 1ALL_REDUCE_G\n");
  checkTimeout(ending);
}

TEST_CASE("runtime: what a group on two streams waits for is told",
          "[runtime][failure]") {
  testing::Net net = testing::chain(2, 2);
  net.reuse = false;
  // Rank 1 would send before it joins the group that rank 0 stands in.
  const Plan plan = testing::buildPlan(
      net, std::vector<std::string>{
               "0F0 0SEND_F0 0F1 ( 0SEND_F1 0RECV_B0 ) 0B0 0RECV_B1 0B1",
               "1RECV_F0 1F0 1B0 1RECV_F1 1F1 1B1 ( 1SEND_B1 1SEND_B0 )"});
  Plan stuck = plan;
  RankPlan &rank = stuck.ranks[1];
  rank.ops.resize(3); // it receives and computes, and that is all
  rank.waits.resize(plan.ranks[1].ops[3].firstWait);
  rank.operands.resize(plan.ranks[1].ops[3].firstOperand);
  const Ending ending = runToFailure(stuck, sluice_synthetic_module());
  CHECK(ending.table.find("0 0 0SEND_F1 spec.yaml:10 T rank 1, which has "
                          "nothing to match\n") != std::string::npos);
}

TEST_CASE("runtime: sizes that differ end the job", "[runtime][failure]") {
  Plan plan = makeChain({.ranks = 2, .microbatches = 1});
  for (Buffer &buffer : plan.ranks[1].buffers)
    if (buffer.kind == BufferKind::Activation)
      buffer.bytes = 32;
  const Ending ending = runToFailure(plan, sluice_synthetic_module(), 20);
  CHECK(ending.status.fault() == Fault::Environment);
  const std::string message = ending.status.message();
  // Whoever comes second notices.
  const bool sender = message ==
                      "rank 0 failed at 0SEND_F0 (chain.yaml:10) of step 0: a "
                      "message of 64 bytes meets a receive of 32 bytes";
  const bool receiver =
      message == "rank 1 failed at 1RECV_F0 (chain.yaml:11) of step 0: a "
                 "message of 64 bytes meets a receive of 32 bytes";
  INFO(message);
  CHECK((sender || receiver));
}
