//===- tests/compiler/ReportForTests.h - From a chain to its report ------===//
#ifndef SLUICE_TESTS_COMPILER_REPORTFORTESTS_H
#define SLUICE_TESTS_COMPILER_REPORTFORTESTS_H

#include "compiler/simulate/Report.h"
#include "tests/Catch.h"
#include "tests/Repository.h"
#include "tests/compiler/ChainForTests.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace sluice::tests {

/// A chain with all that is made from it, under a uniform network.
struct Job {
  Graph graph;
  Schedule schedule;
  Network network;
  ScheduleTiming timing;
  Plan plan;

  Job(Graph made, Schedule order, Link link = {})
      : graph(std::move(made)), schedule(std::move(order)),
        network(link, Link{}, 0) {
    auto simulated = simulateSchedule(graph, schedule, network);
    REQUIRE(simulated);
    timing = *simulated;
    plan = PlanForTests(graph, schedule, timing, network).lower();
  }
  Job(const Chain &chain, Schedule order, Link link = {})
      : Job(chainGraph(chain), std::move(order), link) {}

  Report report() const {
    return buildReport({"chain", graph, schedule, timing, network, &plan});
  }
  Timeline timeline() const { return timelineOf(graph, schedule, timing); }
};

/// Compares `actual` with a file under tests/golden/, or rewrites that file if
/// SLUICE_UPDATE_GOLDEN is set.
inline void checkGolden(const std::string &name, const std::string &actual) {
  std::string path = inRepository("tests/golden/" + name);
  if (std::getenv("SLUICE_UPDATE_GOLDEN"))
    std::ofstream(path, std::ios::binary) << actual;
  std::ifstream file(path, std::ios::binary);
  std::stringstream expected;
  expected << file.rdbuf();
  INFO(path);
  CHECK(actual == expected.str());
}

} // namespace sluice::tests

#endif // SLUICE_TESTS_COMPILER_REPORTFORTESTS_H
