//===- tests/compiler/RecomputeTest.cpp - Forwards that run again ---------===//
#include "compiler/passes/RecomputeSearch.h"
#include "ir/verify/Verify.h"
#include "tests/compiler/ScheduleForTests.h"

#include <algorithm>
#include <random>

using namespace sluice;
using namespace sluice::tests;

namespace {

/// Four stages and eight microbatches, F = 1, I = W = 1, no messages. Sizes are
/// multiples of the alignment: 1024 bytes for the backward, of these 768 until
/// W, and a checkpoint of 256.
std::string spec(const std::string &pipeline, const std::string &layer = "") {
  return "sluice: 1\nmodel:\n"
         "  layers: [{name: l, repeat: 4, forward: 1, backward: 2, "
         "activation_bytes: 1024, kept_for_weight: 768, checkpoint_bytes: 256" +
         layer + "}]\npipeline: {ranks: 4, microbatches: 8" + pipeline + "}\n";
}

std::vector<Bytes> activationsOf(const Report &report) {
  unsigned heading = headingOf(static_cast<unsigned>(BufferKind::Saved));
  std::vector<Bytes> bytes;
  for (const RankReport &rank : report.perRank)
    bytes.push_back(rank.memory.byHeading[heading]);
  return bytes;
}

Report reportOn(const std::string &text) {
  INFO(text);
  Compiled compiled(text);
  INFO(compiled.diagnostics.render());
  REQUIRE(compiled.ok);
  return compiled.report();
}

std::string shown(verify::FindingKind kind, const verify::Result &result) {
  std::string text;
  for (const verify::Finding &finding : result.errors)
    if (finding.kind == kind)
      text += finding.message + "\n";
  return text;
}

} // namespace

TEST_CASE("recompute: R stands directly before its backward") {
  Compiled whole(spec(", recompute: full"));
  REQUIRE(whole.ok);
  CHECK(whole.orders()[2] ==
        "2F0 2F1 2R0 2B0 2F2 2R1 2B1 2F3 2R2 2B2 2F4 2R3 2B3 2F5 2R4 2B4 2F6 "
        "2R5 2B5 2F7 2R6 2B6 2R7 2B7");
  Compiled mixed("sluice: 1\nmodel: {layers: [{name: l, repeat: 2, forward: 1, "
                 "backward: 2}]}\npipeline: {ranks: 2, microbatches: 2, "
                 "recompute: [none, full], backward: split}\n");
  REQUIRE(mixed.ok);
  CHECK(mixed.orders() ==
        std::vector<std::string>{"0F0 0F1 0I0 0W0 0I1 0W1",
                                 "1F0 1R0 1I0 1W0 1F1 1R1 1I1 1W1"});
}

// With R = 1 the last rank starts at 3 and needs 4 a microbatch, so its last
// backward ends at 3 + 8·4 = 35; on its way back through three ranks, which
// have run their last R while they waited for it, it takes 2 each: 41. Without
// recomputation 3 + 8·3 + 3·2 = 33. R = 0.5: 3 + 8·3.5 + 6 = 37.
TEST_CASE("recompute: 1f1b hides the R of the way back") {
  CHECK(reportOn(spec("")).makespan == ticksOf(33));
  Report full = reportOn(spec(", recompute: full"));
  CHECK(full.makespan == ticksOf(41));
  CHECK(full.planMakespan == ticksOf(41));
  for (const RankReport &rank : full.perRank)
    CHECK(rank.busy == ticksOf(32));
  CHECK(full.bubbleFraction == 9.0 / 41);
  CHECK(reportOn(spec(", recompute: full", ", recompute: 0.5")).makespan ==
        ticksOf(37));
  // Selective takes no time unless it is given.
  CHECK(reportOn(spec(", recompute: selective")).makespan == ticksOf(33));
  CHECK(reportOn(spec(", recompute: selective", ", recompute: 0.5")).makespan ==
        ticksOf(37));
}

