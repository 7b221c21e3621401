#include "compiler/simulate/Measure.h"
#include "tests/Catch.h"
#include "tests/compiler/ChainForTests.h"

using namespace sluice;
using namespace sluice::tests;

namespace {

Network uniform(Ticks latency, Bytes bandwidth = 0) {
  return Network(Link{latency, bandwidth}, Link{}, 0);
}

Plan planOf(const Chain &chain, const Schedule &schedule,
            const Network &network) {
  Graph graph = chainGraph(chain);
  auto timing = simulateSchedule(graph, schedule, network);
  REQUIRE(timing);
  return PlanForTests(graph, schedule, *timing, network).lower();
}

/// A plan of operations written down one by one; each F takes one unit.
class SmallPlan {
public:
  explicit SmallPlan(Id ranks) {
    plan.ranks.resize(ranks);
    plan.microbatches = 100;
    plan.stages.resize(ranks);
    for (Stage &stage : plan.stages)
      stage.forward = kUnit;
    for (RankPlan &rank : plan.ranks) {
      rank.streams = {"compute", "a", "b", "c"};
      rank.buffers.push_back({0, 3, kNone, BufferKind::Activation});
    }
  }

  Id channel(Id source, Id destination, Ticks latency, Bytes bandwidth) {
    plan.channels.push_back({static_cast<Id>(plan.channels.size()), source,
                             destination, latency, bandwidth});
    return static_cast<Id>(plan.channels.size() - 1);
  }

  /// Adds an operation; those of one group share `group`.
  SmallPlan &add(Id rank, Op op, uint8_t stream, Id channel = kNone,
                 std::vector<uint32_t> waits = {}, Id group = kNone) {
    RankPlan &list = plan.ranks[rank];
    list.ops.push_back({rank, static_cast<Id>(list.ops.size()), channel, group,
                        static_cast<uint32_t>(list.waits.size()),
                        static_cast<uint32_t>(list.operands.size()), op,
                        stream});
    list.waits.insert(list.waits.end(), waits.begin(), waits.end());
    if (isCommunication(op))
      list.operands.push_back(operand(0, isSend(op)      ? Access::Read
                                         : isReceive(op) ? Access::Write
                                                         : Access::Update));
    return *this;
  }

  Plan plan;
};

std::vector<Ticks> units(std::vector<double> values) {
  std::vector<Ticks> ticks;
  for (double value : values)
    ticks.push_back(static_cast<Ticks>(value * 1e6));
  return ticks;
}

} // namespace

TEST_CASE("simulate: a plan takes as long as its schedule where messages are "
          "free") {
  for (uint32_t ranks : {1u, 2u, 3u, 4u, 7u})
    for (uint32_t microbatches : {1u, 2u, 5u, 8u, 16u})
      for (bool split : {false, true}) {
        Chain chain = evenChain(ranks, microbatches, 1, 2, split ? 0.5 : 0);
        chain.split = split;
        chain.stages[ranks / 2].forward += kUnit / 2;
        for (const Schedule &schedule :
             {naive(chain), gpipe(chain), oneFOneB(chain)}) {
          CAPTURE(ranks, microbatches, split, schedule.name);
          auto timing = simulateSchedule(chainGraph(chain), schedule, {});
          auto planned = simulatePlan(planOf(chain, schedule, {}));
          REQUIRE(planned);
          CHECK(planned->makespan == timing->makespan);
        }
      }
}

TEST_CASE("simulate: in a plan a message waits for both its ends") {
  // The receive is posted at once, the send after an F; then F uses it. The
  // message of 3 bytes occupies the link for 3 and arrives 0.5 later.
  SmallPlan small(2);
  Id channel = small.channel(0, 1, kUnit / 2, 1);
  small.add(0, Op::Forward, 0)
      .add(0, Op::SendForward, 1, channel, {0})
      .add(1, Op::RecvForward, 1, channel)
      .add(1, Op::Forward, 0, kNone, {0});
  auto timing = simulatePlan(small.plan);
  REQUIRE(timing);
  CHECK(timing->start[0] == units({0, 1}));
  CHECK(timing->end[0] == units({1, 4}));
  CHECK(timing->start[1] == units({1, 4.5}));
  CHECK(timing->end[1] == units({4.5, 5.5}));
  CHECK(timing->makespan == units({5.5})[0]);
}

