// Faults that a text cannot express; tests/golden/text/plan-structure.ir has
// the others.

#include "ir/PlanFile.h"
#include "tests/Catch.h"
#include "tests/ir/PlanFilePlans.h"

using namespace sluice;
using namespace sluice::testing;

/// The message about rank 0 of a small plan that `change` has spoilt.
template <typename Change> static std::string faultOf(Change change) {
  Plan plan = smallPlan();
  change(plan, plan.ranks[0]);
  Status status = checkStructure(plan, 0);
  CHECK(status.ok() == (status.fault() != Fault::Input));
  return status.message();
}

/// The message about the header of a small plan that `change` has spoilt.
template <typename Change> static std::string headerFaultOf(Change change) {
  Plan plan = smallPlan();
  change(plan);
  return checkHeader(plan).message();
}

TEST_CASE("plan file: a right structure has no fault") {
  CHECK(checkHeader(smallPlan()).message() == "");
  CHECK(checkStructure(smallPlan(), 0).message() == "");
  CHECK(checkStructure(smallPlan(), 1).message() == "");
  CHECK(checkStructure(smallPlan(), 2).message() ==
        "asks for rank 2, but there are 2");
}

TEST_CASE("plan file: unknown kinds are faults") {
  CHECK(faultOf([](Plan &, RankPlan &rank) {
          rank.ops[2].op = static_cast<Op>(kOpCount);
        }) == "rank 0, operation 2 is of an unknown kind " +
                  std::to_string(kOpCount));
  CHECK(faultOf([](Plan &, RankPlan &rank) {
          rank.buffers[1].kind = static_cast<BufferKind>(99);
        }) == "rank 0, buffer 1 is of an unknown kind 99");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.operands[1].access = 3; }) ==
        "rank 0, operation 0 (0F2) uses buffer 3 in an unknown way 3");
  CHECK(headerFaultOf([](Plan &plan) {
          plan.timeUnit = static_cast<TimeUnit>(2);
        }) == "the plan has an unknown time unit 2");
}

TEST_CASE("plan file: lists that do not fit their operations are faults") {
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.ops[0].firstWait = 1; }) ==
        "rank 0, operation 0 (0F2) is the first, but its waits start at 1");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.ops[0].firstOperand = 1; }) ==
        "rank 0, operation 0 (0F2) is the first, but its operands start at 1");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.ops[2].firstWait = 14; }) ==
        "rank 0, operation 1 (0SEND_F2) has the waits from 0 to 14 of 13");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.ops[6].firstOperand = 2; }) ==
        "rank 0, operation 5 (0W2) has the operands from 10 to 2 of 33");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.ops.clear(); }) ==
        "rank 0 has waits or operands, but no operations");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.ops[15].stream = 0; }) ==
        "rank 0, operation 15 (0OFFLOAD1) is a copy on stream 0, which "
        "computes");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.ops[16].channel = 0; }) ==
        "rank 0, operation 16 (0RELOAD1) has channel 0, but is no message");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.ops[16].group = 3; }) ==
        "rank 0, operation 16 (0RELOAD1) is in group 3, but neither a message "
        "nor does it compute");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.ops[6].microbatch = 0; }) ==
        "rank 0, operation 6 (0STEP) belongs to microbatch 0, but its kind to "
        "none");
}

TEST_CASE("plan file: sizes whose sums would overflow are faults") {
  CHECK(faultOf([](Plan &, RankPlan &rank) {
          rank.buffers[7].bytes = ~Bytes(0) - 100;
        }) == "rank 0, buffer 7 takes 18446744073709551515 bytes at offset "
              "3328 of an arena of 4096");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.arenaBytes = ~Bytes(0); }) ==
        "rank 0 has an arena of 18446744073709551615 bytes, over "
        "2305843009213693952");
  CHECK(faultOf([](Plan &, RankPlan &rank) {
          rank.streams.assign(256, "x");
        }) == "rank 0 has 256 streams, not between 1 and 255");
  CHECK(headerFaultOf([](Plan &plan) { plan.stages[1].recompute = -1; }) ==
        "stage 1 has a time of -1 ticks, not between 0 and "
        "2305843009213693952");
  CHECK(headerFaultOf([](Plan &plan) {
          plan.stages[0].recomputePolicy = static_cast<RecomputePolicy>(3);
        }) == "stage 0 has an unknown recompute policy 3");
  CHECK(headerFaultOf([](Plan &plan) {
          plan.stages[1].recomputePolicy = RecomputePolicy::Selective;
        }) == "stage 1 has recompute policy selective, but no backward");
  CHECK(headerFaultOf([](Plan &plan) {
          plan.stages[0].bytes.checkpoint = ~Bytes(0);
        }) == "stage 0 has a size of 18446744073709551615 bytes, over "
              "2305843009213693952");
  CHECK(headerFaultOf([](Plan &plan) { plan.stages[1].offload = true; }) ==
        "stage 1 is offloaded, but has no backward");
  CHECK(headerFaultOf([](Plan &plan) { plan.hostLink.latency = -1; }) ==
        "the plan has a host link with a latency of -1 ticks, not between 0 "
        "and 2305843009213693952");
  CHECK(faultOf([](Plan &, RankPlan &rank) {
          rank.hostArenaBytes = ~Bytes(0);
        }) == "rank 0 has an arena of 18446744073709551615 bytes of host "
              "memory, over 2305843009213693952");
  CHECK(faultOf([](Plan &, RankPlan &rank) { rank.hostArenaBytes = 512; }) ==
        "rank 0, buffer 12 takes 400 bytes at offset 256 of an arena of 512 in "
        "host memory");
  CHECK(headerFaultOf([](Plan &plan) { plan.channels[0].latency = -5; }) ==
        "channel 0 has a latency of -5 ticks, not between 0 and "
        "2305843009213693952");
  CHECK(headerFaultOf([](Plan &plan) { plan.microbatches = 1u << 31; }) ==
        "the plan has 2147483648 microbatches, over 2147483647");
}
