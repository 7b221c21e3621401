//===- tests/compiler/SchedulesRules.cpp - What schedules refuse ---------===//
//
// Whole messages of every rule, and the place to which they point.
//
//===----------------------------------------------------------------------===//
#include "tests/compiler/ScheduleForTests.h"

using namespace sluice;
using namespace sluice::tests;

namespace {

/// Of a spec with the section `pipeline` on its third line, and 64 layers.
std::string told(const std::string &pipeline) {
  Compiled compiled(
      "sluice: 1\nmodel: {layers: [{name: l, repeat: 64, forward: "
      "1, backward: 2}]}\npipeline: {" +
      pipeline + "}\n");
  CHECK(compiled.ok == !compiled.diagnostics.hasErrors());
  return toldBy(compiled);
}

} // namespace

TEST_CASE("schedule rules: ranks, stages and microbatches") {
  CHECK(told("ranks: 3, microbatches: 6, schedule: dualpipe") ==
        "3:19: error: schedule dualpipe needs an even number of ranks, not 3: "
        "rank r mirrors rank p-1-r\n"
        "note: set pipeline.ranks to 2 or 4\n");
  CHECK(told("ranks: 1, microbatches: 6, schedule: dualpipe") ==
        "3:19: error: schedule dualpipe needs an even number of ranks, not 1: "
        "rank r mirrors rank p-1-r\n"
        "note: set pipeline.ranks to 2\n");
  std::string dualpipe = "error: schedule dualpipe needs an even number of "
                         "microbatches, at least 2p = 8, not ";
  std::string set = "note: set pipeline.microbatches to ";
  CHECK(told("ranks: 4, microbatches: 9, schedule: dualpipe") ==
        "3:36: " + dualpipe + "9\n" + set + "10\n");
  CHECK(told("ranks: 4, microbatches: 6, schedule: dualpipe") ==
        "3:36: " + dualpipe + "6\n" + set + "8\n");
  // Where a key is left to its default, the schedule is what asks for more.
  CHECK(told("ranks: 4, schedule: dualpipe") ==
        "3:32: " + dualpipe + "1\n" + set + "8\n");
  // Both at once.
  CHECK(told("ranks: 3, microbatches: 5, schedule: dualpipe") ==
        "3:19: error: schedule dualpipe needs an even number of ranks, not 3: "
        "rank r mirrors rank p-1-r\n"
        "note: set pipeline.ranks to 2 or 4\n"
        "3:36: error: schedule dualpipe needs an even number of microbatches, "
        "at least 2p = 6, not 5\n" +
            set + "6\n");
  CHECK(told("ranks: 4, microbatches: 7, schedule: dualpipev") ==
        "3:36: error: schedule dualpipev needs at least 2p = 8 microbatches, "
        "not 7\n" +
            set + "8\n");
  CHECK(told("ranks: 3, microbatches: 8, schedule: chimera") ==
        "3:19: error: schedule chimera needs an even number of ranks, not 3: "
        "rank r mirrors rank p-1-r\n"
        "note: set pipeline.ranks to 2 or 4\n");
}

TEST_CASE("schedule rules: virtual stages") {
  struct Fixed {
    const char *schedule, *needed;
    int given;
  };
  for (Fixed each : {Fixed{"zb-v", "2 virtual stages", 3},
                     Fixed{"v-half", "2 virtual stages", 1},
                     Fixed{"v-min", "2 virtual stages", 4},
                     Fixed{"dualpipev", "2 virtual stages", 1},
                     Fixed{"zb-h1", "1 virtual stage", 2},
                     Fixed{"1f1b", "1 virtual stage", 2},
                     Fixed{"dualpipe", "1 virtual stage", 2},
                     Fixed{"chimera", "1 virtual stage", 2}}) {
    std::string given = std::to_string(each.given), name = each.schedule;
    CHECK(told("ranks: 4, microbatches: 8, virtual_stages: " + given +
               ", schedule: " + name) ==
          "3:55: error: schedule " + name + " has " + each.needed +
              " per rank, not " + given +
              "\nnote: set pipeline.virtual_stages to " + each.needed[0] +
              "\n");
  }
  CHECK(told("ranks: 4, microbatches: 8, virtual_stages: 1, schedule: "
             "hanayo") ==
        "3:55: error: schedule hanayo needs an even number of virtual stages "
        "per rank (two a wave), not 1\n"
        "note: set pipeline.virtual_stages to 2\n");
  CHECK(told("ranks: 4, microbatches: 8, virtual_stages: 3, schedule: "
             "hanayo") ==
        "3:55: error: schedule hanayo needs an even number of virtual stages "
        "per rank (two a wave), not 3\n"
        "note: set pipeline.virtual_stages to 2 or 4\n");
}

