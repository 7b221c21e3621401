//===- tests/compiler/SchedulesTable.cpp - Published formulas ------------===//
//
// Bubble, span, peak in flight and warmup of each schedule as its authors give
// them, over the sizes and costs for which they say so. Costs are of one stage:
// with v stages per rank the authors' F, B, W of a rank are v times these, and
// their M_B, a microbatch on the whole rank, is v stage-microbatches.
//
//===----------------------------------------------------------------------===//
#include "tests/compiler/ScheduleForTests.h"

#include <algorithm>
#include <functional>

using namespace sluice;
using namespace sluice::tests;

namespace {

/// For schedules that are said to hold for any costs.
const std::vector<StageCosts> kAnyCosts = {
    {1, 1, 1}, {1, 1, 0}, {2, 3, 4}, {5, 2, 1}, {1, 0.5, 3.25}};
/// W at most F and at most B.
const std::vector<StageCosts> kSmallWeights = {
    {1, 1, 1}, {3, 4, 2}, {3, 2, 1}, {2.5, 2.5, 0.75}, {1, 3, 1}, {2, 1, 1}};
const std::vector<StageCosts> kUnit = {{1, 1, 1}};

/// What is said of a case; what is empty is not looked at.
struct Expected {
  std::function<double(const ScheduleCase &)> bubble, span;
  std::function<uint32_t(const ScheduleCase &, Id rank)> peak, warmup;
};

/// In stage-microbatches, and in microbatches of the whole rank.
void checkPeak(const ScheduleCase &of, const RankReport &rank, uint32_t peak) {
  CHECK(rank.peakInFlight == peak);
  CHECK(rank.peakActivation * of.chunks == Approx(peak));
}

void checkCase(const ScheduleCase &of, const Expected &expected) {
  Report report = reportOf(of);
  INFO(of.text());
  double work = workOf(of);
  if (expected.bubble)
    CHECK(report.makespan == ticksOf(work + expected.bubble(of)));
  if (expected.span)
    CHECK(report.span == ticksOf(work + expected.span(of)));
  for (Id rank = 0; rank < of.ranks; ++rank) {
    const RankReport &is = report.perRank[rank];
    CHECK(is.busy == ticksOf(work));
    if (expected.peak)
      checkPeak(of, is, expected.peak(of, rank));
    if (expected.warmup)
      CHECK(is.warmup == expected.warmup(of, rank));
  }
}

using Sizes = std::vector<uint32_t>;

/// Every combination of `ranks`, `costs` and the microbatches of a p.
void checkRow(ScheduleCase of, const Sizes &ranks,
              const std::function<Sizes(uint32_t p)> &microbatches,
              const std::vector<StageCosts> &costs, const Expected &expected) {
  for (uint32_t p : ranks)
    for (uint32_t m : microbatches(p))
      for (const StageCosts &each : costs) {
        of.ranks = p;
        of.microbatches = m;
        of.costs = each;
        checkCase(of, expected);
      }
}

const Sizes kRanks = {1, 2, 3, 4, 5, 8, 16};
const Sizes kEvenRanks = {2, 4, 6, 8, 12, 16};

Sizes anyCount(uint32_t p) { return {1, p, p + 3, 2 * p, 3 * p + 1}; }
Sizes twiceRanks(uint32_t p) { return {2 * p, 2 * p + 1, 3 * p + 2}; }

double rampBubble(const ScheduleCase &of) {
  return (of.ranks - 1) * of.costs.all();
}

} // namespace

TEST_CASE("schedule table: naive") {
  checkRow({"naive"}, kRanks, anyCount, kAnyCosts,
           {.bubble =
                [](const ScheduleCase &of) {
                  return of.microbatches * rampBubble(of);
                },
            .span = {},
            .peak = [](const ScheduleCase &, Id) { return 1; },
            .warmup = {}});
}

TEST_CASE("schedule table: gpipe") {
  auto all = [](const ScheduleCase &of, Id) { return of.microbatches; };
  checkRow({"gpipe"}, kRanks, anyCount, kAnyCosts,
           {.bubble = rampBubble, .span = {}, .peak = all, .warmup = all});
}

TEST_CASE("schedule table: 1f1b") {
  checkRow({"1f1b"}, kRanks, anyCount, kAnyCosts,
           {.bubble = rampBubble,
            .span = {},
            .peak =
                [](const ScheduleCase &of, Id rank) {
                  return std::min(of.microbatches, of.ranks - rank);
                },
            .warmup =
                [](const ScheduleCase &of, Id rank) {
                  return std::min(of.microbatches, of.ranks - 1 - rank);
                }});
}

