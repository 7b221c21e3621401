//===- tests/runtime/OrderlyStopTest.cpp - After which step ranks stop ----===//
#include "runtime/OrderlyStop.h"

#include "tests/Catch.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

using namespace sluice::runtime;

TEST_CASE("stop: ranks in different steps end with the same one",
          "[runtime][stop]") {
  std::minstd_rand random(5);
  for (int round = 0; round < 200; ++round) {
    constexpr uint32_t kRanks = 3;
    constexpr uint64_t kSteps = uint64_t(1) << 60;
    std::atomic<int> signal{0};
    OrderlyStop stop(&signal, 10, kRanks, 0, kSteps);
    std::vector<uint64_t> ended(kRanks);
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      ranks.emplace_back([&stop, &own = ended[rank], rank] {
        while (!stop.endsWith(rank, own++)) {
        }
      });
    const auto pause = std::chrono::microseconds(random() % 200);
    std::this_thread::sleep_for(pause);
    CHECK_FALSE(stop.look(true, nullptr));
    CHECK(stop.after() == OrderlyStop::kNever);
    signal = 2;
    CHECK_FALSE(stop.look(true, nullptr));
    for (std::thread &rank : ranks)
      rank.join();
    CHECK(stop.isEarly());
    CHECK(stop.number() == 2);
    for (uint64_t steps : ended)
      CHECK(steps == stop.after());
  }
}

TEST_CASE("stop: after the last step it is none", "[runtime][stop]") {
  std::atomic<int> signal{0};
  OrderlyStop stop(&signal, 10, 1, 4, 6);
  CHECK_FALSE(stop.endsWith(0, 4));
  CHECK_FALSE(stop.endsWith(0, 5));
  signal = 15;
  CHECK_FALSE(stop.look(true, nullptr));
  CHECK(stop.after() == 6);
  CHECK_FALSE(stop.isEarly());
}

TEST_CASE("stop: at once where nothing runs yet, or the time is over",
          "[runtime][stop]") {
  std::atomic<int> signal{15};
  OrderlyStop loading(&signal, 10, 1, 0, 6);
  CHECK(loading.look(false, nullptr));
  OrderlyStop slow(&signal, 0, 1, 0, 6);
  CHECK(slow.look(true, nullptr));
  OrderlyStop cancelled(&signal, 10, 1, 0, 6);
  cancelled.cancel();
  CHECK_FALSE(cancelled.endsWith(0, 0));
}