TEST_CASE("schedule rules: virtual stages that a spec does not give") {
  for (const ScheduleInfo &info : allSchedules()) {
    Compiled compiled("sluice: 1\nmodel: {layers: [{repeat: 8, forward: 1, "
                      "backward: 2}]}\npipeline: {ranks: 4, microbatches: 8, "
                      "schedule: " +
                      std::string(info.text) + "}\n");
    INFO(compiled.diagnostics.render());
    REQUIRE(compiled.ok);
    // One, but for those of two chunks and those of any number.
    bool one =
        info.lanes != Lanes::Chunks && info.placement != PlacementKind::Loop;
    CHECK(compiled.report().virtualStages == (one ? 1 : 2));
  }
}

TEST_CASE("schedule rules: units of hanayo") {
  std::string spec = "schedule: hanayo, ranks: 4, virtual_stages: 4, "
                     "microbatches: ";
  CHECK(told(spec + "9") ==
        "3:73: warning: 9 microbatches leave a last unit of 1, fewer than the "
        "4 ranks: each of its waves waits for the one before\n"
        "note: without that cost: 8 or 12 microbatches\n");
  CHECK(told(spec + "3") ==
        "3:73: warning: 3 microbatches leave a last unit of 3, fewer than the "
        "4 ranks: each of its waves waits for the one before\n"
        "note: without that cost: 4 microbatches\n");
  CHECK(told(spec + "1") ==
        "3:73: warning: 1 microbatch leaves a last unit of 1, fewer than the "
        "4 ranks: each of its waves waits for the one before\n"
        "note: without that cost: 4 microbatches\n");
  CHECK(told(spec + "8").empty());
  // A single wave has none before it.
  CHECK(told("schedule: hanayo, ranks: 4, microbatches: 9").empty());
}

TEST_CASE("schedule rules: more stages than a byte counts") {
  for (const ScheduleInfo &info : allSchedules())
    for (uint32_t chunks : {254, 255, 256, 257, 258, 510, 512, 514}) {
      bool odd = chunks % 2 != 0 && info.placement == PlacementKind::V;
      if (info.chunks != 0 || odd)
        continue;
      for (uint32_t p : {1, 2})
        CHECK(reportOf({std::string(info.text), p, 2, chunks}).virtualStages ==
              chunks);
    }
}

TEST_CASE("schedule rules: groups of interleaved-1f1b") {
  std::string spec = "schedule: interleaved-1f1b, virtual_stages: 2, ranks: 4, "
                     "microbatches: ";
  CHECK(told(spec + "8, group_size: 3") ==
        "3:98: error: a group of 3 microbatches is fewer than the 4 ranks: "
        "chunk 1 would wait for rank 3 to pass on what rank 0 has not sent\n"
        "note: set pipeline.group_size to 4 or more\n");
  CHECK(told(spec + "8, group_size: 0") ==
        "3:98: error: pipeline.group_size is 0, must be from 1 to 16777216\n");
  CHECK(told(spec + "9") ==
        "3:83: warning: 9 microbatches leave a last group of 1, fewer than the "
        "4 ranks: it drains the pipeline between chunks, and Megatron refuses "
        "it\n"
        "note: without that cost: 8 or 12 microbatches\n");
  // All in one group, whole groups, a last group of p or more, PyTorch's rounds
  // (two, of five and of four): nothing to tell.
  CHECK(told(spec + "3, group_size: 3").empty());
  CHECK(told(spec + "8").empty());
  CHECK(told(spec + "9, group_size: 5").empty());
  CHECK(told(spec + "9, group_size: rounds").empty());
}

TEST_CASE("schedule rules: kinds of backward") {
  for (const char *schedule :
       {"zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe", "dualpipev"}) {
    std::string name = schedule;
    CHECK(
        told("ranks: 4, microbatches: 8, backward: fused, schedule: " + name) ==
        "3:49: error: schedule " + name +
            " splits backwards: it lives on moving the weight gradients "
            "apart\n"
            "note: leave pipeline.backward out: it follows the schedule\n");
  }
  for (const char *schedule : {"dualpipe", "dualpipev", "forward-only"}) {
    std::string name = schedule;
    CHECK(
        told("ranks: 4, microbatches: 8, backward: split, schedule: " + name) ==
        "3:49: warning: pipeline.backward has no effect with schedule " + name +
            "\n");
  }
  for (const char *schedule : {"naive", "gpipe", "1f1b", "eager-1f1b",
                               "interleaved-1f1b", "breadth-first", "chimera"})
    for (const char *mode : {"split", "fused", "auto"})
      CHECK(told("ranks: 4, microbatches: 8, backward: " + std::string(mode) +
                 ", schedule: " + schedule)
                .empty());
}