TEST_CASE("schedule table: eager-1f1b") {
  for (double latency : {0.0, 0.25, 0.75})
    checkRow({.schedule = "eager-1f1b", .latency = latency}, kRanks, anyCount,
             kAnyCosts,
             {.bubble =
                  [](const ScheduleCase &of) {
                    return rampBubble(of) + (of.ranks - 1) * 2 * of.latency;
                  },
              .span = {},
              .peak =
                  [](const ScheduleCase &of, Id rank) {
                    return std::min(of.microbatches, 2 * (of.ranks - rank) - 1);
                  },
              .warmup =
                  [](const ScheduleCase &of, Id rank) {
                    return std::min(of.microbatches, 2 * (of.ranks - 1 - rank));
                  }});
}

TEST_CASE("schedule table: interleaved-1f1b") {
  Expected expected{.bubble =
                        rampBubble, // of a stage: (p-1)(F+B+W)/v of a rank
                    .span = {},
                    .peak = {},
                    .warmup = [](const ScheduleCase &of, Id rank) {
                      uint32_t ahead = 2 * (of.ranks - 1 - rank);
                      return std::min(of.microbatches * of.chunks,
                                      ahead + (of.chunks - 1) * of.ranks);
                    }};
  // p + (p-1)/v microbatches on rank 0, and two stages less on each next one;
  // never more than there are.
  expected.peak = [](const ScheduleCase &of, Id rank) {
    return std::min(of.microbatches * of.chunks,
                    of.chunks * of.ranks + of.ranks - 1 - 2 * rank);
  };
  for (uint32_t chunks : {2, 3, 4})
    checkRow(
        {.schedule = "interleaved-1f1b", .chunks = chunks}, {1, 2, 3, 4, 8, 16},
        [](uint32_t p) {
          return Sizes{p, 2 * p, 3 * p};
        },
        kAnyCosts, expected);
}

TEST_CASE("schedule table: interleaved-1f1b in groups of any size") {
  // The bubble stays as long as no group has fewer microbatches than there are
  // ranks.
  auto warmup = [](const ScheduleCase &of, Id rank, uint32_t group) {
    return std::min(of.microbatches * of.chunks,
                    2 * (of.ranks - 1 - rank) + (of.chunks - 1) * group);
  };
  for (uint32_t p : {2, 3, 4, 8})
    for (uint32_t group : {p + 1, 2 * p - 1, 2 * p})
      for (uint32_t m : {group, 2 * group, 2 * group + p, 3 * group - 1})
        for (const StageCosts &costs : kAnyCosts) {
          ScheduleCase of{"interleaved-1f1b", p, m, 2, costs};
          of.keys = ", group_size: " + std::to_string(group);
          checkCase(of, {.bubble = rampBubble,
                         .span = {},
                         .peak = {},
                         .warmup = [&](const ScheduleCase &at, Id rank) {
                           return warmup(at, rank, group);
                         }});
        }
}

TEST_CASE("schedule table: breadth-first") {
  auto all = [](const ScheduleCase &of, Id) {
    return of.microbatches * of.chunks;
  };
  for (uint32_t chunks : {1, 2, 3, 4})
    checkRow({.schedule = "breadth-first", .chunks = chunks}, kRanks,
             [](uint32_t p) {
               return Sizes{p, p + 1, 2 * p + 3};
             },
             kAnyCosts,
             {.bubble = rampBubble, .span = {}, .peak = all, .warmup = all});
}

namespace {
double h1Bubble(const ScheduleCase &of) {
  return (of.ranks - 1) * (of.costs.forward + of.costs.backwardInput -
                           of.costs.backwardWeight + 4 * of.latency);
}
double h2Span(const ScheduleCase &of) {
  return (of.ranks - 1) * (of.costs.forward + of.costs.backwardInput -
                           2 * of.costs.backwardWeight);
}
/// p - 1 stage forwards: (p-1)F/2 of a rank's.
double turns(const ScheduleCase &of) { return of.ranks - 1; }
} // namespace

TEST_CASE("schedule table: zb-h1") {
  // "Small" latency is a way there and back within a W.
  for (double latency : {0.0, 0.25, 0.375})
    checkRow({.schedule = "zb-h1", .latency = latency}, kRanks, twiceRanks,
             kSmallWeights,
             {.bubble = h1Bubble,
              .span = h1Bubble, // rank 0 begins first and ends last
              .peak = [](const ScheduleCase &of, Id) { return of.ranks; },
              .warmup = [](const ScheduleCase &of,
                           Id rank) { return of.ranks - 1 - rank; }});
}

