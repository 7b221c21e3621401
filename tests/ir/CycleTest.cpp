//===- CycleTest.cpp - The shortest cycle of a graph ---------------------===//
#include "ir/verify/Cycle.h"
#include "tests/Catch.h"

#include <algorithm>
#include <random>

using namespace sluice;
using namespace sluice::verify;

using Pairs = std::vector<std::pair<Id, Id>>;

static std::vector<Id> cycleOf(Id nodes, const Pairs &pairs) {
  return shortestCycle(Digraph::fromPairs(nodes, pairs));
}

static bool holds(const Pairs &pairs, Id from, Id to) {
  return std::find(pairs.begin(), pairs.end(), std::pair(from, to)) !=
         pairs.end();
}

/// Length of the shortest cycle by all shortest paths (Floyd and Warshall); 0
/// if there is none.
static uint32_t leastLength(Id nodes, const Pairs &pairs) {
  constexpr uint32_t kFar = 1'000'000;
  std::vector<std::vector<uint32_t>> far(nodes,
                                         std::vector<uint32_t>(nodes, kFar));
  for (auto [from, to] : pairs)
    far[from][to] = 1;
  for (Id k = 0; k < nodes; ++k)
    for (Id i = 0; i < nodes; ++i)
      for (Id j = 0; j < nodes; ++j)
        far[i][j] = std::min(far[i][j], far[i][k] + far[k][j]);
  uint32_t least = kFar;
  for (Id n = 0; n < nodes; ++n)
    least = std::min(least, far[n][n]);
  return least == kFar ? 0 : least;
}

TEST_CASE("cycle: graphs without one") {
  CHECK(cycleOf(0, {}).empty());
  CHECK(cycleOf(3, {}).empty());
  CHECK(cycleOf(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {0, 3}}).empty());
}

TEST_CASE("cycle: a node that points to itself") {
  CHECK(cycleOf(3, {{0, 1}, {1, 1}, {1, 2}}) == std::vector<Id>{1});
}

TEST_CASE("cycle: the shorter of two, whichever comes first") {
  Pairs longFirst = {{0, 1}, {1, 2}, {2, 0}, {2, 3}, {3, 4}, {4, 3}};
  CHECK(cycleOf(5, longFirst) == std::vector<Id>{3, 4});
  Pairs shortFirst = {{0, 1}, {1, 0}, {1, 2}, {2, 3}, {3, 4}, {4, 2}};
  CHECK(cycleOf(5, shortFirst) == std::vector<Id>{0, 1});
  Pairs chord = {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {2, 0}};
  CHECK(cycleOf(4, chord) == std::vector<Id>{0, 1, 2});
}

TEST_CASE("cycle: what only leads to and from a cycle is left out") {
  Pairs pairs = {{0, 1}, {1, 2}, {2, 3}, {3, 2}, {3, 4}, {4, 5}};
  CHECK(cycleOf(6, pairs) == std::vector<Id>{2, 3});
}

TEST_CASE("cycle: random graphs against all shortest paths") {
  std::mt19937 random(7);
  unsigned cyclic = 0;
  for (int round = 0; round < 3000; ++round) {
    Id nodes = 1 + random() % 12;
    Pairs pairs;
    for (uint32_t edges = random() % (2 * nodes); edges > 0; --edges)
      pairs.emplace_back(random() % nodes, random() % nodes);
    std::vector<Id> cycle = cycleOf(nodes, pairs);
    REQUIRE(cycle.size() == leastLength(nodes, pairs));
    for (size_t i = 0; i < cycle.size(); ++i)
      REQUIRE(holds(pairs, cycle[i], cycle[(i + 1) % cycle.size()]));
    cyclic += !cycle.empty();
  }
  CHECK(cyclic > 500);
  CHECK(cyclic < 2500);
}
