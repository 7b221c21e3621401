//===- tests/runtime/JobTest.cpp - Plans that run to their end -----------===//
#include "runtime/Job.h"

#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/Catch.h"
#include "tests/runtime/CopiesForTests.h"
#include "tests/runtime/HookedModule.h"
#include "tests/runtime/PlanForTests.h"

#include <random>
#include <stdexcept>
#include <thread>

using namespace sluice;
using namespace sluice::runtime;
using namespace sluice::tests;

static JobOptions synthetic(uint64_t steps) {
  JobOptions options;
  options.module = sluice_synthetic_module();
  options.steps = steps;
  options.timeoutSeconds = 20;
  return options;
}

static void runWhole(const Plan &plan, const JobOptions &options,
                     JobResult &result) {
  const Status status = runJob(plan, options, result);
  INFO(status.message());
  REQUIRE(status.ok());
}

TEST_CASE("runtime: every buffer holds what its producer wrote",
          "[runtime][job]") {
  ChainOptions chain;
  chain.ranks = GENERATE(1u, 2u, 3u, 4u);
  chain.microbatches = GENERATE(1u, 2u, 3u, 8u);
  chain.gpipe = GENERATE(false, true);
  chain.split = GENERATE(false, true);
  chain.slots = GENERATE(1u, 2u);
  chain.boundary = 61; // no multiple of a word
  const Plan plan = makeChain(chain);
  JobResult result;
  runWhole(plan, synthetic(3), result);
  REQUIRE(result.arenaBytes.size() == chain.ranks);
  for (Id rank = 0; rank < chain.ranks; ++rank)
    CHECK(result.arenaBytes[rank] == plan.ranks[rank].arenaBytes);
  CHECK(result.stepSeconds.size() == 3);
  CHECK(result.firstStep == 0);
  CHECK(result.losses.empty());
}

TEST_CASE("runtime: many more ranks than cores", "[runtime][job]") {
  ChainOptions chain;
  chain.ranks = 32;
  chain.microbatches = 16;
  JobResult result;
  runWhole(makeChain(chain), synthetic(5), result);
  CHECK(result.stepSeconds.size() == 5);
}

TEST_CASE("runtime: a plan of no steps ends at once", "[runtime][job]") {
  JobResult result;
  runWhole(makeChain({}), synthetic(0), result);
  CHECK(result.stepSeconds.empty());
  CHECK_FALSE(result.lastStep);
}

TEST_CASE("runtime: random delays change nothing over 1000 runs",
          "[runtime][job]") {
  ChainOptions chain;
  chain.ranks = 3;
  chain.microbatches = 3;
  chain.slots = 1;
  WithHooks hooks({.before = [](std::string_view, Id stage,
                                const sluice_call *call, sluice_error *) {
    static thread_local std::minstd_rand random(stage + 1);
    if (call && random() % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 30));
    return 0;
  }});
  JobOptions options = synthetic(1);
  options.module = hookedModule();
  for (int run = 0; run < 1000; ++run) {
    chain.gpipe = run % 2 != 0;
    chain.split = run % 4 >= 2;
    const Plan plan = makeChain(chain);
    JobResult result;
    runWhole(plan, options, result);
  }
}

TEST_CASE("runtime: each step is told with its loss", "[runtime][job]") {
  WithHooks hooks({.loss = true});
  JobOptions options = synthetic(4);
  options.module = hookedModule();
  std::vector<StepInfo> told;
  options.onStep = [&told](const StepInfo &info) { told.push_back(info); };
  JobResult result;
  runWhole(makeChain({}), options, result);
  REQUIRE(told.size() == 4);
  for (uint64_t step = 0; step < 4; ++step) {
    CHECK(told[step].step == step);
    CHECK(told[step].steps == 4);
    CHECK(told[step].hasLoss);
    CHECK(told[step].loss == static_cast<double>(step));
    CHECK(told[step].seconds == result.stepSeconds[step]);
  }
  CHECK(result.losses == std::vector<double>{0, 1, 2, 3});
}

