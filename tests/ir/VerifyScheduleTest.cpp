// Schedules: every node once, no circle, a stage stays on its rank.
#include "ir/verify/Verify.h"
#include "tests/Catch.h"

using namespace sluice;
using verify::Finding;
using verify::Result;

namespace {

/// F and B of two stages, nodes numbered F0 B0 F1 B1 within a microbatch.
Graph twoStages(uint32_t microbatches) {
  Graph graph;
  graph.stages.resize(2);
  graph.edges = {{0, 1, 8}};
  graph.microbatches = microbatches;
  for (Id k = 0; k < microbatches; ++k) {
    Id first = 4 * k;
    auto value = [&](Id producer, Id use, ValueKind kind) {
      graph.values.push_back(
          {8, producer, static_cast<Id>(graph.uses.size()), kind});
      graph.uses.push_back(use);
    };
    for (Id s = 0; s < 2; ++s) {
      graph.nodes.push_back({1, s, k, Op::Forward});
      graph.nodes.push_back({1, s, k, Op::Backward});
    }
    value(first, first + 2, ValueKind::Activation);
    value(first, first + 1, ValueKind::Saved);
    value(first + 2, first + 3, ValueKind::Saved);
    value(first + 3, first + 1, ValueKind::Gradient);
  }
  return graph;
}

Schedule scheduleOf(const std::vector<std::vector<Id>> &ranks) {
  Schedule schedule;
  schedule.firstOfRank = {0};
  for (const std::vector<Id> &rank : ranks) {
    schedule.order.insert(schedule.order.end(), rank.begin(), rank.end());
    schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
  }
  return schedule;
}

std::string errorsOf(const Graph &graph, const Schedule &schedule) {
  std::string text;
  Result result = verify::verifySchedule(graph, schedule);
  for (const Finding &finding : result.errors) {
    text += std::string(verify::findingKindName(finding.kind)) + ": " +
            finding.message + "\n";
    for (const verify::Step &step : finding.story)
      text += "  " + step.text + "\n";
  }
  return text;
}

} // namespace

TEST_CASE("verify: a good schedule") {
  Schedule schedule = scheduleOf({{0, 4, 1, 5}, {2, 3, 6, 7}});
  CHECK(errorsOf(twoStages(2), schedule).empty());
  Result result = verify::verifySchedule(twoStages(2), schedule);
  CHECK((result.holds[0] && result.holds[1] && result.holds[2]));
}

TEST_CASE("verify: a schedule without a node, or with one twice") {
  CHECK(errorsOf(twoStages(1), scheduleOf({{0}, {2, 3}})) ==
        "missing: 0B0 is missing from the schedule\n");
  CHECK(errorsOf(twoStages(1), scheduleOf({{0, 1, 0}, {2, 3}})) ==
        "duplicate: 0F0 stands twice: again as operation 2 of rank 0\n");
}

TEST_CASE("verify: a schedule with numbers out of range") {
  CHECK(errorsOf(twoStages(1), scheduleOf({{0, 1}, {2, 3, 4}})) ==
        "malformed: operation 2 of rank 1 is node 4, the graph has 4\n");
  Schedule cut = scheduleOf({{0, 1}, {2, 3}});
  cut.firstOfRank.back() = 3;
  CHECK(errorsOf(twoStages(1), cut) ==
        "malformed: the ranks of the schedule do not cover its 4 operations\n");
  Graph graph = twoStages(1);
  graph.nodes[3].microbatch = 5;
  CHECK(errorsOf(graph, scheduleOf({{0, 1}, {2, 3}})) ==
        "malformed: node 3 of the graph names stage 1 and microbatch 5, the "
        "graph has 2 stages and 1 microbatches\n");
}

TEST_CASE("verify: a schedule whose orders and dependences make a circle") {
  Graph graph = twoStages(2);
  Schedule schedule = scheduleOf({{1, 0, 4, 5}, {2, 3, 6, 7}});
  CHECK(errorsOf(graph, schedule) ==
        "deadlock: 0B0 on rank 0 needs 0F0 on rank 0, which comes after it\n"
        "  0F0 on rank 0 comes after 0B0 on rank 0\n"
        "  0B0 on rank 0 needs 0F0 on rank 0\n");
  Schedule crossed = scheduleOf({{0, 4, 5, 1}, {2, 3, 6, 7}});
  CHECK(errorsOf(graph, crossed).empty());
  // Rank 1 wants microbatch 1 first, rank 0 makes it only after the backward
  // of microbatch 0.
  Schedule circle = scheduleOf({{0, 1, 4, 5}, {6, 2, 3, 7}});
  CHECK(errorsOf(graph, circle) ==
        "deadlock: 0B0 on rank 0 and 1F1 on rank 1 wait for each other\n"
        "  0B0 on rank 0 needs 1B0 on rank 1\n"
        "  1B0 on rank 1 comes after 1F0 on rank 1\n"
        "  1F0 on rank 1 comes after 1F1 on rank 1\n"
        "  1F1 on rank 1 needs 0F1 on rank 0\n"
        "  0F1 on rank 0 comes after 0B0 on rank 0\n");
  CHECK(verify::verifySchedule(graph, circle).errors[0].cycle.size() == 5);
}

TEST_CASE("verify: a schedule that moves a microbatch to another rank") {
  CHECK(errorsOf(twoStages(1), scheduleOf({{0}, {2, 3, 1}})) ==
        "order: 0B0 is on rank 1, the rest of stage 0, microbatch 0 on rank "
        "0\n");
}
