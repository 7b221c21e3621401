#include "compiler/emit/Emit.h"
#include "tests/Catch.h"
#include "tests/compiler/ReportForTests.h"

using namespace sluice;
using namespace sluice::tests;

namespace {

template <typename Emit> std::string textOf(Emit emit) {
  std::string text;
  llvm::raw_string_ostream out(text);
  emit(out);
  return text;
}

/// Rows of every kind: the best, one over the limit, one that is refused, one
/// without backward, one that ranks leave at different times.
Comparison fullComparison() {
  Comparison comparison;
  comparison.model = "gpt";
  comparison.ranks = 4;
  comparison.microbatches = 8;
  comparison.objective = Objective::Span;
  comparison.memoryLimit = Bytes(8) << 30;
  ComparedSchedule row{.name = "1f1b",
                       .own = true,
                       .keys = {"layout", "warmup"},
                       .planned = true,
                       .makespan = 33 * kUnit,
                       .span = 33 * kUnit,
                       .bubbleFraction = 9.0 / 33,
                       .peakActivation = 4,
                       .hasBytes = true,
                       .bytes = Bytes(7) << 30,
                       .microbatches = Largest{8192, true},
                       .microbatchSize = Largest{1, false}};
  comparison.schedules.push_back(row);
  row.own = false;
  row.name = "gpipe";
  row.keys = {"layout"};
  row.reason = "over the limit by 1073741824 bytes";
  row.peakActivation = 8;
  row.bytes = Bytes(9) << 30;
  row.microbatches = Largest{7, false};
  row.microbatchSize = Largest{0, false};
  comparison.schedules.push_back(row);
  row.name = "zb-h2";
  row.keys = {"layout", "warmup"};
  row.reason = "";
  row.makespan = 27 * kUnit;
  row.span = 24 * kUnit;
  row.bubbleFraction = 3.0 / 27;
  row.bestMakespan = row.bestSpan = true;
  comparison.schedules.push_back(row);
  row.name = "forward-only";
  row.keys = {"layout"};
  row.trains = row.bestMakespan = row.bestSpan = false;
  row.makespan = row.span = 11 * kUnit + kUnit / 2;
  comparison.schedules.push_back(row);
  comparison.schedules.push_back({.name = "dualpipe",
                                  .keys = {"layout"},
                                  .reason = "needs an even number of ranks"});
  return comparison;
}

} // namespace

TEST_CASE("emit: schedules side by side") {
  Comparison comparison = fullComparison();
  checkGolden("report/compare.txt",
              textOf([&](auto &out) { emitComparisonText(comparison, out); }));
  checkGolden("report/compare.json", textOf([&](auto &out) {
                emitComparisonJson(comparison, nullptr, out);
              }));
}

TEST_CASE("emit: columns without anything are left out") {
  Comparison comparison = fullComparison();
  comparison.objective = Objective::Makespan;
  for (ComparedSchedule &row : comparison.schedules) {
    row.span = row.makespan;
    row.hasBytes = false;
    row.keys = {"layout"}; // of all rows
    row.microbatches = row.microbatchSize = std::nullopt;
  }
  std::string text =
      textOf([&](auto &out) { emitComparisonText(comparison, out); });
  CHECK(text.find("objective makespan") != std::string::npos);
  for (const char *left :
       {"largest", "most microbatches:", "best span", "note"})
    CHECK(text.find(left) == std::string::npos);
}

TEST_CASE("emit: the array stands in the report of the spec's own schedule") {
  Chain chain = evenChain(2, 2, 1, 1);
  Report own = Job(chain, gpipe(chain)).report();
  std::string with = textOf(
      [&](auto &out) { emitComparisonJson(fullComparison(), &own, out); });
  std::string without = textOf([&](auto &out) { emitReportJson(own, out); });
  std::string common = without.substr(0, without.rfind("\n}"));
  CHECK(with.substr(0, common.size()) == common);
  CHECK(with.substr(common.size(), 17) == ",\n  \"compare\": [\n");
}

TEST_CASE("emit: a CSV has one copy of each stage") {
  Graph graph;
  graph.stages.resize(2);
  graph.microbatches = 2;
  for (Id microbatch : {0u, 1u})
    for (Id stage : {0u, 1u})
      graph.nodes.push_back({kUnit, stage, microbatch, Op::Forward});
  graph.finalize();
  Schedule schedule;
  schedule.firstOfRank = {0, 2, 4};
  schedule.order = {0, 2, 1, 3};
  CHECK(whyNotTorchCsv(graph, schedule).empty());
  schedule.order = {0, 3, 1, 2}; // mirrored for microbatch 1
  CHECK(whyNotTorchCsv(graph, schedule) ==
        "PyTorch's CSV cannot say which of two copies of a stage computes: "
        "stage 1 is on rank 0 and on rank 1");
}