// Rank r has 4 - r microbatches in flight. Each holds what its forward left:
// all 1024 bytes; the 768 kept; or a checkpoint of 256. At an R the rest is
// made for one of them, before the checkpoint goes.
TEST_CASE("recompute: what is in flight holds what its forward left") {
  using Sizes = std::vector<Bytes>;
  using Counts = std::vector<uint32_t>;
  Report none = reportOn(spec(", recompute: none"));
  Report full = reportOn(spec(", recompute: full"));
  Report selective = reportOn(spec(", recompute: selective"));
  CHECK(activationsOf(none) == Sizes{4096, 3072, 2048, 1024});
  CHECK(activationsOf(full) ==
        Sizes{4 * 256 + 1024, 3 * 256 + 1024, 2 * 256 + 1024, 1 * 256 + 1024});
  CHECK(activationsOf(selective) ==
        Sizes{4 * 768 + 256, 3 * 768 + 256, 2 * 768 + 256, 1 * 768 + 256});
  for (const Report *report : {&none, &full, &selective}) {
    CHECK(peaksOf(*report) == Counts{4, 3, 2, 1});
    for (Id rank = 0; rank < 4; ++rank) {
      const RankReport &of = report->perRank[rank];
      CHECK(of.memory.bytes == of.arenaBytes);
      CHECK(of.peakActivation == double(of.memory.bytes) / 1024);
    }
  }
  // Policies by stage.
  CHECK(activationsOf(
            reportOn(spec(", recompute: [full, none, selective, none]"))) ==
        Sizes{4 * 256 + 1024, 3072, 2 * 768 + 256, 1024});
}

// What is in the checkpoint by default: the input of the stage's first layer.
TEST_CASE("recompute: a checkpoint is the stage's input") {
  Compiled compiled("sluice: 1\nmodel: {layers: [{name: a, forward: 1, "
                    "backward: 2, output_bytes: 100}, {name: b, repeat: 2, "
                    "forward: 2, backward: 4, output_bytes: 300}, {name: c, "
                    "forward: 1, backward: 2, recompute: 0.25}]}\n"
                    "pipeline: {ranks: 2, microbatches: 2, layout: [2, 2], "
                    "recompute: full}\n");
  REQUIRE(compiled.ok);
  const std::vector<Stage> &stages = compiled.compilation.stages->stages;
  CHECK(stages[0].bytes.checkpoint == 0);
  CHECK(stages[1].bytes.checkpoint == 300);
  CHECK(stages[0].recompute == ticksOf(3));
  CHECK(stages[1].recompute == ticksOf(2.25));
}

TEST_CASE("recompute: keys that do not fit or have no effect are told") {
  CHECK(toldBy(Compiled(spec(", recompute: [full, none]"))) ==
        "4:50: error: recompute has 2 entries, there are 4 stages\n");
  CHECK(toldBy(Compiled(spec(", recompute: [full, some, none, none]"))) ==
        "4:57: error: pipeline.recompute[1] is some, must be one of none, "
        "selective, full\n");
  CHECK(toldBy(Compiled(spec(", schedule: forward-only, recompute: full"))) ==
        "4:74: warning: pipeline.recompute has no effect with schedule "
        "forward-only, which has no backward\n");
  CHECK(toldBy(Compiled(
            "sluice: 1\nmodel: {transformer: {layers: 4, hidden: 8, heads: 2, "
            "vocab: 16, sequence: 4}}\npipeline: {ranks: 2, recompute: "
            "selective}\n")) ==
        "3:33: warning: pipeline.recompute has no effect\nnote: selective "
        "makes again what I needs and W does not, as the matrix of an "
        "attention that is not flash attention; the layers save nothing of "
        "the kind\n");
}

// A policy for each stage in turn, on what every schedule makes of it.
TEST_CASE("recompute: plans of every schedule are right") {
  const char *const policies[] = {"full", "selective", "none"};
  unsigned accepted = 0;
  for (const ScheduleInfo &info : allSchedules())
    for (uint32_t ranks : {1u, 2u, 4u})
      for (const char *backward : {"", ", backward: split"}) {
        uint32_t chunks = info.chunks != 0 ? info.chunks : 2;
        std::string list;
        for (uint32_t stage = 0; stage < ranks * chunks; ++stage)
          list += (stage == 0 ? "" : ", ") + std::string(policies[stage % 3]);
        ScheduleCase of{std::string(info.text), ranks, 2 * ranks, chunks};
        of.kept = 700;
        of.keys = ", recompute: [" + list + "]" + backward;
        Compiled compiled(of);
        if (!compiled.ok)
          continue;
        ++accepted;
        INFO(of.text());
        const Compilation &c = compiled.compilation;
        verify::Result result = verify::verifyPlan(*c.plan);
        CHECK(result.ok());
        CHECK((result.holds[0] && result.minBuffering == 0u));
        CHECK(compiled.report().planMakespan == c.timing->makespan);
        size_t recomputes = 0;
        for (const Node &node : c.graph->nodes)
          recomputes += node.op == Op::Recompute;
        size_t wanted = 0;
        for (const Stage &stage : c.stages->stages)
          wanted += stage.recomputes() ? c.graph->microbatches : 0;
        CHECK(recomputes == wanted);
        CHECK((wanted != 0 || info.backward == BackwardRule::None));
      }
  CHECK(accepted > 50);
}