TEST_CASE("runtime: of very many steps the last ones are kept",
          "[runtime][job]") {
  WithHooks hooks({.loss = true});
  JobOptions options = synthetic(kMaxKeptSteps + 5);
  options.module = hookedModule();
  ChainOptions chain;
  chain.ranks = 1;
  chain.microbatches = 1;
  JobResult result;
  runWhole(makeChain(chain), options, result);
  CHECK(result.firstStep == 5);
  REQUIRE(result.losses.size() == kMaxKeptSteps);
  REQUIRE(result.stepSeconds.size() == kMaxKeptSteps);
  CHECK(result.losses.front() == 5);
  CHECK(result.losses.back() == kMaxKeptSteps + 4);
  for (const double seconds : result.stepSeconds)
    if (seconds < 0)
      FAIL("a step that ends before the one before it");
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

/// Start and end of the operations of a rank, in order of its list.
static std::vector<TimelineSpan> spansOf(const Plan &plan,
                                         const Timeline &timeline, Id rank) {
  std::vector<TimelineSpan> result;
  for (const PlanOp &op : plan.ranks[rank].ops)
    for (const TimelineSpan &span : timeline.spans)
      if (span.rank == rank && span.op == op.op && span.stage == op.stage &&
          span.microbatch == op.microbatch)
        result.push_back(span);
  return result;
}

TEST_CASE("runtime: a recorded step keeps to streams, waits and rendezvous",
          "[runtime][job]") {
  ChainOptions chain;
  chain.ranks = 3;
  chain.microbatches = 5;
  chain.split = true;
  const Plan plan = makeChain(chain);
  JobOptions options = synthetic(4);
  options.recordLastStep = true;
  JobResult result;
  runWhole(plan, options, result);
  REQUIRE(result.lastStep);
  const Timeline &timeline = *result.lastStep;
  CHECK(timeline.title == "chain, 1f1b, step 3, measured");
  CHECK(timeline.unit == TimeUnit::Seconds);
  CHECK(timeline.ranks == 3);
  std::vector<std::vector<TimelineSpan>> spans;
  for (Id rank = 0; rank < 3; ++rank) {
    const RankPlan &list = plan.ranks[rank];
    spans.push_back(spansOf(plan, timeline, rank));
    REQUIRE(spans[rank].size() == list.ops.size());
    std::vector<Ticks> streamEnd(list.streams.size(), 0);
    for (uint32_t i = 0; i < list.ops.size(); ++i) {
      const TimelineSpan &span = spans[rank][i];
      CHECK(span.start >= streamEnd[list.ops[i].stream]);
      CHECK(span.end >= span.start);
      streamEnd[list.ops[i].stream] = span.end;
      for (const uint32_t wait : list.waitsOf(i))
        CHECK(span.start >= spans[rank][wait].end);
    }
  }
  // Matched by position: no end before the other's start.
  for (Id channel = 0; channel < plan.channels.size(); ++channel) {
    std::vector<TimelineSpan> ends[2];
    for (Id rank = 0; rank < 3; ++rank)
      for (uint32_t i = 0; i < plan.ranks[rank].ops.size(); ++i)
        if (plan.ranks[rank].ops[i].channel == channel)
          ends[isSend(plan.ranks[rank].ops[i].op)].push_back(spans[rank][i]);
    REQUIRE(ends[0].size() == 5);
    REQUIRE(ends[1].size() == 5);
    for (size_t n = 0; n < 5; ++n) {
      CHECK(ends[0][n].end >= ends[1][n].start);
      CHECK(ends[1][n].end >= ends[0][n].start);
    }
  }
  const auto first = std::min_element(
      timeline.spans.begin(), timeline.spans.end(),
      [](const auto &a, const auto &b) { return a.start < b.start; });
  CHECK(first->start == 0);
}

TEST_CASE("runtime: synthetic stages take their times, and they are measured",
          "[runtime][job]") {
  ChainOptions chain;
  chain.microbatches = 3;
  chain.forward = 2'000'000'000; // 2 ms
  chain.backward = 1'000'000'000;
  JobOptions options = synthetic(5);
  options.costSteps = 2;
  JobResult result;
  runWhole(makeChain(chain), options, result);
  REQUIRE(result.costs.size() == 2);
  // At least the times of the plan: the module's contract, on any machine.
  for (const StageCosts &stage : result.costs) {
    CHECK(stage.forward >= 0.002);
    CHECK(stage.backwardInput >= 0.001);
    CHECK(stage.backwardWeight >= 0.001);
    CHECK(stage.optimizerStep >= 0);
  }
  // 1F1B of two ranks and three microbatches: (m + p - 1) pairs of 4 ms that
  // wait for each other, so no step can be shorter.
  for (const double seconds : result.stepSeconds)
    CHECK(seconds >= 0.016);
}

TEST_CASE("runtime: costs of steps that were not run are 0", "[runtime][job]") {
  ChainOptions chain;
  chain.forward = chain.backward = 1'000'000; // 1 us
  JobOptions options = synthetic(1);
  JobResult result;
  runWhole(makeChain(chain), options, result);
  CHECK(result.costs[0].forward >= 1e-6); // the module's contract
  options.costSteps = 0;
  options.recordLastStep = false;
  runWhole(makeChain(chain), options, result);
  CHECK(result.costs[0].forward == 0);
  CHECK_FALSE(result.lastStep);
}

TEST_CASE("runtime: ranks that hold one stage step with the sum of all",
          "[runtime][job]") {
  const uint32_t ranks = GENERATE(1u, 2u, 3u, 8u);
  const Bytes gradients = GENERATE(Bytes(4), Bytes(60), Bytes(100'000));
  JobResult result;
  runWhole(makeCopies(ranks, gradients), synthetic(5), result);
  CHECK(result.stepSeconds.size() == 5);
}

/// Two ranks that send to each other at once, in groups on two streams.
static Plan makeGroups() {
  testing::Net net = testing::chain(2, 2);
  net.reuse = false;
  return testing::buildPlan(
      net, std::vector<std::string>{
               "0F0 0SEND_F0 0F1 ( 0SEND_F1 0RECV_B0 ) 0B0 0RECV_B1 0B1 0STEP",
               "1RECV_F0 1F0 1B0 ( 1SEND_B0 1RECV_F1 ) 1F1 1B1 1SEND_B1 "
               "1STEP"});
}

TEST_CASE("runtime: a group on two streams holds both", "[runtime][job]") {
  const Plan plan = makeGroups();
  REQUIRE(plan.ranks[0].ops[3].stream != plan.ranks[0].ops[4].stream);
  JobOptions options = synthetic(50);
  options.recordLastStep = true;
  JobResult result;
  runWhole(plan, options, result);
  REQUIRE(result.lastStep);
  const auto spanOf = [&](Op op, Id stage, Id microbatch) {
    for (const TimelineSpan &span : result.lastStep->spans)
      if (span.op == op && span.stage == stage && span.microbatch == microbatch)
        return span;
    throw std::invalid_argument(opName(op, stage, microbatch));
  };
  // What is first on a stream of the group's comes before all of the group,
  // and what is next on it after all of it.
  const TimelineSpan sent = spanOf(Op::SendForward, 0, 0);
  const TimelineSpan groupSend = spanOf(Op::SendForward, 0, 1);
  const TimelineSpan groupReceive = spanOf(Op::RecvBackward, 0, 0);
  const TimelineSpan next = spanOf(Op::RecvBackward, 0, 1);
  CHECK(sent.end <= groupReceive.start);
  CHECK(groupSend.end <= next.start);
  CHECK(groupReceive.end <= next.start);
}
