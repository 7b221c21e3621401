#include "compiler/passes/PassManager.h"
#include "compiler/simulate/Report.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include <algorithm>
#include <functional>
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

namespace {

/// Calls `visit` for all lists of `ranks` counts that fall from at most `most`.
void forFallingLists(
    uint32_t ranks, uint32_t most,
    const std::function<void(const std::vector<uint32_t> &)> &visit,
    std::vector<uint32_t> begun = {}) {
  if (begun.size() == ranks)
    return visit(begun);
  uint32_t limit = begun.empty() ? most : begun.back();
  for (uint32_t count = 0; count <= limit; ++count) {
    begun.push_back(count);
    forFallingLists(ranks, most, visit, begun);
    begun.pop_back();
  }
}

std::string listOf(const std::vector<uint32_t> &counts) {
  std::string text = ", warmup: [";
  for (uint32_t count : counts)
    text += (text.back() == '[' ? "" : ", ") + std::to_string(count);
  return text + "]";
}

/// The shortest makespan of all falling lists that fit into `limit`; 0 if none.
Ticks bestOfAll(const std::string &layers, const std::string &schedule,
                uint32_t ranks, uint32_t microbatches, uint32_t most,
                Bytes limit, const std::string &latency) {
  Ticks best = 0;
  forFallingLists(ranks, most, [&](const std::vector<uint32_t> &counts) {
    Result listed = compile(
        layers,
        pipeline(schedule, ranks, microbatches,
                 listOf(counts) + ", memory_limit: " + std::to_string(limit)),
        latency);
    if (listed.ok && (best == 0 || listed.makespan < best))
      best = listed.makespan;
  });
  return best;
}

std::string limited(Bytes limit) {
  return std::string(kAuto) + ", memory_limit: " + std::to_string(limit);
}

} // namespace

TEST_CASE("warmup: auto degrades step by step within the memory limit") {
  // Messages that take no bytes, and such that take as many as what is saved.
  for (const char *output : {"", ", output_bytes: 1024"}) {
    std::string layers = "{name: l, repeat: 4, forward: 1, backward: 2, "
                         "activation_bytes: 1024" +
                         std::string(output) + "}";
    for (const char *latency : {"0", "1"}) {
      Ticks before = 0;
      for (uint32_t held = 11; held > 0; --held) {
        CAPTURE(output, latency, held);
        Bytes limit = 1024 * Bytes(held);
        Result found =
            compile(layers, pipeline("1f1b", 4, 12, limited(limit)), latency);
        // What is saved alone takes a kB for each of one more than the count.
        uint32_t most = std::min<uint32_t>(7, held - 1);
        Ticks best = bestOfAll(layers, "1f1b", 4, 12, most, limit, latency);
        REQUIRE(found.ok == (best != 0));
        if (!found.ok)
          continue;
        CHECK(found.largest <= limit);
        CHECK(found.makespan == best);
        CHECK(found.makespan >= before); // less memory never helps
        before = found.makespan;
      }
    }
  }
}

TEST_CASE("warmup: auto lets zb-h1 and zb-h2 degrade step by step within the "
          "memory limit") {
  // Of 1024 bytes all, half or none are kept until W.
  for (const char *schedule : {"zb-h1", "zb-h2"})
    for (const char *kept : {"1024", "512", "0"}) {
      std::string layers = "{name: l, repeat: 4, forward: 1, backward_input: "
                           "1, backward_weight: 1, activation_bytes: 1024, "
                           "kept_for_weight: " +
                           std::string(kept) + "}";
      Ticks before = 0;
      for (uint32_t held = 8; held > 0; --held) {
        CAPTURE(schedule, kept, held);
        Bytes limit = 1024 * Bytes(held);
        Result found =
            compile(layers, pipeline(schedule, 4, 10, limited(limit)));
        Ticks best = bestOfAll(layers, schedule, 4, 10, held - 1, limit, "0");
        REQUIRE(found.ok);
        CHECK(found.largest <= limit);
        CHECK(found.makespan == best);
        CHECK(found.makespan >= before);
        before = found.makespan;
        // One in flight: its F, its I and the W of the first rank in turn.
        if (held == 1)
          CHECK(found.makespan == 10 * (4 + 4 + 1) * ticksPer(TimeUnit::Unit));
      }
    }
}

