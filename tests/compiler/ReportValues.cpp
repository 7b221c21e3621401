#include "tests/Catch.h"
#include "tests/compiler/ReportForTests.h"

#include <cmath>

using namespace sluice;
using namespace sluice::tests;

namespace {

template <typename Member> auto column(const Report &report, Member member) {
  std::vector<std::decay_t<decltype(report.perRank[0].*member)>> values;
  for (const RankReport &rank : report.perRank)
    values.push_back(rank.*member);
  return values;
}

std::vector<std::string> pathOf(const Report &report) {
  std::vector<std::string> names;
  for (const PathStep &step : report.criticalPath)
    names.push_back(opName(step.op, step.stage, step.microbatch));
  return names;
}

/// Interleaved 1F1B as published: rank r holds stages r, r + p, …; microbatches
/// go in groups of p through a rank's stages in turn; warmup 2(p-1-r) + (v-1)p.
Schedule interleaved(const Chain &stages, Id ranks) {
  Id chunks = stages.ranks / ranks, m = stages.microbatches, all = m * chunks;
  Schedule schedule;
  schedule.name = "interleaved-1f1b";
  schedule.firstOfRank.push_back(0);
  for (Id r = 0; r < ranks; ++r) {
    auto add = [&](Op op, Id k) {
      Id chunk = k % (ranks * chunks) / ranks;
      if (op == Op::Backward)
        chunk = chunks - 1 - chunk;
      Id microbatch = k / (ranks * chunks) * ranks + k % ranks;
      schedule.order.push_back(
          chainNode(stages, op, chunk * ranks + r, microbatch));
    };
    Id warmup = std::min(all, 2 * (ranks - 1 - r) + (chunks - 1) * ranks);
    for (Id k = 0; k < warmup; ++k)
      add(Op::Forward, k);
    for (Id k = 0; k < all; ++k) {
      if (warmup + k < all)
        add(Op::Forward, warmup + k);
      add(Op::Backward, k);
    }
    schedule.warmup.push_back(warmup);
    schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
  }
  return schedule;
}

using Counts = std::vector<uint32_t>;

} // namespace

TEST_CASE("report: naive on four stages uses a quarter of them") {
  Chain chain = evenChain(4, 1, 1, 1);
  Report report = Job(chain, naive(chain)).report();
  CHECK(report.makespan == 8 * kUnit);
  CHECK(report.bubbleFraction == 0.75);
  CHECK(column(report, &RankReport::busy) == std::vector<Ticks>(4, 2 * kUnit));
  CHECK(column(report, &RankReport::peakInFlight) == Counts{1, 1, 1, 1});
  CHECK(pathOf(report) == std::vector<std::string>{"0F0", "1F0", "2F0", "3F0",
                                                   "3B0", "2B0", "1B0", "0B0"});
}

TEST_CASE("report: gpipe keeps all microbatches in flight") {
  for (uint32_t m : {8u, 32u}) {
    Chain chain = evenChain(4, m, 1, 1);
    Report report = Job(chain, gpipe(chain)).report();
    CHECK(report.makespan == (m + 3) * 2 * kUnit);
    CHECK(report.planMakespan == report.makespan);
    CHECK(column(report, &RankReport::peakInFlight) == Counts(4, m));
    CHECK(column(report, &RankReport::forwardsBeforeBackward) == Counts(4, m));
    CHECK_FALSE(report.perRank[0].warmup);
  }
}

TEST_CASE("report: 1f1b keeps at most p - r in flight") {
  for (uint32_t m : {8u, 32u}) {
    Chain chain = evenChain(4, m, 1, 1);
    Report report = Job(chain, oneFOneB(chain)).report();
    CHECK(report.makespan == (m + 3) * 2 * kUnit);
    CHECK(std::abs(report.bubbleFraction - 3.0 / (m + 3)) < 1e-12);
    CHECK(column(report, &RankReport::peakInFlight) == Counts{4, 3, 2, 1});
    CHECK(column(report, &RankReport::peakActivation) ==
          std::vector<double>{4, 3, 2, 1});
    CHECK(column(report, &RankReport::warmup) ==
          std::vector<std::optional<uint32_t>>{3, 2, 1, 0});
    CHECK(column(report, &RankReport::forwardsBeforeBackward) ==
          Counts{4, 3, 2, 1});
    CHECK(column(report, &RankReport::idle) ==
          std::vector<Ticks>(4, 6 * kUnit));
    CHECK(report.layers == 24);
    CHECK(report.virtualStages == 1);
  }
}