// Ranks hold 4, 3, 2 and 1 microbatches. R where there is room would only cost
// time.
TEST_CASE("recompute: auto takes what is needed, where it costs least") {
  auto policies = [](const std::string &text) {
    Compiled compiled(text);
    INFO(compiled.diagnostics.render());
    REQUIRE(compiled.compilation.stages);
    std::string list;
    for (const Stage &stage : compiled.compilation.stages->stages)
      list += (list.empty() ? "" : " ") +
              std::string(recomputePolicyName(stage.recomputePolicy));
    return list;
  };
  std::string timed = ", recompute: 0.5";
  CHECK(policies(spec(", recompute: auto", timed)) == "none none none none");
  CHECK(policies(spec(", recompute: auto, memory_limit: 4096", timed)) ==
        "none none none none");
  // 4·768 + 256 = 3328 of selective for rank 0.
  CHECK(policies(spec(", recompute: auto, memory_limit: 3328", timed)) ==
        "selective none none none");
  // 4·256 + 1024 = 2048 of full for rank 0; rank 1 selective 2560, full 1792.
  CHECK(policies(spec(", recompute: auto, memory_limit: 2560", timed)) ==
        "full selective none none");
  CHECK(policies(spec(", recompute: auto, memory_limit: 2048", timed)) ==
        "full full none none");
  // Nothing fits: rank 0 as low as it gets, and the limit is told.
  Compiled none(spec(", recompute: auto, memory_limit: 2047", timed));
  CHECK_FALSE(none.ok);
  CHECK(none.compilation.overLimit);
}

// All combinations of policies, one by one, against what the search finds.
TEST_CASE("recompute: auto is the best of all combinations") {
  std::mt19937 random(7);
  auto pick = [&](std::initializer_list<const char *> of) {
    return std::string(of.begin()[random() % of.size()]);
  };
  unsigned changed = 0, impossible = 0;
  for (unsigned run = 0; run < 60; ++run) {
    bool single = run % 2 == 0; // one stage a rank, or two
    uint32_t ranks = single ? 2 + run % 3 : 2, chunks = single ? 1 : 2;
    uint32_t stages = ranks * chunks;
    std::string layers;
    for (uint32_t i = 0; i < stages; ++i)
      layers += (i == 0 ? "" : ", ") + std::string("{name: l, forward: ") +
                pick({"1", "1.5", "2"}) + ", backward: " + pick({"2", "3"}) +
                ", activation_bytes: " + pick({"2048", "4096", "6144"}) +
                ", kept_for_weight: " + pick({"512", "1024", "2048"}) +
                ", checkpoint_bytes: " + pick({"256", "512"}) +
                ", recompute: " + pick({"0.5", "1"}) + "}";
    std::string limit = std::to_string(1024 * (4 + random() % 24));
    auto text = [&](const std::string &policy) {
      return "sluice: 1\nmodel: {layers: [" + layers +
             "]}\npipeline: {ranks: " + std::to_string(ranks) +
             ", virtual_stages: " + std::to_string(chunks) +
             ", microbatches: 4, schedule: " +
             (single ? "1f1b" : "interleaved-1f1b") +
             ", memory_limit: " + limit + ", recompute: " + policy + "}\n";
    };
    INFO(text("auto"));
    std::optional<Ticks> least;
    uint32_t combinations = 1;
    for (uint32_t i = 0; i < stages; ++i)
      combinations *= 3;
    for (uint32_t number = 0; number < combinations; ++number) {
      std::string list;
      for (uint32_t i = 0, rest = number; i < stages; ++i, rest /= 3)
        list +=
            (i == 0 ? "[" : ", ") + std::string(kRecomputePolicies[rest % 3]);
      Compiled one(text(list + "]"));
      if (one.ok && (!least || one.compilation.timing->makespan < *least))
        least = one.compilation.timing->makespan;
    }
    Compiled found(text("auto"));
    CHECK(found.ok == least.has_value());
    impossible += !found.ok;
    if (!found.ok)
      continue;
    CHECK(found.compilation.timing->makespan == *least);
    for (const Stage &stage : found.compilation.stages->stages)
      changed += stage.recomputes();
    // With the search instead of all combinations it fits as well.
    std::vector<RecomputePolicy> few =
        searchRecompute(*found.compilation.spec, stages, 0);
    std::string list;
    for (RecomputePolicy policy : few)
      list += (list.empty() ? "[" : ", ") +
              std::string(recomputePolicyName(policy));
    CHECK(Compiled(text(list + "]")).ok);
  }
  CHECK(changed > 20);
  CHECK(impossible > 2);
  CHECK(impossible < 30);
}

