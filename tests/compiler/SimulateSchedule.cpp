#include "tests/Catch.h"
#include "tests/compiler/ChainForTests.h"

#include <random>

using namespace sluice;
using namespace sluice::tests;

namespace {

ScheduleTiming timingOf(const Chain &chain, const Schedule &schedule,
                        const Network &network = {}) {
  std::optional<ScheduleTiming> timing =
      simulateSchedule(chainGraph(chain), schedule, network);
  REQUIRE(timing);
  return *timing;
}

Network uniform(Ticks latency, Bytes bandwidth = 0) {
  return Network(Link{latency, bandwidth}, Link{}, 0);
}

/// Names of the nodes in `ids`.
std::vector<std::string> namesOf(const Graph &graph,
                                 const std::vector<Id> &ids) {
  std::vector<std::string> names;
  for (Id id : ids)
    names.push_back(opName(graph.nodes[id].op, graph.nodes[id].stage,
                           graph.nodes[id].microbatch));
  return names;
}

/// A schedule of nodes 0 … on ranks, each rank in the order given.
Schedule byHand(const std::vector<std::vector<Id>> &ranks) {
  Schedule schedule;
  schedule.firstOfRank.push_back(0);
  for (const std::vector<Id> &rank : ranks) {
    schedule.order.insert(schedule.order.end(), rank.begin(), rank.end());
    schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
  }
  return schedule;
}

} // namespace

TEST_CASE("simulate: the naive order keeps one rank of four busy") {
  Chain chain = evenChain(4, 1, 1, 1);
  ScheduleTiming timing = timingOf(chain, naive(chain));
  CHECK(timing.makespan == 8 * kUnit);
  CHECK(timing.span == 8 * kUnit); // rank 0 has the first F and the last B
  // The eight operations fill the eight units one after the other.
  for (size_t i = 0; i < timing.topological.size(); ++i)
    CHECK(timing.start[timing.topological[i]] == Ticks(i) * kUnit);
}

TEST_CASE("simulate: gpipe and 1f1b have the published makespans") {
  struct Known {
    uint32_t ranks, microbatches;
    double forward, backward;
    Ticks makespan;
  };
  const Known known[] = {{4, 8, 1, 1, 22}, {4, 8, 1, 2, 33}, {8, 32, 1, 1, 78},
                         {8, 1, 1, 2, 24}, {1, 1, 1, 1, 2},  {1, 5, 1, 2, 15}};
  for (const Known &k : known) {
    Chain chain = evenChain(k.ranks, k.microbatches, k.forward, k.backward);
    CAPTURE(k.ranks, k.microbatches, k.backward);
    CHECK(timingOf(chain, gpipe(chain)).makespan == k.makespan * kUnit);
    CHECK(timingOf(chain, oneFOneB(chain)).makespan == k.makespan * kUnit);
  }
}

TEST_CASE("simulate: balanced stages take (m + p - 1)(F + B)") {
  for (uint32_t ranks : {1u, 2u, 3u, 5u, 8u})
    for (uint32_t microbatches : {1u, 2u, 3u, 8u, 21u})
      for (double backward : {0.5, 1.0, 2.0, 3.5}) {
        Chain chain = evenChain(ranks, microbatches, 1, backward);
        CAPTURE(ranks, microbatches, backward);
        auto expected = static_cast<Ticks>((microbatches + ranks - 1) *
                                           (1 + backward) * 1e6);
        CHECK(timingOf(chain, gpipe(chain)).makespan == expected);
        CHECK(timingOf(chain, oneFOneB(chain)).makespan == expected);
      }
}

TEST_CASE("simulate: latency costs 1f1b more than its eager form") {
  // Eager 1f1b hides the latency behind twice the warmup: its bubble is
  // (p - 1)(F + B + 2C). Ordinary 1f1b waits for it in every round.
  Chain chain = evenChain(4, 12, 2, 2);
  std::vector<uint32_t> eager;
  for (Id r = 0; r < 4; ++r)
    eager.push_back(2 * (3 - r));
  Network network = uniform(kUnit / 2);
  CHECK(timingOf(chain, warmupSchedule(chain, "eager", eager), network)
            .makespan == (12 * 4 + 3 * 5) * kUnit);
  CHECK(timingOf(chain, oneFOneB(chain), network).makespan >
        (12 * 4 + 3 * 5) * kUnit);
}