TEST_CASE("schedule table: zb-h2") {
  Expected expected{
      .bubble = {},
      .span = h2Span,
      .peak = [](const ScheduleCase &of, Id) { return 2 * of.ranks - 1; },
      .warmup = [](const ScheduleCase &of,
                   Id rank) { return 2 * (of.ranks - 1 - rank); }};
  checkRow({"zb-h2"}, kRanks, twiceRanks, kSmallWeights, expected);
  expected.bubble = [](const ScheduleCase &of) {
    return (of.ranks - 1) * of.costs.forward;
  };
  checkRow({"zb-h2"}, kRanks, twiceRanks, kUnit, expected);
}

TEST_CASE("schedule table: zb-h1 puts off the first r W of rank r, zb-h2 2r") {
  for (uint32_t times : {1u, 2u})
    for (uint32_t ranks : {1u, 2u, 3u, 5u, 8u})
      for (uint32_t m = 1; m <= 3 * ranks; ++m) {
        CAPTURE(times, ranks, m);
        Compiled compiled(
            ScheduleCase{times == 1 ? "zb-h1" : "zb-h2", ranks, m});
        REQUIRE(compiled.ok);
        std::vector<std::string> orders = compiled.orders();
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          // All but these pairs of F and I have a W behind them.
          uint32_t warmup = std::min(m, times * (ranks - 1 - rank));
          uint32_t expected = std::min(times * rank, m - warmup), found = 0;
          std::string before = orders[rank].substr(0, orders[rank].find('W'));
          for (char each : before)
            found += each == 'I';
          CHECK(found == std::min(m, expected + 1));
        }
      }
}

TEST_CASE("schedule table: zb-v") {
  ScheduleCase of{.schedule = "zb-v", .chunks = 2};
  checkRow(of, kRanks, twiceRanks, kUnit,
           {.bubble = turns,
            .span = [](const ScheduleCase &) { return 0; },
            .peak = [](const ScheduleCase &at, Id) { return 2 * at.ranks; },
            .warmup = {}});
  auto once = [](uint32_t p) { return Sizes{p}; };
  checkRow(of, kRanks, once, kUnit,
           {.bubble = {}, .span = turns, .peak = {}, .warmup = {}});
}

namespace {

/// In stage forwards, two to a rank's.
uint32_t vHalfBubble(uint32_t p) {
  switch (p) {
  case 1:
    return 0;
  case 2:
    return 1;
  case 3:
    return 5;
  case 5:
    return 11;
  default:
    return 3 * p - 7; // even p
  }
}
uint32_t vMinBubble(uint32_t p) {
  return p == 1 ? 0 : p % 3 == 0 ? 4 * p - 7 : 4 * p - 5;
}

void checkStablePattern(const char *schedule, const Sizes &ranks,
                        uint32_t (*bubble)(uint32_t p),
                        uint32_t (*most)(uint32_t p)) {
  for (uint32_t p : ranks)
    for (uint32_t m : twiceRanks(p)) {
      ScheduleCase of{schedule, p, m, 2};
      Report report = reportOf(of);
      CAPTURE(schedule, p, m);
      CHECK(report.makespan == ticksOf(workOf(of) + bubble(p)));
      std::vector<uint32_t> peaks = peaksOf(report);
      CHECK(*std::max_element(peaks.begin(), peaks.end()) == most(p));
    }
}
} // namespace

TEST_CASE("schedule table: v-half") {
  checkStablePattern("v-half", {1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16},
                     vHalfBubble, [](uint32_t p) { return (p + 2) / 2 * 2; });
}

