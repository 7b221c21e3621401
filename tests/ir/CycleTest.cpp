//===- tests/ir/CycleTest.cpp - The shortest cycle of a graph -------------===//
#include "ir/verify/Cycle.h"
#include "tests/Catch.h"

#include <algorithm>
#include <random>

using namespace sluice;
using namespace sluice::verify;

using Pairs = std::vector<std::pair<Id, Id>>;

static std::vector<std::vector<Id>> cyclesOf(Id nodes, const Pairs &pairs) {
  uint64_t effort = kCycleEffort;
  return shortestCycles(Digraph::fromPairs(nodes, pairs), effort);
}

/// The first, empty if there is none.
static std::vector<Id> cycleOf(Id nodes, const Pairs &pairs) {
  std::vector<std::vector<Id>> cycles = cyclesOf(nodes, pairs);
  return cycles.empty() ? std::vector<Id>() : cycles.front();
}

static bool holds(const Pairs &pairs, Id from, Id to) {
  return std::find(pairs.begin(), pairs.end(), std::pair(from, to)) !=
         pairs.end();
}

constexpr uint32_t kFar = 1'000'000;

/// All shortest paths (Floyd and Warshall), at least one edge long.
static std::vector<std::vector<uint32_t>> pathsOf(Id nodes,
                                                  const Pairs &pairs) {
  std::vector<std::vector<uint32_t>> far(nodes,
                                         std::vector<uint32_t>(nodes, kFar));
  for (auto [from, to] : pairs)
    far[from][to] = 1;
  for (Id k = 0; k < nodes; ++k)
    for (Id i = 0; i < nodes; ++i)
      for (Id j = 0; j < nodes; ++j)
        far[i][j] = std::min(far[i][j], far[i][k] + far[k][j]);
  return far;
}

/// Lengths of the shortest cycles of all strongly connected parts, sorted: of
/// a node on a cycle, the least over all nodes that it reaches and that reach
/// it.
static std::vector<size_t> leastLengths(Id nodes, const Pairs &pairs) {
  std::vector<std::vector<uint32_t>> far = pathsOf(nodes, pairs);
  std::vector<size_t> lengths;
  for (Id n = 0; n < nodes; ++n) {
    uint32_t least = far[n][n];
    bool isFirst = least < kFar;
    for (Id other = 0; other < nodes; ++other)
      if (far[n][other] < kFar && far[other][n] < kFar) {
        isFirst = isFirst && other >= n;
        least = std::min(least, far[other][other]);
      }
    if (isFirst)
      lengths.push_back(least);
  }
  std::sort(lengths.begin(), lengths.end());
  return lengths;
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

TEST_CASE("cycle: one in each part that has any, shortest first") {
  Pairs pairs = {{0, 1}, {1, 2}, {2, 0}, {2, 3}, {3, 4},
                 {4, 3}, {4, 5}, {5, 6}, {6, 5}};
  CHECK(cyclesOf(7, pairs) ==
        std::vector<std::vector<Id>>{{3, 4}, {5, 6}, {0, 1, 2}});
}

TEST_CASE("cycle: what only leads to and from a cycle is left out") {
  Pairs pairs = {{0, 1}, {1, 2}, {2, 3}, {3, 2}, {3, 4}, {4, 5}};
  CHECK(cycleOf(6, pairs) == std::vector<Id>{2, 3});
}

TEST_CASE("cycle: random graphs against all shortest paths") {
  std::mt19937 random(7);
  unsigned cyclic = 0, several = 0;
  for (int round = 0; round < 3000; ++round) {
    Id nodes = 1 + random() % 12;
    Pairs pairs;
    for (uint32_t edges = random() % (2 * nodes); edges > 0; --edges)
      pairs.emplace_back(random() % nodes, random() % nodes);
    std::vector<std::vector<Id>> cycles = cyclesOf(nodes, pairs);
    std::vector<size_t> lengths;
    std::vector<Id> used;
    for (const std::vector<Id> &cycle : cycles) {
      lengths.push_back(cycle.size());
      used.insert(used.end(), cycle.begin(), cycle.end());
      for (size_t i = 0; i < cycle.size(); ++i)
        REQUIRE(holds(pairs, cycle[i], cycle[(i + 1) % cycle.size()]));
    }
    REQUIRE(lengths == leastLengths(nodes, pairs)); // sorted by length
    std::sort(used.begin(), used.end());
    REQUIRE(std::adjacent_find(used.begin(), used.end()) == used.end());
    cyclic += !cycles.empty();
    several += cycles.size() > 1;
  }
  CHECK(several > 100);
  CHECK(cyclic > 500);
  CHECK(cyclic < 2500);
}