TEST_CASE("simulate: a link carries one message at a time") {
  // gpipe on two ranks, m = 3, F = B = 1. A message of 2 bytes occupies the
  // link for 2 and arrives 0.5 later.
  Chain chain = evenChain(2, 3, 1, 1);
  chain.messageBytes = 2;
  Graph graph = chainGraph(chain);
  Schedule schedule = gpipe(chain);
  ScheduleTiming timing = timingOf(chain, schedule, uniform(kUnit / 2, 1));
  const double expected[][2] = {{1, 3.5},  {3, 5.5},   {5, 7.5},
                                {9.5, 12}, {11.5, 14}, {13.5, 16}};
  REQUIRE(timing.messages.size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    CHECK(timing.messages[i].start == static_cast<Ticks>(expected[i][0] * 1e6));
    CHECK(timing.messages[i].end == static_cast<Ticks>(expected[i][1] * 1e6));
  }
  CHECK(timing.makespan == 17 * kUnit);
  // The path runs through the links' queues back to what first filled them.
  CHECK(namesOf(graph, criticalPath(graph, schedule, timing)) ==
        std::vector<std::string>{"0F0", "1F2", "1B0", "0B2"});
}

TEST_CASE("simulate: each rank gets a value once") {
  // Node 0 on rank 0 feeds 1 (same rank), 2 and 3 (rank 1) and 4 (rank 2).
  Graph graph;
  graph.stages.resize(5);
  graph.microbatches = 1;
  for (Id i = 0; i < 5; ++i)
    graph.nodes.push_back({kUnit, i, 0, Op::Forward});
  GraphForTests values;
  values.value(0, ValueKind::Activation, 3, {1, 2, 3, 4});
  values.finish(graph);
  auto timing = simulateSchedule(graph, byHand({{0, 1}, {2, 3}, {4}}),
                                 uniform(2 * kUnit, 1));
  REQUIRE(timing);
  REQUIRE(timing->messages.size() == 2);
  CHECK(timing->messages[0].destination == 1);
  CHECK(timing->messages[1].destination == 2);
  CHECK(timing->start ==
        std::vector<Ticks>{0, kUnit, 6 * kUnit, 7 * kUnit, 6 * kUnit});
  CHECK(timing->makespan == 8 * kUnit);
  CHECK(timing->span == 2 * kUnit);
}

TEST_CASE("simulate: orders that cannot be are refused") {
  Chain chain = evenChain(2, 1, 1, 1);
  Graph graph = chainGraph(chain);
  // 0F0, 0B0, 1F0, 1B0 are nodes 0, 1, 2, 3.
  CHECK(simulateSchedule(graph, byHand({{0, 1}, {2, 3}}), {}));
  CHECK_FALSE(simulateSchedule(graph, byHand({{1, 0}, {2, 3}}), {}));
  CHECK_FALSE(simulateSchedule(graph, byHand({{0, 1}, {2}}), {}));
  CHECK_FALSE(simulateSchedule(graph, byHand({{0, 1}, {2, 2}}), {}));
  CHECK_FALSE(simulateSchedule(graph, byHand({{0, 1}, {2, 9}}), {}));
}

TEST_CASE("simulate: nothing to do takes no time") {
  Graph graph;
  graph.finalize();
  auto timing = simulateSchedule(graph, byHand({{}, {}}), {});
  REQUIRE(timing);
  CHECK(timing->makespan == 0);
  CHECK(timing->span == 0);
  CHECK(criticalPath(graph, byHand({{}, {}}), *timing).empty());
}

namespace {

/// A random graph whose nodes are numbered at random, with a schedule that
/// fits.
struct RandomCase {
  Graph graph;
  Schedule schedule;
  Network network;