TEST_CASE("warmup: auto with two stages a rank is near the best of all falling "
          "lists within the memory limit") {
  std::string layers = equal(6, "1", "2");
  for (Bytes held = 6; held <= 10; ++held) {
    CAPTURE(held);
    auto with = [&](const std::string &warmup) {
      return compile(
          layers,
          pipeline("interleaved-1f1b", 3, 9,
                   ", virtual_stages: 2" + warmup +
                       ", memory_limit: " + std::to_string(1024 * held)),
          "1");
    };
    Ticks best = 0;
    forFallingLists(3, 10, [&](const std::vector<uint32_t> &counts) {
      Result listed = with(listOf(counts));
      if (listed.ok && (best == 0 || listed.makespan < best))
        best = listed.makespan;
    });
    Result found = with(kAuto);
    REQUIRE(found.ok == (best != 0));
    CHECK(found.makespan == best);
  }
}

TEST_CASE("warmup: auto says where memory bounds it, and where it takes more "
          "than the standard counts") {
  auto boundsOf = [](uint32_t held, const char *latency) {
    return compile(equal(4, "1", "2"),
                   pipeline("1f1b", 4, 16, limited(1024 * held)), latency)
        .bounds;
  };
  using Texts = std::vector<std::string>;
  // The standard 3, 2, 1, 0 with 4, 3, 2, 1 in flight.
  CHECK(boundsOf(4, "0").empty());
  for (uint32_t held : {1u, 2u, 3u}) {
    Result bound = compile(equal(4, "1", "2"),
                           pipeline("1f1b", 4, 16, limited(1024 * held)), "0");
    Texts expected;
    for (uint32_t rank = 0; rank < 4; ++rank)
      if (bound.warmup[rank] < 3 - rank)
        expected.push_back(
            "warmup of rank " + std::to_string(rank) + ": " +
            std::to_string(bound.warmup[rank]) + " of the standard " +
            std::to_string(3 - rank) +
            (bound.warmup[rank] + 1 == held
                 ? ", memory"
                 : "; more are of no use while rank 0 has memory for " +
                       std::to_string(held - 1)));
    CHECK(bound.bounds == expected);
    CHECK(bound.warmup[0] == held - 1);
  }
  // A hop of latency 1 takes 2 of the 3 that rank 0 lasts: 6, 4, 2, 0 hide it.
  CHECK(boundsOf(12, "1") ==
        Texts{"warmup: auto takes up to 3 more than the standard counts (rank "
              "0: 6 instead of 3)"});
}

TEST_CASE("warmup: auto does not lose to the standard counts") {
  for (const char *schedule : {"1f1b", "eager-1f1b", "zb-h1", "zb-h2",
                               "interleaved-1f1b, virtual_stages: 1",
                               "interleaved-1f1b, virtual_stages: 2"})
    for (const char *latency : {"0", "0.3", "2"})
      for (const char *stages :
           {"{name: a, repeat: 7, forward: 1, backward: 2}, {name: b, forward: "
            "2, backward: 3}",
            "{name: a, forward: 4, backward: 5}, {name: b, repeat: 7, forward: "
            "1, backward: 1}"}) {
        Result found =
            compile(stages, pipeline(schedule, 4, 12, kAuto), latency);
        Result standard = compile(stages, pipeline(schedule, 4, 12), latency);
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

TEST_CASE("warmup: the note on a short last group says the largest difference "
          "from the rule") {
  // Interleaved, groups of N = p: 2(p-1-r) + (v-1)N, at most m·v.
  for (uint32_t ranks : {3u, 4u, 5u})
    for (uint32_t chunks : {2u, 3u, 4u})
      for (uint32_t microbatches = ranks; microbatches < 3 * ranks;
           ++microbatches) {
        CAPTURE(ranks, chunks, microbatches);
        Result found =
            compile(equal(ranks * chunks, "1", "2"),
                    pipeline("interleaved-1f1b", ranks, microbatches,
                             ", virtual_stages: " + std::to_string(chunks)));
        REQUIRE(found.ok);
        uint32_t all = microbatches * chunks, most = 0;
        auto rule = [&](uint32_t rank) {
          return 2 * (ranks - 1 - rank) + (chunks - 1) * ranks;
        };
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          REQUIRE(found.warmup[rank] >= std::min(all, rule(rank)));
          most = std::max(most, found.warmup[rank] - std::min(all, rule(rank)));
        }
        for (uint32_t rank = 0; rank < ranks; ++rank)
          CHECK(found.warmup[rank] == std::min(all, rule(rank) + most));
        if (most == 0)
          CHECK(found.bounds.empty());
        else
          CHECK(found.bounds ==
                std::vector<std::string>{
                    "warmup: " + std::to_string(most) +
                    " more on each rank than the rule of interleaved-1f1b "
                    "says, up to its " +
                    std::to_string(all) +
                    " forwards, so that the ranks do not wait for each other "
                    "in the last group"});
      }
}
