//===- tests/compiler/SchedulesAnswers.cpp - Worked answers --------------===//
//
// Answers that were worked out or published for single cases, to the digit.
//
//===----------------------------------------------------------------------===//
#include "tests/compiler/ScheduleForTests.h"

using namespace sluice;
using namespace sluice::tests;

namespace {

const StageCosts kBackwardIsTwice = {1, 1, 1};
const StageCosts kBackwardIsOne = {1, 0.5, 0.5};

void checkAnswer(const ScheduleCase &of, double makespan, double busy) {
  Report report = reportOf(of);
  INFO(of.text());
  CHECK(report.makespan == ticksOf(makespan));
  CHECK(report.planMakespan == ticksOf(makespan));
  for (const RankReport &rank : report.perRank)
    CHECK(rank.busy == ticksOf(busy));
}

std::vector<uint32_t> warmupsOf(const Report &report) {
  std::vector<uint32_t> counts;
  for (const RankReport &rank : report.perRank)
    counts.push_back(rank.warmup.value_or(kNone));
  return counts;
}

using Counts = std::vector<uint32_t>;

} // namespace

TEST_CASE("schedule answers: 1f1b and gpipe") {
  ScheduleCase of{.costs = kBackwardIsTwice};
  checkAnswer(of, 33, 24);
  CHECK(peaksOf(reportOf(of)) == Counts{4, 3, 2, 1});
  of.schedule = "gpipe";
  checkAnswer(of, 33, 24);
  CHECK(peaksOf(reportOf(of)) == Counts{8, 8, 8, 8});
  for (const char *schedule : {"gpipe", "1f1b"})
    checkAnswer({schedule, 8, 32, 1, kBackwardIsOne}, 78, 64);
  checkAnswer({"1f1b", 8, 1, 1, kBackwardIsTwice}, 24, 3);
}

TEST_CASE("schedule answers: interleaved-1f1b") {
  ScheduleCase of{"interleaved-1f1b", 4, 8, 2, kBackwardIsTwice};
  checkAnswer(of, 57, 48);
  CHECK(peaksOf(reportOf(of)) == Counts{11, 9, 7, 5});
  CHECK(warmupsOf(reportOf(of)) == Counts{10, 8, 6, 4});
  Report report = reportOf(of);
  for (Id rank = 0; rank < 4; ++rank)
    CHECK(report.perRank[rank].peakActivation == 5.5 - rank);

  of.microbatches = 4;
  CHECK(warmupsOf(reportOf(of)) == Counts{8, 8, 6, 4});

  of.microbatches = 10;
  of.keys = ", group_size: 5";
  checkAnswer(of, 69, 60);
}

TEST_CASE("schedule answers: groups of three, the last one shorter") {
  Compiled compiled({.schedule = "interleaved-1f1b",
                     .ranks = 2,
                     .microbatches = 5,
                     .chunks = 2,
                     .costs = kBackwardIsTwice,
                     .keys = ", group_size: 3"});
  REQUIRE(compiled.ok);
  CHECK(warmupsOf(compiled.report()) == Counts{5, 3});
  // Microbatches 0 1 2 0 1 2 3 4 3 4, chunks 0 0 0 1 1 1 0 0 1 1; backwards the
  // same from the last chunk on. Stage = rank + 2 · chunk.
  CHECK(compiled.orders() ==
        std::vector<std::string>{
            "0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 "
            "2B3 2B4 0B3 0B4",
            "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 "
            "3B3 3B4 1B3 1B4"});
}