TEST_CASE("simulate: channels of the same two ranks share their link") {
  // Both messages are ready at 0 on streams of their own; the third goes the
  // other way and has a link of its own.
  SmallPlan small(2);
  Id one = small.channel(0, 1, 0, 1), two = small.channel(0, 1, 0, 1),
     back = small.channel(1, 0, 0, 1);
  small.add(0, Op::SendForward, 1, one)
      .add(0, Op::SendForward, 2, two)
      .add(0, Op::RecvBackward, 3, back)
      .add(1, Op::RecvForward, 1, one)
      .add(1, Op::RecvForward, 2, two)
      .add(1, Op::SendBackward, 3, back);
  auto timing = simulatePlan(small.plan);
  REQUIRE(timing);
  CHECK(timing->start[0] == units({0, 3, 0}));
  CHECK(timing->end[0] == units({3, 6, 3}));
  CHECK(timing->end[1] == units({3, 6, 3}));
}

TEST_CASE("simulate: a link goes to the message that is ready first") {
  // Of two channels the second asks first: the first one's send waits for an F.
  SmallPlan small(2);
  Id one = small.channel(0, 1, 0, 1), two = small.channel(0, 1, 0, 1);
  small.add(0, Op::Forward, 0)
      .add(0, Op::SendForward, 1, one, {0})
      .add(0, Op::SendForward, 2, two)
      .add(1, Op::RecvForward, 1, one)
      .add(1, Op::RecvForward, 2, two);
  auto timing = simulatePlan(small.plan);
  REQUIRE(timing);
  CHECK(timing->start[0] == units({0, 3, 0}));
  CHECK(timing->end[0] == units({1, 6, 3}));
}

TEST_CASE("simulate: a group starts and ends as one") {
  // Each rank sends and receives in one group: an exchange that would hang
  // outside of one. Rank 0's group waits for its F; the later message to rank
  // 1 takes 3 and arrives 1 after that; both groups end then.
  SmallPlan small(2);
  Id there = small.channel(0, 1, kUnit, 1), back = small.channel(1, 0, 0, 0);
  small.add(0, Op::Forward, 0)
      .add(0, Op::SendForward, 1, there, {0}, 7)
      .add(0, Op::RecvBackward, 1, back, {}, 7)
      .add(0, Op::Forward, 0, kNone, {2})
      .add(1, Op::SendBackward, 1, back, {}, 7)
      .add(1, Op::RecvForward, 1, there, {}, 7)
      .add(1, Op::Forward, 0, kNone, {0});
  auto timing = simulatePlan(small.plan);
  REQUIRE(timing);
  CHECK(timing->start[0] == units({0, 1, 1, 4}));
  CHECK(timing->end[0] == units({1, 4, 4, 5}));
  CHECK(timing->start[1] == units({1, 1, 5}));
  CHECK(timing->end[1] == units({5, 5, 6}));
}

TEST_CASE("simulate: a plan that hangs has no timing") {
  auto exchange = [](Op firstOfOne, Op secondOfOne) {
    SmallPlan small(2);
    Id there = small.channel(0, 1, 0, 0), back = small.channel(1, 0, 0, 0);
    small.add(0, Op::SendForward, 1, there).add(0, Op::RecvBackward, 1, back);
    for (Op op : {firstOfOne, secondOfOne})
      small.add(1, op, 1, op == Op::RecvForward ? there : back);
    return simulatePlan(small.plan).has_value();
  };
  CHECK(exchange(Op::RecvForward, Op::SendBackward));
  CHECK_FALSE(exchange(Op::SendBackward, Op::RecvForward));

  SmallPlan lonely(2);
  Id channel = lonely.channel(0, 1, 0, 0);
  lonely.add(0, Op::SendForward, 1, channel);
  CHECK_FALSE(simulatePlan(lonely.plan));

  // A group whose send needs its own receive.
  SmallPlan relay(1);
  Id self = relay.channel(0, 0, 0, 0);
  relay.add(0, Op::RecvForward, 1, self, {}, 1)
      .add(0, Op::SendForward, 1, self, {0}, 1);
  CHECK_FALSE(simulatePlan(relay.plan));
}

