#include "compiler/simulate/LowerBound.h"
#include "tests/Catch.h"
#include "tests/compiler/ReportForTests.h"

#include <cmath>
#include <random>

using namespace sluice;
using namespace sluice::tests;

namespace {

Ticks boundOf(const Job &job, Objective objective,
              std::optional<Bytes> memory = std::nullopt) {
  return lowerBound(job.graph, job.schedule, job.timing, job.network, objective,
                    memory);
}

/// p 4, m 8, F = I = W = 1; a microbatch holds 1 byte until its W.
Chain evenThirds() {
  Chain chain = evenChain(4, 8, 1, 2, 0.5);
  chain.split = true;
  for (Stage &stage : chain.stages)
    stage.bytes.activation = stage.bytes.keptForWeight = 1;
  return chain;
}

} // namespace

TEST_CASE("lower bound: reached by 1f1b where the backward cannot be split") {
  // Rank 3: its first forward can start at 3, it computes 8 x 3, and its last
  // gradient passes three more stages: 3 + 24 + 6.
  Chain chain = evenChain(4, 8, 1, 2);
  Job job(chain, oneFOneB(chain));
  CHECK(boundOf(job, Objective::Makespan) == 33 * kUnit);
  CHECK(job.timing.makespan == 33 * kUnit);
}

TEST_CASE("lower bound: one microbatch runs down the chain and back") {
  // Four forwards, four input gradients of 0.5, and rank 0's weights of 0.5.
  Chain chain = evenChain(4, 1, 1, 1, 0.5);
  chain.split = true;
  Job job(chain, naive(chain));
  CHECK(boundOf(job, Objective::Makespan) == 6 * kUnit + kUnit / 2);
  CHECK(job.timing.makespan == 6 * kUnit + kUnit / 2);
}

TEST_CASE("lower bound: one rank is its work") {
  Chain chain = evenChain(1, 5, 1, 2, 0.5);
  Job job(chain, gpipe(chain));
  CHECK(boundOf(job, Objective::Makespan) == 15 * kUnit);
  CHECK(boundOf(job, Objective::Span) == 15 * kUnit);
}

TEST_CASE("lower bound: memory for p microbatches is that of zb-h1") {
  // Its bubble is (p - 1)(F + I - W) = 3, and it is optimal there. Without a
  // limit a span needs no idle time (that is zb-h2).
  Chain chain = evenThirds();
  Job job(chain, oneFOneB(chain));
  CHECK(boundOf(job, Objective::Span, 4) == 27 * kUnit);
  CHECK(boundOf(job, Objective::Span) == 24 * kUnit);
  CHECK(boundOf(job, Objective::Makespan, 4) == 27 * kUnit);
}

TEST_CASE("lower bound: memory for one microbatch leaves only naive") {
  // Rank 0 holds each microbatch for F 1, the way down and back 6, I 1, W 1.
  Chain chain = evenThirds();
  Job job(chain, naive(chain));
  CHECK(job.timing.makespan == 72 * kUnit);
  CHECK(boundOf(job, Objective::Makespan, 1) == 72 * kUnit);
  // Less than one microbatch is no schedule at all; the bound stays defined.
  CHECK(boundOf(job, Objective::Makespan, 0) == 72 * kUnit);
}

TEST_CASE("lower bound: little memory leaves idle time at both ends") {
  // Two of four microbatches fit. Rank 0 waits 7 from its first forward to its
  // first backward, of which two forwards fill 2. After its last forward it
  // waits 6, of which the other microbatch in memory fills 2. 4 x 3 + 5 + 4.
  Chain chain = evenThirds();
  chain.microbatches = 4;
  Job job(chain, oneFOneB(chain));
  CHECK(boundOf(job, Objective::Span, 2) == 21 * kUnit);
}

TEST_CASE("lower bound: after the slowest rank come the weights of the first") {
  // Rank 1 starts at 1, computes 2 x 8 without a pause, then rank 0 does the
  // last input and weight gradients.
  Chain chain = evenChain(2, 2, 1, 2, 0.5);
  chain.split = true;
  chain.stages[1].forward = chain.stages[1].backwardInput = 4 * kUnit;
  chain.stages[1].backwardWeight = 0;
  Job job(chain, oneFOneB(chain));
  CHECK(boundOf(job, Objective::Makespan) == 19 * kUnit);
  CHECK(job.timing.makespan == 19 * kUnit);
}