TEST_CASE("schedule answers: flexible rounds of PyTorch") {
  // Of m = 8 microbatches p = 3 ranks make max(1, 8 / 3 rounded down) = 2
  // rounds of 4. A rank runs chunk 0 for a round, chunk 1 for it, then the next
  // round; backwards the same from chunk 1 on. Warmup 2(p-1-r) + (v-1)·4. Stage
  // = rank + 3 · chunk.
  Compiled compiled({.schedule = "interleaved-1f1b",
                     .ranks = 3,
                     .microbatches = 8,
                     .chunks = 2,
                     .costs = kBackwardIsTwice,
                     .keys = ", group_size: rounds"});
  REQUIRE(compiled.ok);
  CHECK(warmupsOf(compiled.report()) == Counts{8, 6, 4});
  CHECK(compiled.orders() ==
        std::vector<std::string>{
            "0F0 0F1 0F2 0F3 3F0 3F1 3F2 3F3 0F4 3B0 0F5 3B1 0F6 3B2 0F7 3B3 "
            "3F4 0B0 3F5 0B1 3F6 0B2 3F7 0B3 3B4 3B5 3B6 3B7 0B4 0B5 0B6 0B7",
            "1F0 1F1 1F2 1F3 4F0 4F1 4F2 4B0 4F3 4B1 1F4 4B2 1F5 4B3 1F6 1B0 "
            "1F7 1B1 4F4 1B2 4F5 1B3 4F6 4B4 4F7 4B5 4B6 4B7 1B4 1B5 1B6 1B7",
            "2F0 2F1 2F2 2F3 5F0 5B0 5F1 5B1 5F2 5B2 5F3 5B3 2F4 2B0 2F5 2B1 "
            "2F6 2B2 2F7 2B3 5F4 5B4 5F5 5B5 5F6 5B6 5F7 5B7 2B4 2B5 2B6 "
            "2B7"});
}

TEST_CASE("schedule answers: hanayo") {
  // p = m = 3, one wave: rank r runs 2(3-r)-1 forwards down (there are 3), then
  // r (F up, F down), 3-r (F up, B up), then what is left: B down, F up, B up
  // in turn. Stages 0 and 5, 1 and 4, 2 and 3.
  Compiled compiled({"hanayo", 3, 3, 2, kBackwardIsTwice});
  REQUIRE(compiled.ok);
  CHECK(compiled.orders() ==
        std::vector<std::string>{
            "0F0 0F1 0F2 5F0 5B0 5F1 5B1 5F2 5B2 0B0 0B1 0B2",
            "1F0 1F1 1F2 4F0 4F1 4B0 4F2 4B1 1B0 4B2 1B1 1B2",
            "2F0 3F0 2F1 3F1 2F2 3F2 3B0 2B0 3B1 2B1 3B2 2B2"});
}

TEST_CASE("schedule answers: dualpipev and zb-v") {
  // Two stages per rank; a pair takes as long as F and B together.
  ScheduleCase of{"dualpipev", 4, 10, 2, kBackwardIsTwice};
  of.pair = 3;
  checkAnswer(of, 66, 60);
  CHECK(peaksOf(reportOf(of))[0] == 9);
  checkAnswer({"zb-v", 2, 8, 2, kBackwardIsTwice}, 49, 48);
}

TEST_CASE("schedule answers: zero bubble shows in the span") {
  // The makespan of zb-h1 and zb-h2 is the same where F = I = W; the span, by
  // which a rank's steps follow one another, is not.
  Report h1 = reportOf({"zb-h1", 8, 24}), h2 = reportOf({"zb-h2", 8, 24});
  CHECK(h1.makespan == ticksOf(79));
  CHECK(h2.makespan == ticksOf(79));
  CHECK(h1.span == ticksOf(79));
  CHECK(h2.span == ticksOf(72));
}

