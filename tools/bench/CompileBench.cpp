//===- tools/bench/CompileBench.cpp - Speed of a whole compile -----------===//
//
// From the text of a spec to a plan file on a memory file system, all gates on;
// and the search for warmup counts by itself.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"
#include "compiler/spec/Parser.h"
#include "ir/PlanFile.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>

namespace sluice {

static std::string specOf(const char *schedule, int64_t ranks, int64_t chunks,
                          int64_t microbatches) {
  return "sluice: 1\n"
         "model:\n"
         "  layers: [{name: layer, repeat: " +
         std::to_string(ranks * chunks) +
         ", forward: 1, backward: 2, activation_bytes: 4096, "
         "output_bytes: 1024, params: 1000}]\n"
         "pipeline: {ranks: " +
         std::to_string(ranks) +
         ", microbatches: " + std::to_string(microbatches) +
         ", virtual_stages: " + std::to_string(chunks) +
         ", schedule: " + schedule + "}\n";
}

/// Compiles; returns the number of operations, 0 if that failed.
static uint64_t compileTo(const std::string &text, const std::string &path) {
  Diagnostics diagnostics;
  Compilation compilation(diagnostics);
  compilation.spec = parseSpec(text, "bench.yaml", {}, diagnostics);
  if (!compilation.spec || !runPipeline(fullPipeline(), compilation) ||
      !writePlanFile(*compilation.plan, path).ok())
    return 0;
  return operationCount(*compilation.plan);
}

/// Most memory that this process has held, since the last call with `reset`.
static double peakBytes(bool reset) {
  if (reset)
    std::ofstream("/proc/self/clear_refs") << "5";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0)
      return std::strtod(line.c_str() + 6, nullptr) * 1024;
  return 0;
}

static void compile(benchmark::State &state, const char *schedule) {
  std::string text =
      specOf(schedule, state.range(0), state.range(1), state.range(2));
  std::string path = "/dev/shm/sluice-bench-" + std::to_string(::getpid());
  uint64_t operations = 0;
  peakBytes(/*reset=*/true);
  for (auto _ : state) {
    operations = compileTo(text, path);
    if (operations == 0)
      state.SkipWithError("the compile failed");
  }
  std::remove(path.c_str());
  auto count = static_cast<double>(operations);
  state.counters["operations"] = count;
  state.counters["operations/s"] =
      benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["peak_bytes/operation"] = peakBytes(false) / count;
}

/// The text of a spec with more keys of the pipeline.
static std::string withKeys(std::string text, const std::string &keys) {
  return text.insert(text.rfind('}'), keys);
}

/// Runs the passes from `begin` up to the one before `end`; seconds.
static double secondsOf(Compilation &c, llvm::StringRef begin,
                        llvm::StringRef end) {
  using Clock = std::chrono::steady_clock;
  Pipeline passes = pipelineBefore(end);
  size_t first = pipelineBefore(begin).size();
  passes.erase(passes.begin(), passes.begin() + first);
  Clock::time_point start = Clock::now();
  runPipeline(passes, c);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// `warmup: auto` over one scheduling of the same stages: order, graph,
/// schedule and simulation.
static void warmup(benchmark::State &state, const char *schedule,
                   const char *keys) {
  Diagnostics diagnostics;
  Compilation c(diagnostics);
  c.spec = parseSpec(
      withKeys(specOf(schedule, state.range(0), state.range(1), state.range(2)),
               keys),
      "bench.yaml", {}, diagnostics);
  if (!c.spec || !runPipeline(pipelineBefore("warmup"), c))
    return state.SkipWithError("the compile failed");
  double search = 0, scheduling = 0;
  for (auto _ : state) {
    search += secondsOf(c, "warmup", "order");
    scheduling += secondsOf(c, "order", "verify-schedule") +
                  secondsOf(c, "simulate", "lower");
  }
  state.counters["schedulings"] = search / scheduling;
}

BENCHMARK_CAPTURE(compile, 1f1b, "1f1b")
    ->Args({64, 1, 512})
    ->Args({64, 1, 4096})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile, interleaved, "interleaved-1f1b")
    ->Args({64, 2, 512})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile, zb_v, "zb-v")
    ->Args({64, 2, 512})
    ->Unit(benchmark::kMillisecond);

constexpr const char *kFree = ", warmup: auto";
/// Half of what 1f1b on 64 ranks takes.
constexpr const char *kLimited = ", warmup: auto, memory_limit: 160KiB";

BENCHMARK_CAPTURE(warmup, 1f1b, "1f1b", kFree)
    ->Args({8, 1, 32})
    ->Args({64, 1, 512})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(warmup, 1f1b_limited, "1f1b", kLimited)
    ->Args({64, 1, 512})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(warmup, interleaved, "interleaved-1f1b", kFree)
    ->Args({64, 2, 512})
    ->Unit(benchmark::kMillisecond);

} // namespace sluice