TEST_CASE("schedule rules: placements") {
  auto placed = [](const std::string &placement, const std::string &rest) {
    return told("ranks: 4, microbatches: 8, placement: " + placement +
                ", schedule: " + rest);
  };
  std::string leave =
      "note: leave pipeline.placement out: it follows the schedule\n";
  CHECK(placed("loop", "zb-v") ==
        "3:50: error: schedule zb-v needs placement v, not loop\n" + leave);
  CHECK(placed("v", "1f1b") ==
        "3:50: error: schedule 1f1b needs placement linear, not v\n" + leave);
  CHECK(placed("linear", "interleaved-1f1b, virtual_stages: 2") ==
        "3:50: error: schedule interleaved-1f1b needs placement loop, not "
        "linear\n" +
            leave);
  CHECK(placed("loop", "chimera") ==
        "3:50: error: schedule chimera needs placement bidirectional, not "
        "loop\n" +
            leave);
  std::string list = "note: schedules that take a list: naive, gpipe, 1f1b, "
                     "eager-1f1b, interleaved-1f1b, breadth-first, zb-h1, "
                     "zb-h2, forward-only\n";
  CHECK(placed("[0, 1, 2]", "1f1b") ==
        "3:50: error: placement has 3 entries, there are 4 stages\n"
        "note: it names the rank of each stage in turn: 4 ranks of 1 stage "
        "each\n");
  CHECK(placed("[0]", "interleaved-1f1b") ==
        "3:50: error: placement has 1 entry, there are 8 stages\n"
        "note: it names the rank of each stage in turn: 4 ranks of 2 stages "
        "each\n");
  CHECK(placed("[0, 1, 2, 4]", "1f1b") ==
        "3:50: error: placement names rank 4, there are 4 ranks\n");
  CHECK(placed("[0, 1, 2, 2]", "1f1b") ==
        "3:50: error: placement puts 2 stages on rank 2, not 1\n"
        "note: schedule 1f1b runs on 4 ranks of 1 stage each\n");
  CHECK(placed("[0, 1, 2, 2, 0, 1, 2, 3]", "interleaved-1f1b") ==
        "3:50: error: placement puts 3 stages on rank 2, not 2\n"
        "note: schedule interleaved-1f1b runs on 4 ranks of 2 stages each\n");
  CHECK(placed("[0, 1, 2, 3, 3, 2, 1, 0]", "zb-v") ==
        "3:50: error: schedule zb-v needs placement v, not a list\n" + leave +
            list);
  CHECK(placed("[0, 1]", "dualpipe") ==
        "3:50: error: schedule dualpipe needs placement bidirectional, not a "
        "list\n" +
            leave + list);
  CHECK(placed("[3, 1, 0, 2]", "1f1b").empty());
  CHECK(placed("v", "zb-v").empty());
  CHECK(placed("bidirectional", "dualpipe").empty());
}

TEST_CASE("schedule rules: a list of ranks is a pipeline of its own order") {
  ScheduleCase of{"1f1b", 4, 8};
  Report straight = reportOf(of);
  of.keys = ", placement: [3, 1, 0, 2]";
  Report report = reportOf(of);
  CHECK(report.makespan == straight.makespan);
  const Id order[] = {3, 1, 0, 2};
  for (Id stage = 0; stage < 4; ++stage) {
    const RankReport &rank = report.perRank[order[stage]];
    CHECK(rank.stages == std::vector<Id>{stage});
    CHECK(rank.warmup == 3 - stage);
    CHECK(rank.peakInFlight == 4 - stage);
  }
}