namespace {

/// Costs that the zero-bubble authors measured on A100s, in milliseconds, with
/// the share of bubble that they publish for them (arXiv 2401.10241).
struct PublishedCase {
  uint32_t ranks, microbatches;
  StageCosts costs;
  double latency;
  const char *oneFOneB, *h1, *h2;
};
const PublishedCase kPublished[] = {
    {8, 24, {18.522, 18.086, 9.337}, .601, "0.2431", "0.1585", "0.1083"},
    {8, 24, {29.718, 29.444, 19.927}, .527, "0.2347", "0.1323", "0.0698"},
    {16, 48, {11.347, 11.248, 8.132}, .377, "0.2552", "0.1397", "0.0672"},
    {32, 96, {10.419, 10.207, 7.715}, .408, "0.2646", "0.1421", "0.0641"}};

std::string rounded(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

ScheduleCase published(const PublishedCase &of, const char *schedule) {
  return {schedule, of.ranks, of.microbatches, 1, of.costs, of.latency};
}

} // namespace

TEST_CASE("schedule answers: published shares of bubble") {
  // The share of the makespan for 1f1b and zb-h1, where rank 0 begins first and
  // ends last and so has the longest span too; of the span for zb-h2.
  for (const PublishedCase &each : kPublished) {
    double work = each.microbatches * each.costs.all();
    auto share = [&](Ticks time) {
      return rounded(1 - static_cast<double>(ticksOf(work)) /
                             static_cast<double>(time));
    };
    Report oneFOneB = reportOf(published(each, "1f1b"));
    CHECK(share(oneFOneB.makespan) == each.oneFOneB);
    CHECK(oneFOneB.span == oneFOneB.makespan);
    CHECK(rounded(oneFOneB.bubbleFraction) == each.oneFOneB);
    Report h1 = reportOf(published(each, "zb-h1"));
    CHECK(share(h1.makespan) == each.h1);
    CHECK(h1.span == h1.makespan);
    CHECK(rounded(h1.bubbleFraction) == each.h1);
    CHECK(share(reportOf(published(each, "zb-h2")).span) == each.h2);
  }
}

TEST_CASE("schedule answers: zb-h1 cannot be beaten in its memory") {
  // Limit: p microbatches. Of the M_B that one holds, M_W = 32h stays until W,
  // of (34h + 5as) at sequence s = 1024, with the authors' widths h and heads
  // a: 5as/h is 160/3 for 2304 and 24, 40 for the others.
  struct Saved {
    uint32_t all, kept;
  };
  const Saved bytes[] = {{262, 96}, {74, 32}, {74, 32}, {74, 32}};
  for (size_t i = 0; i < std::size(kPublished); ++i)
    for (bool latency : {false, true})
      for (const char *objective : {"makespan", "span"}) {
        ScheduleCase of = published(kPublished[i], "zb-h1");
        if (!latency)
          of.latency = 0;
        of.activation = 256 * bytes[i].all;
        of.kept = 256 * bytes[i].kept;
        of.keys =
            ", memory_limit: " + std::to_string(of.ranks * of.activation) +
            ", objective: " + objective;
        Report report = reportOf(of);
        INFO(of.text());
        CHECK(report.lowerBound == report.makespan);
        CHECK(report.lowerBound == report.span);
      }
}

TEST_CASE("schedule answers: where zb-h1 might be beaten") {
  // After the last forward of rank 0 the bound lets it run the backwards of the
  // p microbatches in memory but that one, 3 (I + W) = 18 of the 21 until its
  // gradient is back. Where a W holds a quarter of the bytes, two microbatches
  // and four such W do the same in memory and fill 2 · 6 + 4 · 2 = 20. With
  // M_W/M_B >= W/(I+W) nothing is won by that.
  ScheduleCase of{"zb-h1", 4, 8, 1, {3, 4, 2}};
  of.activation = 4096;
  of.keys = ", memory_limit: 16384";
  for (uint32_t kept : {4096, 2048, 1536}) {
    of.kept = kept;
    CHECK(reportOf(of).lowerBound == ticksOf(72 + 15));
    CHECK(reportOf(of).makespan == ticksOf(72 + 15));
  }
  of.kept = 1024;
  CHECK(reportOf(of).lowerBound == ticksOf(72 + 13));
  CHECK(reportOf(of).makespan == ticksOf(72 + 15));
}