TEST_CASE("report: fewer microbatches than ranks") {
  Chain chain = evenChain(4, 2, 1, 2);
  Report report = Job(chain, oneFOneB(chain)).report();
  CHECK(report.makespan == 15 * kUnit);
  CHECK(column(report, &RankReport::peakInFlight) == Counts{2, 2, 2, 1});
}

TEST_CASE("report: interleaved 1f1b has the published figures") {
  Chain chain = evenChain(8, 8, 1, 2);
  Report report = Job(chainGraph(chain), interleaved(chain, 4)).report();
  CHECK(report.makespan == 57 * kUnit);
  CHECK(column(report, &RankReport::busy) == std::vector<Ticks>(4, 48 * kUnit));
  CHECK(column(report, &RankReport::peakInFlight) == Counts{11, 9, 7, 5});
  CHECK(column(report, &RankReport::peakActivation) ==
        std::vector<double>{5.5, 4.5, 3.5, 2.5});
  CHECK(column(report, &RankReport::warmup) ==
        std::vector<std::optional<uint32_t>>{10, 8, 6, 4});
  CHECK(report.perRank[1].stages == std::vector<Id>{1, 5});
  CHECK(report.perRank[1].layers == 12);
  CHECK(report.virtualStages == 2);
  CHECK(report.weightsInOrder);
}

TEST_CASE("report: W gives back what it kept") {
  // F0 I0 F1 I1 F2 I2 W0 W1 W2; of 10 bytes, 4 stay until W: at most
  // 4 + 4 + 10 of 10, and three microbatches.
  Chain chain = evenChain(1, 3, 1, 2, 0.5);
  chain.split = true;
  chain.stages[0].bytes.activation = 10;
  chain.stages[0].bytes.keptForWeight = 4;
  Schedule schedule;
  schedule.order = {0, 1, 3, 4, 6, 7, 2, 5, 8};
  schedule.firstOfRank = {0, 9};
  Report report = Job(chain, schedule).report();
  CHECK(report.perRank[0].peakInFlight == 3);
  CHECK(std::abs(report.perRank[0].peakActivation - 1.8) < 1e-12);
  CHECK(report.weightsInOrder);
  std::swap(schedule.order[6], schedule.order[8]);
  CHECK_FALSE(Job(chain, schedule).report().weightsInOrder);
}

TEST_CASE("report: forwards alone hold nothing after they end") {
  Graph graph;
  graph.stages.resize(1);
  graph.microbatches = 3;
  for (Id k = 0; k < 3; ++k)
    graph.nodes.push_back({kUnit, 0, k, Op::Forward});
  graph.finalize();
  Schedule schedule;
  schedule.order = {0, 1, 2};
  schedule.firstOfRank = {0, 3};
  Report report = Job(graph, schedule).report();
  CHECK(report.perRank[0].peakInFlight == 1);
  CHECK(report.perRank[0].forwardsBeforeBackward == 3);
  CHECK(report.lowerBound == 3 * kUnit);
}

TEST_CASE("report: the slowest stage sets the throughput") {
  Chain chain = evenChain(4, 8, 1, 2);
  chain.stages[2].forward = 2 * kUnit;
  Report report = Job(chain, oneFOneB(chain)).report();
  CHECK(report.slowestStage == 2);
  CHECK(report.slowestStageRank == 2);
  CHECK(report.slowestStageTime == 4 * kUnit);
  CHECK(report.busiestRank == 2);
  CHECK(report.meanBusy == 26 * kUnit); // (3 x 24 + 32) / 4
  CHECK(report.makespan >= 32 * kUnit);
}

