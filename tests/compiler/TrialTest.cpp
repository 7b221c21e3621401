#include "compiler/Trial.h"
#include "tests/Catch.h"

using namespace sluice;

/// What largestThatFits promises, by trying every count.
static uint32_t byTrying(uint32_t low, uint32_t high,
                         llvm::function_ref<bool(uint32_t)> legal,
                         llvm::function_ref<bool(uint32_t)> fits) {
  uint32_t best = low;
  for (uint32_t count = low + 1; count < high; ++count)
    if (legal(count) && fits(count))
      best = count;
  return best;
}

TEST_CASE("trial: the largest count that fits, past those that are refused") {
  bool (*const rules[])(uint32_t) = {
      [](uint32_t) { return true; },
      [](uint32_t count) { return count % 2 == 0; },
      [](uint32_t count) { return count >= 8 && count % 2 == 0; },
      [](uint32_t count) { return count % 7 == 3; },
      [](uint32_t) { return false; }};
  for (auto *legal : rules)
    for (uint32_t low : {0u, 5u})
      for (uint32_t high = low + 1; high < 40; ++high)
        for (uint32_t most = low; most < high; ++most) {
          auto fits = [&](uint32_t count) { return count <= most; };
          CAPTURE(low, high, most);
          CHECK(largestThatFits(low, high, legal, fits) ==
                byTrying(low, high, legal, fits));
        }
}

TEST_CASE("trial: a schedule by name takes the place of a spec's own orders") {
  PipelineSpec pipeline;
  pipeline.schedule.value = kOwnOrders;
  pipeline.scheduleOrders.emplace_back(std::string("0F0 0B0"));
  pipeline.scheduleCsv.value = "orders.csv";
  pipeline.scheduleCsv.given = true;
  setSchedule(pipeline, "gpipe");
  CHECK(pipeline.schedule.value == "gpipe");
  CHECK(pipeline.scheduleOrders.empty());
  CHECK_FALSE(pipeline.scheduleCsv.given);
}