  explicit RandomCase(unsigned seed) : random(seed) {
    Id count = 1 + pick(60), ranks = 1 + pick(5);
    std::vector<Id> order(count);
    for (Id i = 0; i < count; ++i)
      order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    graph.stages.resize(count);
    graph.microbatches = 1;
    for (Id i = 0; i < count; ++i)
      graph.nodes.push_back({Ticks(pick(4)) * kUnit, i, 0, Op::Forward});
    GraphForTests values;
    for (Id i = 0; i < count; ++i)
      for (Id copies = pick(3); copies > 0; --copies)
        values.value(order[i], ValueKind::Activation, pick(3),
                     usesAfter(order, i));
    values.finish(graph);
    std::vector<std::vector<Id>> lists(ranks);
    for (Id node : order)
      lists[pick(ranks)].push_back(node);
    schedule = byHand(lists);
    network = uniform(Ticks(pick(3)) * kUnit, pick(3));
  }

private:
  Id pick(Id below) { return static_cast<Id>(random() % below); }

  std::vector<Id> usesAfter(const std::vector<Id> &order, Id position) {
    std::vector<Id> uses;
    for (Id i = position + 1; i < order.size(); ++i)
      if (pick(6) == 0)
        uses.push_back(order[i]);
    return uses;
  }

  std::mt19937 random;
};

/// Place of each node in the order given.
std::vector<size_t> placesOf(const std::vector<Id> &order) {
  std::vector<size_t> places(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    places[order[i]] = i;
  return places;
}

void checkMessages(const RandomCase &c, const ScheduleTiming &timing,
                   const std::vector<size_t> &places) {
  std::map<std::pair<Id, Id>, Ticks> freeAt;
  for (size_t i = 0; i < timing.messages.size(); ++i) {
    const Message &message = timing.messages[i];
    const Value &value = c.graph.values[message.value];
    CHECK(message.start >= timing.end[value.producer]);
    Ticks &free = freeAt[{message.source, message.destination}];
    CHECK(message.start >= free);
    // As early as the link and the producer allow.
    CHECK(message.start == std::max(free, timing.end[value.producer]));
    Link link = c.network.between(message.source, message.destination);
    free = message.start + link.occupancy(value.bytes, TimeUnit::Unit);
    CHECK(message.end == free + link.latency);
    if (i == 0)
      continue;
    const Message &before = timing.messages[i - 1];
    CHECK(before.start <= message.start);
    if (before.start == message.start)
      CHECK(places[c.graph.values[before.value].producer] <=
            places[value.producer]);
  }
}

/// When the inputs of `node` are there and its rank is free.
Ticks earliestStart(const RandomCase &c, const ScheduleTiming &timing,
                    const std::vector<size_t> &places, Id node) {
  Ticks earliest = 0;
  for (Id value : c.graph.inputs(node)) {
    Id producer = c.graph.values[value].producer;
    CHECK(places[producer] < places[node]);
    Ticks there = timing.end[producer];
    for (const Message &message : timing.messages)
      if (message.value == value && message.destination == timing.rankOf[node])
        there = message.end;
    earliest = std::max(earliest, there);
  }
  std::span<const Id> order = c.schedule.rank(timing.rankOf[node]);
  auto it = std::find(order.begin(), order.end(), node);
  if (it != order.begin()) {
    CHECK(places[*(it - 1)] < places[node]);
    earliest = std::max(earliest, timing.end[*(it - 1)]);
  }
  return earliest;
}

} // namespace

TEST_CASE("simulate: any graph starts each operation as early as can be") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    RandomCase c(seed);
    auto timing = simulateSchedule(c.graph, c.schedule, c.network);
    REQUIRE(timing);
    REQUIRE(timing->topological.size() == c.graph.nodes.size());
    std::vector<size_t> places = placesOf(timing->topological);
    checkMessages(c, *timing, places);
    for (Id node = 0; node < c.graph.nodes.size(); ++node)
      CHECK(timing->start[node] == earliestStart(c, *timing, places, node));
    for (size_t i = 1; i < timing->topological.size(); ++i)
      CHECK(timing->start[timing->topological[i - 1]] <=
            timing->start[timing->topological[i]]);
    std::vector<Id> path = criticalPath(c.graph, c.schedule, *timing);
    CHECK(timing->start[path.front()] == 0);
    CHECK(timing->end[path.back()] == timing->makespan);
  }
}

TEST_CASE("simulate: times beyond all bounds stay in range") {
  Chain chain = evenChain(2, 3, 1, 1);
  for (Stage &stage : chain.stages)
    stage.forward = kMaxTicks;
  ScheduleTiming timing = timingOf(chain, gpipe(chain), uniform(kMaxTicks));
  CHECK(timing.makespan == kMaxTicks);
}