TEST_CASE("simulate: measured costs replace those of the plan") {
  // gpipe on two ranks, m = 2: rank 1 starts after 1 ms, computes 2 x 2 ms and
  // 2 x (1 + 2) ms, then rank 0 its last backward (0.5 + 0.5) and its step 3.
  Chain chain = evenChain(2, 2, 1, 1);
  Plan plan = planOf(chain, gpipe(chain), uniform(kUnit));
  for (Id r = 0; r < 2; ++r)
    plan.ranks[r].ops.push_back(
        {r, kNone, kNone, kNone,
         static_cast<uint32_t>(plan.ranks[r].waits.size()),
         static_cast<uint32_t>(plan.ranks[r].operands.size()),
         Op::OptimizerStep, kComputeStream});
  MeasuredCosts measured{.forward = {0.001, 0.002},
                         .recompute = {0, 0},
                         .backwardInput = {0.0005, 0.001},
                         .backwardWeight = {0.0005, 0.002},
                         .step = {0.003, 0.001}};
  auto timing = predictTiming(plan, measured);
  REQUIRE(timing);
  CHECK(formatTime(timing->makespan, TimeUnit::Seconds) == "15 ms");

  measured.step.pop_back();
  CHECK_FALSE(predictTiming(plan, measured));
}

TEST_CASE("simulate: timelines show compute and the messages that take time") {
  Chain chain = evenChain(2, 1, 1, 1);
  Graph graph = chainGraph(chain);
  Schedule schedule = naive(chain);
  auto shown = [&](Ticks latency) {
    auto timing = simulateSchedule(graph, schedule, uniform(latency));
    std::vector<std::string> lines;
    for (const TimelineSpan &span : timelineOf(graph, schedule, *timing).spans)
      lines.push_back(std::to_string(span.rank) + "/" +
                      std::to_string(span.stream) + " " +
                      opName(span.op, span.stage, span.microbatch) + " " +
                      formatTime(span.start, TimeUnit::Unit) + "-" +
                      formatTime(span.end, TimeUnit::Unit));
    return lines;
  };
  CHECK(shown(0) == std::vector<std::string>{"0/0 0F0 0-1", "0/0 0B0 3-4",
                                             "1/0 1F0 1-2", "1/0 1B0 2-3"});
  CHECK(shown(kUnit) ==
        std::vector<std::string>{"0/0 0F0 0-1", "0/1 0SEND_F0 1-2",
                                 "0/1 0RECV_B0 4-5", "0/0 0B0 5-6",
                                 "1/1 1RECV_F0 1-2", "1/0 1F0 2-3",
                                 "1/0 1B0 3-4", "1/1 1SEND_B0 4-5"});
}

