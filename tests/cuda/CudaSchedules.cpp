//===- tests/cuda/CudaSchedules.cpp - Every schedule over the double ------===//
//
// What the double proves of a run does not hang on which of several streams
// happens to go on: its vector clocks know what is ordered. The seeds try what
// happens all the same.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"
#include "compiler/simulate/Simulate.h"
#include "tests/cuda/CudaRuns.h"
#include "tests/cuda/WatchedModule.h"

#include <algorithm>
#include <set>

using namespace sluice;
using namespace sluice::tests;

namespace {

constexpr Ticks kLatency = 7'000'000; // 7 us
constexpr Bytes kBandwidth = 50'000'000'000;

/// Stages of unequal costs; `recompute` and `backward` are keys of the
/// pipeline.
std::string specOf(const ScheduleInfo &schedule, uint32_t ranks,
                   uint32_t microbatches, const std::string &keys) {
  const uint32_t chunks = schedule.chunks != 0 ? schedule.chunks : 2;
  std::string layers;
  for (uint32_t stage = 0; stage < ranks * chunks; ++stage)
    layers += "    - {name: l" + std::to_string(stage) +
              ", forward: " + std::to_string(90 + stage % 3 * 13) +
              "us, backward_input: " + std::to_string(101 + stage % 4 * 7) +
              "us, backward_weight: " + std::to_string(80 - stage % 2 * 11) +
              "us, params: 40, activation_bytes: 900, kept_for_weight: 300, "
              "output_bytes: " +
              std::to_string(1000 + stage % 2 * 24) + "}\n";
  return "sluice: 1\nmodel:\n  layers:\n" + layers +
         "pipeline: {ranks: " + std::to_string(ranks) +
         ", virtual_stages: " + std::to_string(chunks) +
         ", microbatches: " + std::to_string(microbatches) +
         ", schedule: " + std::string(schedule.text) + keys +
         "}\ncluster: {link: {latency: 7us, bandwidth: 50GB/s}, host_link: "
         "{bandwidth: 20GB/s}}\n";
}

/// Every schedule for 2, 4 and 8 ranks.
std::vector<Plan> plansOfAll() {
  std::vector<Plan> plans;
  for (const ScheduleInfo &schedule : allSchedules())
    for (const uint32_t ranks : {2u, 4u, 8u}) {
      const char *keys = ranks != 4 || schedule.backward == BackwardRule::None
                             ? ""
                             : ", recompute: full";
      std::optional<Plan> plan; // as few microbatches as it takes
      for (uint32_t count = ranks; !plan && count <= 2 * ranks; count += ranks)
        plan = tryCompile(specOf(schedule, ranks, count, keys));
      INFO(schedule.text << ", " << ranks << " ranks");
      REQUIRE(plan);
      plans.push_back(std::move(*plan));
    }
  return plans;
}

/// Bytes over the bandwidth, rounded up, in picoseconds.
cudadouble::TransferCost linkCost(int, int, size_t bytes) {
  if (bytes == 1) // of the first contact
    return {};
  const auto picoseconds =
      static_cast<unsigned __int128>(bytes) * 1'000'000'000'000;
  return {static_cast<Ticks>((picoseconds + kBandwidth - 1) / kBandwidth),
          kLatency};
}

void runWatched(const Plan &plan, const cudadouble::Settings &settings,
                uint32_t devices, uint64_t steps) {
  cudadouble::reset(settings);
  runtime::JobOptions options = cudaJob(watchedModule(), steps);
  options.devices = devices;
  options.recordLastStep = false;
  const Watching watching(plan);
  runtime::JobResult result;
  const Status status = runtime::runJob(plan, options, result);
  INFO(status.message());
  CHECK(status.ok());
  checkClean();
}

} // namespace

TEST_CASE("schedules: a step takes what the report says, to the picosecond") {
  std::set<std::string> seen;
  for (const Plan &plan : plansOfAll()) {
    INFO(plan.schedule << ", " << plan.ranks.size() << " ranks");
    cudadouble::Settings settings;
    settings.measureHostFunctions = false;
    settings.transferCost = linkCost;
    settings.failOnDeadlock = true;
    runWatched(plan, settings, 0, 1);
    CHECK(cudadouble::virtualTime() == simulatePlan(plan)->makespan);
    seen.insert(plan.schedule);
  }
  CHECK(seen.size() == allSchedules().size());
}

TEST_CASE("schedules: a device that has room for one communicator") {
  for (const Plan &plan : plansOfAll()) {
    INFO(plan.schedule << ", " << plan.ranks.size() << " ranks");
    cudadouble::Settings settings;
    settings.residentCommunicators = 1;
    settings.measureHostFunctions = false;
    settings.failOnDeadlock = true;
    runWatched(plan, settings, 0, 2);
  }
}

TEST_CASE("schedules: 50 orders of the device each, no race, no deadlock") {
  for (const Plan &plan : plansOfAll())
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      INFO(plan.schedule << ", " << plan.ranks.size() << " ranks, seed "
                         << seed);
      cudadouble::Settings settings;
      settings.seed = seed;
      settings.measureHostFunctions = false;
      settings.failOnDeadlock = true;
      runWatched(plan, settings, 0, 1);
    }
}

TEST_CASE("schedules: what goes to host memory and comes back") {
  size_t copying = 0;
  for (const ScheduleInfo &schedule : allSchedules()) {
    std::optional<Plan> plan =
        tryCompile(specOf(schedule, 4, 8, ", offload: activations"));
    if (!plan)
      continue;
    for (const RankPlan &rank : plan->ranks)
      copying +=
          std::any_of(rank.ops.begin(), rank.ops.end(),
                      [](const PlanOp &op) { return op.op == Op::Offload; });
    for (const uint64_t seed : {0, 1, 2, 3}) {
      INFO(schedule.text << ", seed " << seed);
      cudadouble::Settings settings;
      settings.seed = seed;
      settings.measureHostFunctions = false;
      settings.failOnDeadlock = true;
      runWatched(*plan, settings, 0, 2);
    }
  }
  CHECK(copying > 10);
}

TEST_CASE("schedules: ranks that share one GPU, or two") {
  const uint32_t devices = GENERATE(1u, 2u);
  for (const Plan &plan : plansOfAll()) {
    if (devices == plan.ranks.size())
      continue;
    INFO(plan.schedule << ", " << plan.ranks.size() << " ranks on " << devices);
    cudadouble::Settings settings;
    settings.seed = 3;
    settings.measureHostFunctions = false;
    runWatched(plan, settings, devices, 2);
  }
}