TEST_CASE("schedule table: v-min") {
  checkStablePattern("v-min",
                     {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                     vMinBubble, [](uint32_t p) { return (p + 4) / 3 * 2; });
}

namespace {

/// Of `ends` stages along the pipeline from an end to the middle, p/2 for
/// dualpipe and p for dualpipev: (ends - 1)(F&B + B - 3W). The bubble is that
/// of the rank which waits most, as a pair that takes less than its parts
/// leaves ranks with more pairs less work.
void checkPairs(ScheduleCase of, uint32_t ends, uint32_t most) {
  for (double pair : {0.0, 2.0, 2.25, 2.5, 3.0}) {
    of.pair = pair;
    Report report = reportOf(of);
    INFO(of.text());
    double both = pair == 0 ? 3 : pair; // without a cost of its own
    Ticks idle = 0;
    for (const RankReport &rank : report.perRank) {
      idle = std::max(idle, rank.idle);
      checkPeak(of, rank, most);
      CHECK(rank.busy <= ticksOf(workOf(of)));
    }
    CHECK(idle == ticksOf((ends - 1) * (both + 2 - 3)));
    if (both == 3)
      CHECK(report.makespan == ticksOf(workOf(of)) + idle);
  }
}
} // namespace

TEST_CASE("schedule table: dualpipe") {
  for (uint32_t p : kEvenRanks)
    for (uint32_t m : {2 * p, 2 * p + 2, 3 * p + 2})
      checkPairs({"dualpipe", p, m}, p / 2, p + 1);
  // Elsewhere the formula (27 here) is an estimate.
  ScheduleCase of{"dualpipe", 8, 24, 1, {3, 4, 2}};
  CHECK(reportOf(of).makespan == ticksOf(workOf(of) + 24));
}

TEST_CASE("schedule table: dualpipev") {
  for (uint32_t p : kRanks)
    for (uint32_t m : twiceRanks(p))
      checkPairs({"dualpipev", p, m, 2}, p, 2 * p + 1);
}

TEST_CASE("schedule table: chimera") {
  // p - 2 slots where F = B, for whole units of p microbatches. A rank at
  // position q of one direction is at p-1-q of the other: p/2 microbatches of
  // the one in which it is near the front, min(q, p-1-q) + 1 of the other.
  checkRow({"chimera"}, kEvenRanks,
           [](uint32_t p) {
             return Sizes{p, 2 * p, 3 * p};
           },
           {{1, 0.5, 0.5}, {2, 1, 1}, {3, 1, 2}, {2, 2, 0}},
           {.bubble =
                [](const ScheduleCase &of) {
                  return (of.ranks - 2) * of.costs.forward;
                },
            .span = {},
            .peak =
                [](const ScheduleCase &of, Id rank) {
                  return of.ranks / 2 + std::min(rank, of.ranks - 1 - rank) + 1;
                },
            .warmup = {}});
}

namespace {
/// Microbatches that the last unit of p lacks.
uint32_t gaps(const ScheduleCase &of) {
  return (of.ranks - of.microbatches % of.ranks) % of.ranks;
}
} // namespace

TEST_CASE("schedule table: hanayo") {
  // 2(p-1) of the longer of F and B, of a stage, and v-2 more for each gap; p
  // whole microbatches on the last rank, and from m = 2p - 1 on on all.
  for (uint32_t chunks : {2, 4, 6})
    checkRow({.schedule = "hanayo", .chunks = chunks}, kRanks,
             [](uint32_t p) {
               return Sizes{p, p + 1, 2 * p - 1, 2 * p, 3 * p + 1};
             },
             {{1, 1, 1},
              {1, 1, 0},
              {1, 0.5, 0.5},
              {2, 3, 4},
              {5, 2, 1},
              {1, 0.5, 3}},
             {.bubble =
                  [](const ScheduleCase &of) {
                    double backward =
                        of.costs.backwardInput + of.costs.backwardWeight;
                    return (2 * (of.ranks - 1) + (of.chunks - 2) * gaps(of)) *
                           std::max(of.costs.forward, backward);
                  },
              .span = {},
              .peak =
                  [](const ScheduleCase &of, Id rank) {
                    uint32_t behind = of.ranks - 1 - rank,
                             more = of.microbatches - of.ranks;
                    return of.chunks * of.ranks -
                           (behind - std::min(behind, more));
                  },
              .warmup = {}});
}

TEST_CASE("schedule table: hanayo is no worse than 1f1b in its memory") {
  // Two stages of a rank take what one of 1f1b takes.
  for (uint32_t p : {2, 3, 4, 8})
    for (uint32_t m : {1u, p - 1, p, p + 1, 4 * p})
      for (const StageCosts &costs : kAnyCosts) {
        Report wave = reportOf({"hanayo", p, m, 2, costs});
        StageCosts both = {2 * costs.forward, 2 * costs.backwardInput,
                           2 * costs.backwardWeight};
        Report straight = reportOf({"1f1b", p, m, 1, both});
        CAPTURE(p, m);
        CHECK(wave.makespan <= straight.makespan);
        for (const RankReport &rank : wave.perRank)
          CHECK(rank.peakActivation <= std::min(p, m));
      }
}

TEST_CASE("schedule table: warmup where the rule has no count") {
  for (const ScheduleInfo &info : allSchedules()) {
    ScheduleCase of{std::string(info.text), 4, 8, info.usualChunks()};
    for (const RankReport &rank : reportOf(of).perRank) {
      CAPTURE(info.text);
      CHECK(rank.warmup.has_value() == (info.warmup != nullptr));
    }
  }
  for (const char *name : {"naive", "zb-v", "v-half", "v-min", "dualpipe",
                           "dualpipev", "chimera", "hanayo", "forward-only"})
    CHECK(findSchedule(name)->warmup == nullptr);
}

TEST_CASE("schedule table: forward-only") {
  for (uint32_t p : kRanks)
    for (uint32_t m : anyCount(p))
      for (const StageCosts &costs : kAnyCosts) {
        Report report = reportOf({"forward-only", p, m, 1, costs});
        CHECK(report.makespan == ticksOf((m + p - 1) * costs.forward));
      }
}