TEST_CASE("report: bytes by kind at the moment of the peak") {
  // 1f1b on two ranks, m = 2. Rank 0's list: F0, F1, sends of both, receive,
  // B0, receive, B1. Most is live at F1: both microbatches' activations and
  // both outputs, which their sends have not yet read.
  Chain chain = evenChain(2, 2, 1, 1);
  for (Stage &stage : chain.stages)
    stage.bytes = {10, 20, 60, 100, 30, 7};
  chain.messageBytes = 5;
  Report report = Job(chain, oneFOneB(chain)).report();
  const RankReport &rank = report.perRank[0];
  CHECK(rank.memory.bytes == 307);
  CHECK(rank.peakOperation == "0F1");
  std::map<std::string_view, Bytes> memory;
  for (unsigned i = 0; i < kHeadingCount; ++i)
    memory[headingName(i)] = rank.memory.byHeading[i];
  CHECK(memory == std::map<std::string_view, Bytes>{{"parameters", 10},
                                                    {"gradients", 20},
                                                    {"optimizer", 60},
                                                    {"workspace", 7},
                                                    {"activations", 200},
                                                    {"communication", 10}});
  std::vector<std::string> largest;
  for (const MemoryContributor &from : rank.memory.contributors)
    largest.push_back(std::string(info(from.kind).text) + " " +
                      std::to_string(from.buffers) + " " +
                      std::to_string(from.bytes));
  CHECK(largest == std::vector<std::string>{"saved 2 140", "optimizer 1 60",
                                            "kept 2 60", "gradients 1 20",
                                            "parameters 1 10"});
  // Rank 1 holds one microbatch; both outputs of rank 0 may have come.
  CHECK(report.perRank[1].memory.bytes == 97 + 100 + 10);
}

TEST_CASE("report: bytes in use over time") {
  // As above: 97 that stay. Rank 0 adds 105 with F0 at 0 and with F1 at 1; the
  // first output is gone when the second is sent at 2, and from 3, when the
  // first gradient comes, this takes the place of the second output. B0 ends
  // at 4, and until the last gradient comes at 5 nothing in the list changes.
  Chain chain = evenChain(2, 2, 1, 1);
  for (Stage &stage : chain.stages)
    stage.bytes = {10, 20, 60, 100, 30, 7};
  chain.messageBytes = 5;
  Report report = Job(chain, oneFOneB(chain)).report();
  std::vector<std::pair<Ticks, Bytes>> points;
  for (const MemoryPoint &point : report.perRank[0].memoryTimeline)
    points.emplace_back(point.time / kUnit, point.bytes);
  CHECK(points == std::vector<std::pair<Ticks, Bytes>>{
                      {0, 202}, {1, 307}, {2, 302}, {5, 202}});
}

TEST_CASE("report: the most of a timeline is the peak, however long it is") {
  for (uint32_t microbatches : {3u, 1000u}) {
    Chain chain = evenChain(3, microbatches, 1, 2);
    for (Stage &stage : chain.stages)
      stage.bytes = {10, 20, 60, 100, 30, 7};
    chain.messageBytes = 5;
    for (const Schedule &order : {gpipe(chain), oneFOneB(chain)}) {
      Report report = Job(chain, order).report();
      for (const RankReport &rank : report.perRank) {
        const std::vector<MemoryPoint> &points = rank.memoryTimeline;
        REQUIRE_FALSE(points.empty());
        CHECK(points.size() <= kMostMemoryPoints);
        CHECK(points.front().time == 0);
        CHECK(points.back().time < *report.planMakespan);
        Bytes most = points.front().bytes;
        for (size_t i = 1; i < points.size(); ++i) {
          CHECK(points[i - 1].time < points[i].time);
          CHECK(points[i - 1].bytes != points[i].bytes);
          most = std::max(most, points[i].bytes);
        }
        CHECK(most == rank.memory.bytes);
      }
    }
  }
}

TEST_CASE("report: the most in each part of the time") {
  std::vector<MemoryPoint> points{{0, 5}, {3, 9}, {4, 2}};
  CHECK(mostPerPart(points, 10, 5) == std::vector<Bytes>{5, 9, 2, 2, 2});
  CHECK(mostPerPart(points, 10, 1) == std::vector<Bytes>{9});
  CHECK(mostPerPart(points, 10, 10) ==
        std::vector<Bytes>{5, 5, 5, 9, 2, 2, 2, 2, 2, 2});
  // Nothing takes time.
  CHECK(mostPerPart({{0, 7}}, 0, 2) == std::vector<Bytes>{7, 0});
}

TEST_CASE("report: without a plan there are no bytes") {
  Chain chain = evenChain(2, 2, 1, 1);
  Job job(chain, oneFOneB(chain));
  Report report =
      buildReport({"chain", job.graph, job.schedule, job.timing, job.network});
  CHECK_FALSE(report.hasMemory);
  CHECK_FALSE(report.planMakespan);
  CHECK(report.perRank[0].memory.bytes == 0);
}