TEST_CASE("schedule rules: warmup counts") {
  auto counts = [](const std::string &list, const std::string &rest) {
    return told("ranks: 4, microbatches: 8, warmup: " + list +
                ", schedule: " + rest);
  };
  CHECK(counts("[3, 4, 1, 0]", "zb-h2") ==
        "3:47: error: warmup of rank 1 is 4, more than the 3 of rank 0\n"
        "note: rank 0 would wait for a gradient that rank 1 makes only after "
        "a forward that rank 0 has not sent\n");
  CHECK(counts("[9, 4, 1, 0]", "zb-h1") ==
        "3:47: error: warmup of rank 0 is 9, more than the 8 microbatches\n");
  CHECK(counts("[17, 8, 6, 4]", "interleaved-1f1b, virtual_stages: 2") ==
        "3:47: error: warmup of rank 0 is 17, more than the 16 forwards of a "
        "rank\n");
  CHECK(counts("[3, 2, 1]", "eager-1f1b") ==
        "3:47: error: warmup has 3 counts, but there are 4 ranks\n");
  for (const char *schedule :
       {"naive", "gpipe", "breadth-first", "zb-v", "v-half", "v-min",
        "dualpipe", "dualpipev", "chimera", "forward-only"})
    CHECK(counts("[1, 1, 1, 1]", schedule) ==
          "3:47: warning: pipeline.warmup has no effect with schedule " +
              std::string(schedule) +
              "\nnote: schedules that take warmup counts: 1f1b, eager-1f1b, "
              "interleaved-1f1b, zb-h1, zb-h2\n");
}

namespace {

constexpr const char *kInterleaved =
    "ranks: 4, microbatches: 8, virtual_stages: 2, schedule: interleaved-1f1b";

/// The list in `text` behind `begin`.
std::string listBehind(const std::string &text, const std::string &begin) {
  size_t at = text.find(begin);
  INFO(text);
  REQUIRE(at != std::string::npos);
  at = text.find('[', at);
  return text.substr(at, text.find(']', at) + 1 - at);
}

/// Whether it is told that ranks wait for each other, at the key of `value` in
/// the third line behind kInterleaved.
bool isToldAt(const std::string &text, const std::string &key) {
  size_t column = std::string("pipeline: {").size() +
                  std::string(kInterleaved).size() +
                  std::string(", " + key + ": ").size() + 1;
  return text.rfind("3:" + std::to_string(column) + ": error: deadlock: ", 0) ==
         0;
}

} // namespace

TEST_CASE("schedule rules: counts with which the ranks wait for each other") {
  auto with = [](const std::string &counts) {
    return told(std::string(kInterleaved) + ", warmup: " + counts);
  };
  const std::string note =
      "note: these run, the fewest with the same number more on each rank: ";
  // Before its first backward the last rank needs a group of p forwards of its
  // first chunk, so four more than none.
  std::string few = with("[3, 2, 1, 0]");
  CHECK(isToldAt(few, "warmup"));
  CHECK(listBehind(few, note) == "[7, 6, 5, 4]");
  CHECK(with("[7, 6, 5, 4]").empty());
  CHECK(isToldAt(with("[6, 5, 4, 3]"), "warmup"));
  for (const char *counts : {"[12, 8, 4, 0]", "[0, 0, 0, 16]"}) {
    std::string text = with(counts);
    CHECK(isToldAt(text, "warmup"));
    CHECK(with(listBehind(text, note)).empty());
  }
}

TEST_CASE("schedule rules: a placement with which the ranks wait for each "
          "other") {
  auto with = [](const std::string &rest) {
    return told(std::string(kInterleaved) + rest);
  };
  for (const char *list :
       {"[0, 1, 2, 3, 3, 2, 1, 0]", "[0, 0, 1, 1, 2, 2, 3, 3]"}) {
    std::string placed = std::string(", placement: ") + list;
    std::string text = with(placed);
    CHECK(isToldAt(text, "placement"));
    std::string loop = listBehind(text, "note: with the standard counts a list "
                                        "runs whose every 4 stages take the "
                                        "ranks in the same order, as in ");
    CHECK(loop == "[0, 1, 2, 3, 0, 1, 2, 3]");
    CHECK(with(", placement: " + loop).empty());
    std::string counts = listBehind(text, "; this one runs with warmup: ");
    CHECK(with(placed + ", warmup: " + counts).empty());
    // A search finds some.
    CHECK(with(placed + ", warmup: auto").find("error") == std::string::npos);
  }
  CHECK(with(", placement: [3, 1, 2, 0, 3, 1, 2, 0]").empty());
}

TEST_CASE("schedule rules: what has no effect") {
  for (const char *schedule : {"1f1b", "breadth-first", "zb-v", "dualpipe"})
    CHECK(told("ranks: 4, microbatches: 8, group_size: 4, schedule: " +
               std::string(schedule)) ==
          "3:51: warning: pipeline.group_size has no effect with schedule " +
              std::string(schedule) + "\n");
}
