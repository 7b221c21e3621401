#include "compiler/passes/PassManager.h"
#include "compiler/simulate/Report.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include <algorithm>
#include <string>

using namespace sluice;

namespace {

struct Result {
  bool ok = false;
  Ticks makespan = 0;
  std::vector<uint32_t> warmup;
  std::vector<std::string> bounds;
  std::string messages;
  Bytes largest = 0;
};

Result compile(const std::string &layers, const std::string &pipeline,
               const std::string &latency = "0") {
  Diagnostics diagnostics;
  Compilation compilation(diagnostics);
  compilation.spec = parseSpec(
      "sluice: 1\nmodel: {layers: [" + layers + "]}\npipeline: {" + pipeline +
          "}\ncluster: {link: {latency: " + latency + "}}\n",
      "job.yaml", {}, diagnostics);
  Result result;
  result.ok = compilation.spec && runPipeline(fullPipeline(), compilation);
  result.messages = diagnostics.render();
  if (!result.ok)
    return result;
  result.makespan = compilation.timing->makespan;
  result.warmup = compilation.warmup->perRank;
  result.bounds = compilation.warmup->bounds;
  for (const RankPlan &rank : compilation.plan->ranks)
    result.largest = std::max(result.largest, rank.arenaBytes);
  return result;
}

std::string equal(uint32_t stages, const std::string &forward,
                  const std::string &backward) {
  return "{name: l, repeat: " + std::to_string(stages) +
         ", forward: " + forward + ", backward: " + backward +
         ", activation_bytes: 1024}";
}

std::string pipeline(const std::string &schedule, uint32_t ranks,
                     uint32_t microbatches, const std::string &more = "") {
  return "ranks: " + std::to_string(ranks) +
         ", microbatches: " + std::to_string(microbatches) +
         ", schedule: " + schedule + more;
}

constexpr const char *kAuto = ", warmup: auto";

} // namespace

TEST_CASE("warmup: auto is the textbook's where stages are equal and messages "
          "free") {
  for (uint32_t ranks : {1u, 2u, 3u, 4u, 8u})
    for (uint32_t microbatches : {ranks, ranks + 1, 3 * ranks})
      for (const char *backward : {"1", "2", "3.5"}) {
        Result found = compile(equal(ranks, "1", backward),
                               pipeline("1f1b", ranks, microbatches, kAuto));
        REQUIRE(found.ok);
        for (uint32_t rank = 0; rank < ranks; ++rank)
          CHECK(found.warmup[rank] == ranks - 1 - rank);
        CHECK(found.bounds.empty());
      }
}

TEST_CASE("warmup: auto hides messages as eager-1f1b does, with no more") {
  for (uint32_t ranks : {2u, 4u, 6u})
    for (const char *latency : {"0.1", "0.5", "1", "1.5"}) {
      std::string layers = equal(ranks, "1", "2");
      Result found =
          compile(layers, pipeline("1f1b", ranks, 32, kAuto), latency);
      Result eager =
          compile(layers, pipeline("eager-1f1b", ranks, 32), latency);
      REQUIRE((found.ok && eager.ok));
      CHECK(found.makespan == eager.makespan);
      for (uint32_t rank = 0; rank < ranks; ++rank)
        CHECK(found.warmup[rank] <= eager.warmup[rank]);
    }
}

TEST_CASE("warmup: auto degrades step by step within the memory limit") {
  std::string layers = equal(4, "1", "2");
  Ticks before = 0;
  for (uint32_t held = 8; held > 0; --held) {
    Bytes limit = 1024 * held;
    Result found = compile(layers,
                           pipeline("1f1b", 4, 16,
                                    std::string(kAuto) + ", memory_limit: " +
                                        std::to_string(limit)),
                           "1");
    INFO(found.messages);
    REQUIRE(found.ok);
    CHECK(found.largest <= limit);
    CHECK(found.makespan >= before); // less memory never helps
    before = found.makespan;
    CHECK(found.bounds.empty() == (held >= 7));
    // Whatever list of counts falls by as much a rank and fits is no better.
    Result listed = compile(layers,
                            pipeline("1f1b", 4, 16,
                                     held >= 4 ? ", warmup: [3, 2, 1, 0]"
                                               : ", warmup: [0, 0, 0, 0]"),
                            "1");
    CHECK(found.makespan <= listed.makespan);
  }
  Result bound = compile(
      layers,
      pipeline("1f1b", 4, 16, std::string(kAuto) + ", memory_limit: 6144"),
      "1");
  CHECK(bound.bounds ==
        std::vector<std::string>{"warmup of rank 0: 5 of 6 wanted, memory"});
}

TEST_CASE("warmup: auto does not lose to the standard counts") {
  for (const char *schedule :
       {"1f1b", "eager-1f1b", "zb-h1", "zb-h2", "interleaved-1f1b"})
    for (const char *latency : {"0", "0.3", "2"})
      for (const char *stages :
           {"{name: a, repeat: 3, forward: 1, backward: 2}, {name: b, forward: "
            "2, backward: 3}",
            "{name: a, forward: 4, backward: 5}, {name: b, repeat: 3, forward: "
            "1, backward: 1}"}) {
        std::string chunks = ", virtual_stages: 1";
        Result found =
            compile(stages, pipeline(schedule, 4, 12, kAuto + chunks), latency);
        Result standard =
            compile(stages, pipeline(schedule, 4, 12, chunks), latency);
        INFO(found.messages);
        REQUIRE((found.ok && standard.ok));
        CHECK(found.makespan <= standard.makespan);
      }
}

TEST_CASE("warmup: auto keeps to what the standard counts reach within a limit "
          "and in short groups") {
  auto limited = [](const char *stages, uint32_t ranks, uint32_t microbatches,
                    Bytes limit, const char *schedule) {
    auto with = [&](const char *warmup) {
      return compile(stages,
                     pipeline(schedule, ranks, microbatches,
                              std::string(warmup) +
                                  ", memory_limit: " + std::to_string(limit)),
                     "1");
    };
    Result standard = with(""), found = with(kAuto);
    INFO(found.messages);
    REQUIRE((standard.ok && found.ok));
    CHECK(found.makespan <= standard.makespan);
  };
  // 1000 bytes take 1024.
  limited("{name: l, repeat: 2, forward: 1, backward: 2, activation_bytes: "
          "1000}",
          2, 3, 2048, "1f1b");
  limited("{name: l, repeat: 4, forward: 1, backward: 2, activation_bytes: "
          "1000}",
          4, 8, 4096, "1f1b");
  for (uint32_t microbatches : {7u, 12u, 13u, 17u}) {
    std::string layers = equal(10, "1", "2");
    Result standard = compile(
        layers,
        pipeline("interleaved-1f1b", 5, microbatches, ", virtual_stages: 2"),
        "1");
    Result found = compile(layers,
                           pipeline("interleaved-1f1b", 5, microbatches,
                                    ", virtual_stages: 2, warmup: auto"),
                           "1");
    INFO(found.messages);
    REQUIRE((standard.ok && found.ok));
    CHECK(found.makespan <= standard.makespan);
  }
}