TEST_CASE("simulate: a time too short for four decimals is shown whole") {
  CHECK(formatTime(22, TimeUnit::Unit) == "0.000022");
  CHECK(formatTime(9'999, TimeUnit::Unit) == "0.009999");
  CHECK(formatTime(10'049, TimeUnit::Unit) == "0.01");
  CHECK(formatTime(1'234'567, TimeUnit::Unit) == "1.2346");
  CHECK(formatTime(0, TimeUnit::Unit) == "0");
  CHECK(formatTime(1, TimeUnit::Seconds) == "0.001 ns");
}

TEST_CASE("simulate: a collective waits for all its ranks and ends for all") {
  SmallPlan small(3);
  // In a ring of three each passes 4 pieces on, of 6 of the 16 bytes: each
  // takes 0.5 and 6/8.
  small.plan.collectives = {{0, {0, 1, 2}, kUnit / 2, 8}};
  for (Id rank = 0; rank < 3; ++rank) {
    small.plan.ranks[rank].buffers[0].bytes = 16;
    for (Id forward = 0; forward <= rank; ++forward)
      small.add(rank, Op::Forward, 0);
    small.add(rank, Op::AllReduceGradients, 1, 0, {rank});
    small.add(rank, Op::Forward, 0, kNone, {rank + 1});
  }
  auto timing = simulatePlan(small.plan);
  REQUIRE(timing);
  CHECK(timing->start[0] == units({0, 3, 8}));
  CHECK(timing->end[0] == units({1, 8, 9}));
  CHECK(timing->start[2] == units({0, 1, 2, 3, 8}));
  CHECK(timing->end[2] == units({1, 2, 3, 8, 9}));
  CHECK(timing->makespan == 9 * kUnit);
  PlanCosts free = costsOf(small.plan);
  free.freeMessages = true;
  CHECK(simulatePlan(small.plan, free)->makespan == 4 * kUnit);
}

TEST_CASE("simulate: a collective over replicas is a ring of all of them") {
  SmallPlan small(1);
  // As above, the ring of three: 4 pieces of 0.5 and 6/8.
  small.plan.replicas = 3;
  small.plan.collectives = {{0, {0}, kUnit / 2, 8, /*overReplicas=*/true}};
  small.plan.ranks[0].buffers[0].bytes = 16;
  small.add(0, Op::Forward, 0);
  small.add(0, Op::AllReduceGradients, 1, 0, {0});
  CHECK(simulatePlan(small.plan)->makespan == 6 * kUnit);
}

TEST_CASE("simulate: scattered sums and a gather take half an all-reduce "
          "each") {
  // Two pieces of 8 bytes, each 0.5 and 1, of what the stage has.
  SmallPlan small(1);
  small.plan.replicas = 3;
  small.plan.collectives = {{0, {0}, kUnit / 2, 8, /*overReplicas=*/true}};
  for (auto [op, bytes] :
       {std::pair(Op::ReduceScatterGradients, &StageBytes::gradients),
        std::pair(Op::AllGatherParameters, &StageBytes::parameters)}) {
    SmallPlan one = small;
    one.plan.stages[0].bytes.*bytes = 24;
    one.add(0, op, 1, 0, {});
    CHECK(simulatePlan(one.plan)->makespan == 3 * kUnit);
  }
}

TEST_CASE("simulate: a collective of one rank, or of a long ring") {
  SmallPlan one(1);
  one.plan.collectives = {{0, {0}, kUnit, 1}};
  one.add(0, Op::AllReduceGradients, 1, 0);
  CHECK(simulatePlan(one.plan)->makespan == 0);
  SmallPlan two(2);
  two.plan.collectives = {{0, {0, 1}, kMaxTicks, 1}};
  for (Id rank = 0; rank < 2; ++rank)
    two.add(rank, Op::AllReduceGradients, 1, 0);
  CHECK(simulatePlan(two.plan)->makespan == kMaxTicks);
}

TEST_CASE("simulate: collectives in opposite orders deadlock, in groups not") {
  for (Id group : {kNone, Id(0)}) {
    SmallPlan small(2);
    small.plan.collectives = {{0, {0, 1}}, {1, {0, 1}}};
    for (Id rank = 0; rank < 2; ++rank) {
      small.add(rank, Op::Forward, 0);
      for (Id turn : {rank, 1 - rank})
        small.add(rank, Op::AllReduceGradients, 1, turn, {0},
                  rank == 0 ? group : kNone);
    }
    auto timing = simulatePlan(small.plan);
    CHECK(timing.has_value() == (group != kNone));
    if (timing)
      CHECK(timing->makespan == kUnit);
  }
}