TEST_CASE("lower bound: other graphs have their longest path and their work") {
  // Two forwards on rank 0 feed one on rank 1, which no chain has.
  Graph graph;
  graph.stages.resize(3);
  graph.microbatches = 1;
  graph.nodes = {{3 * kUnit, 0, 0, Op::Forward},
                 {2 * kUnit, 1, 0, Op::Forward},
                 {4 * kUnit, 2, 0, Op::Forward}};
  GraphForTests values;
  values.value(0, ValueKind::Activation, 0, {2});
  values.value(1, ValueKind::Activation, 0, {2});
  values.finish(graph);
  Schedule schedule;
  schedule.order = {0, 1, 2};
  schedule.firstOfRank = {0, 2, 3};
  Job job(graph, schedule);
  CHECK(boundOf(job, Objective::Makespan) == 7 * kUnit);
  CHECK(boundOf(job, Objective::Span) == 5 * kUnit);
  CHECK(job.timing.makespan == 9 * kUnit);
}

namespace {

/// A chain with random costs and bytes, and a random order that fits it.
struct RandomChain {
  Chain chain;
  Link link;
  Graph graph;
  Schedule schedule;

  explicit RandomChain(unsigned seed) : random(seed) {
    chain.ranks = 1 + pick(5);
    chain.microbatches = 1 + pick(8);
    chain.split = pick(2) == 0;
    chain.messageBytes = pick(3);
    link = {Ticks(pick(3)) * kUnit / 2, pick(3)};
    for (Id s = 0; s < chain.ranks; ++s) {
      Stage stage;
      stage.forward = Ticks(1 + pick(4)) * kUnit;
      stage.backwardInput = Ticks(1 + pick(4)) * kUnit;
      stage.backwardWeight = Ticks(pick(5)) * kUnit;
      stage.bytes.parameters = pick(10);
      stage.bytes.activation = pick(10);
      stage.bytes.keptForWeight = pick(10) % (stage.bytes.activation + 1);
      chain.stages.push_back(stage);
    }
    graph = chainGraph(chain);
    order();
  }

private:
  Id pick(Id below) { return static_cast<Id>(random() % below); }

  /// Picks any node that is ready, again and again.
  void order() {
    std::vector<Id> waits(graph.nodes.size(), 0), ready;
    for (Id node = 0; node < waits.size(); ++node) {
      waits[node] = static_cast<Id>(graph.inputs(node).size());
      if (waits[node] == 0)
        ready.push_back(node);
    }
    std::vector<std::vector<Id>> ranks(chain.ranks);
    while (!ready.empty()) {
      std::swap(ready[pick(static_cast<Id>(ready.size()))], ready.back());
      Id node = ready.back();
      ready.pop_back();
      ranks[graph.nodes[node].stage].push_back(node);
      auto [first, last] = graph.outputs(node);
      for (Id value = first; value < last; ++value)
        for (Id consumer : graph.consumers(value))
          if (--waits[consumer] == 0)
            ready.push_back(consumer);
    }
    schedule.firstOfRank.push_back(0);
    for (const std::vector<Id> &rank : ranks) {
      schedule.order.insert(schedule.order.end(), rank.begin(), rank.end());
      schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
    }
  }

  std::mt19937 random;
};

/// The least limit under which `job` runs: state and activations of the rank
/// that needs most.
Bytes memoryNeeded(const Job &job) {
  Report report = job.report();
  Bytes most = 0;
  for (const RankReport &rank : report.perRank) {
    const StageBytes &bytes = job.graph.stages[rank.stages[0]].bytes;
    double held = rank.peakActivation * static_cast<double>(bytes.activation);
    most = std::max(most,
                    bytes.parameters + static_cast<Bytes>(std::llround(held)));
  }
  return most;
}

} // namespace

TEST_CASE("lower bound: no order beats it") {
  for (unsigned seed = 0; seed < 400; ++seed) {
    RandomChain c(seed);
    CAPTURE(seed, c.chain.ranks, c.chain.microbatches, c.chain.split);
    std::vector<Schedule> schedules{c.schedule, naive(c.chain), gpipe(c.chain),
                                    oneFOneB(c.chain)};
    for (const Schedule &schedule : schedules) {
      Job job(c.graph, schedule, c.link);
      Bytes memory = memoryNeeded(job);
      CHECK(boundOf(job, Objective::Makespan) <= job.timing.makespan);
      CHECK(boundOf(job, Objective::Makespan, memory) <= job.timing.makespan);
      CHECK(boundOf(job, Objective::Span) <= job.timing.span);
      CHECK(boundOf(job, Objective::Span, memory) <= job.timing.span);
    }
  }
}
