//===- tests/compiler/PackingTest.cpp - Lifetimes share bytes in turn -----===//
#include "compiler/passes/Packing.h"
#include "tests/Catch.h"

#include <algorithm>
#include <random>

using namespace sluice;

namespace {

using Lifetimes = std::vector<Lifetime>;

/// Whether both are in use at one step.
bool meet(const Lifetime &a, const Lifetime &b) {
  return a.begin / 2 <= b.end / 2 && b.begin / 2 <= a.end / 2;
}

/// Few sizes and many lifetimes, most of them short.
Lifetimes randomLifetimes(std::mt19937 &random) {
  uint32_t steps = 1 + random() % 30;
  std::vector<Bytes> sizes(1 + random() % 5);
  for (Bytes &size : sizes)
    size = 256 * (1 + random() % 40);
  Lifetimes lifetimes(random() % 60);
  for (Lifetime &each : lifetimes) {
    each.begin = random() % steps;
    uint32_t rest = steps - each.begin;
    each.end =
        each.begin + random() % (random() % 2 ? rest : std::min(rest, 3u));
    each.bytes = sizes[random() % sizes.size()];
  }
  return lifetimes;
}

/// The most bytes at one step, step by step, late ones counted or not.
Bytes mostCounted(const Lifetimes &lifetimes, bool late) {
  Bytes most = 0;
  for (uint32_t step = 0; step < 64; ++step) {
    Bytes live = 0;
    for (const Lifetime &each : lifetimes)
      live += each.begin / 2 <= step && step <= (each.end + late) / 2
                  ? each.bytes
                  : 0;
    most = std::max(most, live);
  }
  return most;
}

/// Whether lifetimes that share bytes follow each other along takeovers.
void checkTakeovers(const Lifetimes &lifetimes, const Packing &packing) {
  size_t count = lifetimes.size();
  CHECK(packing.takeovers.size() <= 2 * count);
  std::vector<std::vector<bool>> follows(count, std::vector<bool>(count));
  for (auto [one, next] : packing.takeovers) {
    REQUIRE(lifetimes[one].end / 2 < lifetimes[next].begin / 2);
    follows[one][next] = true;
  }
  for (size_t by = 0; by < count; ++by)
    for (size_t one = 0; one < count; ++one)
      for (size_t next = 0; follows[one][by] && next < count; ++next)
        if (follows[by][next])
          follows[one][next] = true;
  for (size_t one = 0; one < count; ++one)
    for (size_t next = 0; next < count; ++next) {
      Bytes begin = packing.offsets[one], other = packing.offsets[next];
      bool share = one != next && begin < other + lifetimes[next].bytes &&
                   other < begin + lifetimes[one].bytes;
      if (!share)
        continue;
      REQUIRE_FALSE(meet(lifetimes[one], lifetimes[next]));
      if (lifetimes[one].end < lifetimes[next].begin)
        REQUIRE(follows[one][next]);
    }
}

} // namespace

TEST_CASE("packing: what is in use at once has bytes apart") {
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    Lifetimes lifetimes = randomLifetimes(random);
    Packing packing = pack(lifetimes);
    Bytes end = 0;
    for (size_t i = 0; i < lifetimes.size(); ++i)
      end = std::max(end, packing.offsets[i] + lifetimes[i].bytes);
    CHECK(packing.bytes == end);
    CHECK(packedBytes(lifetimes) == end);
    checkTakeovers(lifetimes, packing);

    Bytes live = mostCounted(lifetimes, /*late=*/true);
    CHECK(mostLive(lifetimes) == live);
    CHECK(packing.bytes >= mostCounted(lifetimes, /*late=*/false));
    CHECK(packing.bytes <= std::max(nearTo(live), bytesBySize(lifetimes)));

    std::shuffle(lifetimes.begin(), lifetimes.end(), random);
    CHECK(pack(lifetimes).bytes == packing.bytes);
  }
}

// Intervals of one size are coloured with as many places as meet at once.
TEST_CASE("packing: one size takes no more than is in use") {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    Lifetimes lifetimes = randomLifetimes(random);
    for (Lifetime &each : lifetimes)
      each.bytes = 512;
    CHECK(pack(lifetimes).bytes == mostCounted(lifetimes, /*late=*/false));
    CHECK(bytesBySize(lifetimes) == mostCounted(lifetimes, /*late=*/false));
  }
}

TEST_CASE("packing: bytes are split and put together") {
  // Two of 512 in the bytes of one of 1024, and the other way round.
  Lifetimes split{{0, 0, 1024}, {2, 2, 512}, {2, 2, 512}, {4, 4, 1024}};
  Packing packing = pack(split);
  CHECK(packing.bytes == 1024);
  CHECK(packing.takeovers.size() == 4);
  CHECK(bytesBySize(split) == 2048);
  // Large at the end, in bytes of which the middle ended first.
  Lifetimes last{{0, 6, 256}, {0, 2, 256}, {0, 4, 256}, {8, 8, 768}};
  CHECK(pack(last).bytes == 768);
  CHECK(pack({}).bytes == 0);
}
