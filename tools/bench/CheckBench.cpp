//===- tools/bench/CheckBench.cpp - Speed of `sluice check` --------------===//
//
// In one process, the file on a memory file system: a plan is read and proved,
// a CSV is read, made a plan and proved.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/Emit.h"
#include "compiler/passes/PassManager.h"
#include "compiler/spec/Parser.h"
#include "ir/PlanFile.h"
#include "tools/sluice/CsvSchedule.h"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <unistd.h>

namespace sluice {

static constexpr const char *kSpec =
    "sluice: 1\n"
    "model:\n"
    "  layers: [{name: layer, repeat: 128, forward: 1, backward: 2, "
    "activation_bytes: 4096, output_bytes: 1024, params: 1000}]\n"
    "pipeline: {ranks: 64, virtual_stages: 2, microbatches: 512, schedule: "
    "interleaved-1f1b}\n";

static std::string pathOf(const char *kind) {
  return "/dev/shm/sluice-bench-" + std::to_string(::getpid()) + kind;
}

static void count(benchmark::State &state, uint64_t operations) {
  auto number = static_cast<double>(operations);
  state.counters["operations"] = number;
  state.counters["operations/s"] =
      benchmark::Counter(number, benchmark::Counter::kIsIterationInvariantRate);
}

/// What is checked, compiled once.
static const Compilation &compiled() {
  static Diagnostics diagnostics;
  static Compilation compilation(diagnostics);
  if (!compilation.plan) {
    compilation.spec = parseSpec(kSpec, "bench.yaml", {}, diagnostics);
    (void)runPipeline(fullPipeline(), compilation);
  }
  return compilation;
}

static void checkPlan(benchmark::State &state, bool verifies) {
  std::string path = pathOf(".plan");
  if (!writePlanFile(*compiled().plan, path).ok())
    return state.SkipWithError("the plan cannot be written");
  verify::Options options;
  options.structureChecked = true;
  for (auto _ : state) {
    Plan plan;
    if (!readPlanFile(path, plan).ok() ||
        (verifies && !verify::verifyPlan(plan, options).ok()))
      state.SkipWithError("the plan is refused");
  }
  std::remove(path.c_str());
  count(state, operationCount(*compiled().plan));
}

static void checkCsv(benchmark::State &state, bool messages) {
  std::string path = pathOf(".csv"), text;
  llvm::raw_string_ostream out(text);
  if (messages)
    emitTorchCsvComms(*compiled().plan, out);
  else
    emitTorchCsv(*compiled().graph, *compiled().schedule, out);
  std::ofstream(path) << out.str();
  uint64_t operations = 0;
  for (auto _ : state) {
    Input input;
    Diagnostics diagnostics;
    Compilation c(diagnostics);
    (void)readInput(path, input);
    std::optional<CsvSchedule> csv = readCsv(input, {}, c);
    if (!csv || !verifyCsv(*csv, {}, c).ok())
      state.SkipWithError("the CSV is refused");
    operations = c.plan ? operationCount(*c.plan) : 0;
  }
  std::remove(path.c_str());
  count(state, operations);
}

BENCHMARK_CAPTURE(checkPlan, read alone, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(checkPlan, read and prove, true)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(checkCsv, with messages, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(checkCsv, compute alone, false)
    ->Unit(benchmark::kMillisecond);

} // namespace sluice