// Rank 3 starts at 3 at the earliest and has 8·4 to do. Whatever the limit, no
// order is faster than the bound.
TEST_CASE("recompute: the lower bound counts R") {
  Report full = reportOn(spec(", recompute: full"));
  CHECK(full.lowerBound >= ticksOf(3 + 32));
  unsigned compared = 0;
  for (const ScheduleInfo &info : allSchedules())
    for (const char *policy : {"full", "selective"})
      for (const char *objective : {"makespan", "span"})
        for (uint32_t limit : {0u, 6000u, 9000u, 14000u, 60000u}) {
          ScheduleCase of{std::string(info.text), 4, 8,
                          info.chunks != 0 ? info.chunks : 2};
          of.kept = 768;
          of.keys = ", recompute: " + std::string(policy) +
                    ", objective: " + objective;
          if (limit != 0)
            of.keys += ", memory_limit: " + std::to_string(limit);
          Compiled compiled(of);
          if (!compiled.ok)
            continue;
          INFO(of.text());
          Report report = compiled.report();
          CHECK(report.lowerBound <= (objective == std::string("span")
                                          ? report.span
                                          : report.makespan));
          ++compared;
        }
  CHECK(compared > 100);
}

TEST_CASE("recompute: plans without their R, or with too many, are refused") {
  Compiled compiled(spec(", recompute: full, schedule: gpipe"));
  REQUIRE(compiled.ok);
  Plan plan = *compiled.compilation.plan;
  auto find = [](RankPlan &rank, Op op, Id microbatch) {
    return std::find_if(rank.ops.begin(), rank.ops.end(),
                        [&](const PlanOp &each) {
                          return each.op == op && each.microbatch == microbatch;
                        });
  };
  using Kind = verify::FindingKind;

  Plan other = plan; // says that nothing recomputes
  other.stages[1].recomputePolicy = RecomputePolicy::None;
  CHECK(shown(Kind::Malformed, verify::verifyPlan(other))
            .starts_with("1R0 is computed, but stage 1 has recompute policy "
                         "none\n"));

  other = plan; // an R less: 0R3 becomes a second 0R2
  find(other.ranks[0], Op::Recompute, 3)->microbatch = 2;
  CHECK(shown(Kind::Missing, verify::verifyPlan(other)) == "0R3 is missing\n");
  CHECK(shown(Kind::Duplicate, verify::verifyPlan(other)) ==
        "0R2 stands twice\n");

  other = plan; // R and B change places, with all they use
  auto r = find(other.ranks[3], Op::Recompute, 0);
  auto b = find(other.ranks[3], Op::Backward, 0);
  std::swap(r->op, b->op);
  CHECK_FALSE(verify::verifyPlan(other).ok());
  verify::Options noBuffers;
  noBuffers.buffers = false;
  CHECK(shown(Kind::Order, verify::verifyPlan(other, noBuffers)) ==
        "3B0 stands before 3R0, which it needs\n");

  other = plan; // of another policy: F leaves too much, R reads too much
  other.stages[2].recomputePolicy = RecomputePolicy::Selective;
  std::string order = shown(Kind::Order, verify::verifyPlan(other));
  CHECK(order.find("2F0 writes 0 of kind kept, not 1\n") != std::string::npos);
  CHECK(order.find("2F0 writes 1 of kind checkpoint, not 0\n") !=
        std::string::npos);
  CHECK(order.find("2R0 reads 0 of kind kept, not 1\n") != std::string::npos);

  other = plan; // the checkpoint is smaller than the stage's
  other.stages[2].bytes.checkpoint = 300;
  CHECK(shown(Kind::Malformed, verify::verifyPlan(other))
            .starts_with("2F0 writes 300 bytes to buffer "));
}
