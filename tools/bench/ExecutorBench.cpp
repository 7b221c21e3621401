//===- tools/bench/ExecutorBench.cpp - What an operation costs the host --===//
//
// Empty operations and messages of 0 bytes: two ranks, a thread each, 1f1b. The
// time of an operation is the wall time of a step over the operations of a
// rank. The plug-in of `cuda` that lies beside this program has CUDA and NCCL
// that do nothing (tests/cuda/double/Off.cpp): what is measured is the host.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"
#include "compiler/spec/Parser.h"
#include "runtime/Job.h"
#include "runtime/Modules.h"

#include <benchmark/benchmark.h>

#include <algorithm>

namespace sluice {

static std::optional<Plan> compilePlan(int64_t microbatches) {
  std::string text = "sluice: 1\n"
                     "model: {layers: [{name: layer, repeat: 2, forward: 0, "
                     "backward: 0}]}\n"
                     "pipeline: {ranks: 2, microbatches: " +
                     std::to_string(microbatches) + "}\n";
  Diagnostics diagnostics;
  Compilation compilation(diagnostics);
  compilation.spec = parseSpec(text, "bench.yaml", {}, diagnostics);
  if (!compilation.spec || !runPipeline(fullPipeline(), compilation))
    return std::nullopt;
  return std::move(compilation.plan);
}

static void execute(benchmark::State &state, const char *backend, bool graphs) {
  std::optional<Plan> plan = compilePlan(state.range(0));
  if (!plan) {
    state.SkipWithError("the compile failed");
    return;
  }
  runtime::JobOptions options;
  options.module = runtime::findModule("synthetic");
  options.backend = backend;
  options.graphs = graphs;
  options.steps = 20;
  options.recordLastStep = false;
  options.costSteps = 0;
  auto perRank = static_cast<double>(operationCount(*plan)) / 2;
  for (auto _ : state) {
    runtime::JobResult result;
    if (!runtime::runJob(*plan, options, result).ok()) {
      state.SkipWithError("the run failed");
      return;
    }
    auto middle = result.stepSeconds.begin() + result.stepSeconds.size() / 2;
    std::nth_element(result.stepSeconds.begin(), middle,
                     result.stepSeconds.end());
    state.SetIterationTime(*middle);
    state.counters["ns/operation"] = *middle / perRank * 1e9;
  }
}

BENCHMARK_CAPTURE(execute, host, "host", false)
    ->Arg(1024)
    ->UseManualTime()
    ->Iterations(20)
    ->Unit(benchmark::kMicrosecond);
#ifdef SLUICE_BENCH_CUDA
BENCHMARK_CAPTURE(execute, cuda, "cuda", false)
    ->Arg(1024)
    ->UseManualTime()
    ->Iterations(20)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(execute, cuda with a graph, "cuda", true)
    ->Arg(1024)
    ->UseManualTime()
    ->Iterations(20)
    ->Unit(benchmark::kMicrosecond);
#endif

} // namespace sluice
