#include "compiler/Trial.h"
#include "compiler/MemoryAdvice.h"
#include "compiler/passes/PassManager.h"
#include "compiler/simulate/Compare.h"
#include "compiler/spec/Parser.h"
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

namespace {

Spec specOf(const std::string &pipeline) {
  Diagnostics diagnostics;
  std::optional<Spec> spec = parseSpec(
      "sluice: 1\nmodel: {layers: [{name: l, repeat: 8, forward: 1, backward: "
      "2, activation_bytes: 1024}]}\npipeline: {ranks: 4, " +
          pipeline + "}\ncluster: {link: {latency: 1}}\n",
      "job.yaml", {}, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(spec);
  return *spec;
}

} // namespace

TEST_CASE("trial: what would fit is what the comparison says fits") {
  // GPipe holds two layers of each microbatch: 9 of them take 18 kB.
  Diagnostics diagnostics;
  Compilation c(diagnostics);
  c.spec = specOf("microbatches: 10, schedule: gpipe, memory_limit: 18KiB");
  REQUIRE_FALSE(runPipeline(fullPipeline(), c));
  REQUIRE(c.overLimit);
  Comparison comparison = compareSchedules(c, {});
  REQUIRE(comparison.schedules.front().microbatches);
  CHECK(comparison.schedules.front().microbatches->count == 9);
  adviseOnLimit(c);
  CHECK(diagnostics.render().find(
            "would fit: pipeline.microbatches: 9 instead of 10") !=
        std::string::npos);
}

TEST_CASE("compare: a search for counts holds for all schedules that take "
          "counts, a list for the spec's own") {
  for (const char *warmup : {"auto", "[6, 4, 2, 0]"}) {
    bool isAuto = warmup == std::string("auto");
    Diagnostics diagnostics;
    Compilation c(diagnostics);
    std::string key = std::string(", warmup: ") + warmup;
    c.spec = specOf("microbatches: 12, schedule: 1f1b" + key);
    REQUIRE(runPipeline(fullPipeline(), c));
    Comparison comparison =
        compareSchedules(c, {"gpipe", "zb-h1", "interleaved-1f1b", "zb-v"});
    for (const ComparedSchedule &row : comparison.schedules) {
      CAPTURE(warmup, row.name);
      bool takes = row.name != "gpipe" && row.name != "zb-v";
      bool keeps = row.own || (isAuto && takes);
      CHECK(row.keys ==
            std::vector<std::string>(keeps ? 1 : 0, std::string("warmup")));
      std::optional<Needs> alone = needsOf(
          specOf("microbatches: 12, schedule: " + row.name +
                 (row.name == "interleaved-1f1b" ? ", virtual_stages: 2" : "") +
                 (keeps ? key : "")));
      REQUIRE(alone);
      CHECK(row.makespan == alone->makespan);
    }
  }
}
