//===- tests/runtime/MutantRuns.cpp - Changed plans in the executor -------===//
//
// Larger plans than an explorer can judge: what the verifier accepts of their
// mutants must run to its end with every byte right, however long each call
// takes. Of what it refuses some is run too, to see that runs can tell.
//
//===----------------------------------------------------------------------===//
#include "ir/PlanFile.h"
#include "ir/verify/Verify.h"
#include "runtime/Job.h"
#include "tests/Catch.h"
#include "tests/ir/Mutation.h"
#include "tests/runtime/HookedModule.h"
#include "tests/runtime/ScheduleTraining.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace sluice;
using namespace sluice::testing;
using namespace sluice::tests;

#if defined(__SANITIZE_THREAD__)
#define SLUICE_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_THREAD_SANITIZER 1
#endif
#endif

namespace {

#ifdef SLUICE_THREAD_SANITIZER
constexpr bool kRunsRefused = false; // their races are no news
#else
constexpr bool kRunsRefused = true;
#endif

struct LargeCase {
  const char *schedule;
  uint32_t ranks, chunks, microbatches;
};
constexpr LargeCase kCases[] = {
    {"1f1b", 4, 1, 8},          {"gpipe", 8, 1, 8},
    {"eager-1f1b", 5, 1, 9},    {"interleaved-1f1b", 4, 2, 8},
    {"zb-h1", 6, 1, 12},        {"zb-v", 4, 2, 8},
    {"dualpipe", 4, 1, 8},      {"dualpipev", 4, 2, 8},
    {"chimera", 4, 1, 8},       {"hanayo", 4, 2, 8},
    {"breadth-first", 4, 2, 8}, {"1f1b", 8, 1, 16}};

std::string layers(uint32_t count) {
  std::string lines = "  layers:\n";
  for (uint32_t i = 0; i < count; ++i)
    lines += "    - {name: l, forward: " + std::to_string(1 + i * 5 % 3) +
             ", backward_input: " + std::to_string(1 + i % 2) +
             ", backward_weight: " + std::to_string(2 - i % 2) +
             ", activation_bytes: " + std::to_string(600 + 300 * (i % 3)) +
             ", kept_for_weight: 200, output_bytes: 300, params: 40}\n";
  return lines;
}

std::vector<Plan> largePlans() {
  std::vector<Plan> plans;
  for (const LargeCase &of : kCases)
    plans.push_back(
        compileSpec("sluice: 1\nmodel:\n" + layers(of.ranks * of.chunks) +
                    "pipeline: {ranks: " + std::to_string(of.ranks) +
                    ", virtual_stages: " + std::to_string(of.chunks) +
                    ", microbatches: " + std::to_string(of.microbatches) +
                    ", schedule: " + of.schedule + "}\n"));
  for (const char *schedule : {"1f1b", "dualpipe"})
    plans.push_back(compileSpec(
        "sluice: 1\nmodel:\n  transformer: {layers: 6, hidden: 8, heads: 2, "
        "vocab: 16, sequence: 4, tied_embeddings: true}\n"
        "pipeline: {ranks: 4, microbatches: 8, schedule: " +
        std::string(schedule) + "}\n"));
  return plans;
}

/// Every fourth call of a stage is late, by up to `most` microseconds.
int delay(std::string_view, Id, const sluice_call *, sluice_error *) {
  static std::atomic<unsigned> threads{0};
  static thread_local std::mt19937 random(threads++);
  constexpr unsigned kMost = 200;
  if (random() % 4 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(random() % kMost));
  return 0;
}

Status runDelayed(const Plan &plan, double timeout) {
  WithHooks hooks({.before = delay});
  runtime::JobOptions options;
  options.module = hookedModule();
  options.steps = 2;
  options.timeoutSeconds = timeout;
  options.recordLastStep = false;
  options.costSteps = 0;
  runtime::JobResult result;
  return runtime::runJob(plan, options, result);
}

/// Whether a plan file would give the plan back.
bool canLoad(const Plan &plan) {
  if (!checkHeader(plan).ok())
    return false;
  for (Id rank = 0; rank < plan.ranks.size(); ++rank)
    if (!checkStructure(plan, rank).ok())
      return false;
  return true;
}

/// Whether a refused plan can be run without harm to the test: what is wrong
/// must be the order of things, and a message must not leave its buffer.
bool canRun(const Plan &plan, const verify::Result &result) {
  using verify::FindingKind;
  for (const verify::Finding &finding : result.errors)
    if (finding.kind != FindingKind::Deadlock &&
        finding.kind != FindingKind::Mismatch &&
        finding.kind != FindingKind::Lifetime &&
        finding.kind != FindingKind::Order)
      return false;
  for (const Stage &stage : plan.stages)
    if (stage.tiedTo != kNone)
      return false;
  return true;
}

/// What is right, but more than the executor can do: it says so before it runs.
bool isBeyondExecutor(const Status &status) {
  return status.fault() == Fault::Input &&
         status.message().find("a group on two streams") != std::string::npos;
}

struct RunCounts {
  unsigned mutants = 0, ran = 0, beyond = 0, refusedRuns = 0, caught = 0;
};

void runMutant(const Plan &plan, unsigned wantedRefused, RunCounts &counts) {
  if (!canLoad(plan))
    return;
  verify::Result result = verify::verifyPlan(plan);
  ++counts.mutants;
  if (result.ok()) {
    Status status = runDelayed(plan, 60);
    INFO(status.message());
    CHECK((status.ok() || isBeyondExecutor(status)));
    ++(status.ok() ? counts.ran : counts.beyond);
  } else if (kRunsRefused && counts.refusedRuns < wantedRefused &&
             canRun(plan, result)) {
    ++counts.refusedRuns;
    counts.caught += !runDelayed(plan, 0.2).ok();
  }
}

} // namespace

TEST_CASE("mutants: what is accepted runs with any delays") {
  constexpr unsigned kStandard = 100;
  unsigned wanted = countFromEnvironment("SLUICE_MUTANT_RUNS", kStandard);
  std::vector<Plan> plans = largePlans();
  std::mt19937 random(20250301);
  RunCounts counts;
  for (unsigned n = 0; counts.ran < wanted; ++n) {
    auto change = static_cast<Change>(n % kChangeCount);
    Plan plan = plans[random() % plans.size()];
    if (!mutate(plan, change, random))
      continue;
    INFO("mutant " << n << " of " << plan.schedule << ": "
                   << kChangeNames[static_cast<unsigned>(change)]);
    runMutant(plan, wanted / 10, counts);
  }
  CHECK((counts.caught > 0 || !kRunsRefused));
  if (wanted > kStandard)
    WARN(counts.mutants << " mutants, " << counts.ran << " accepted and run, "
                        << counts.beyond << " with groups on two streams, "
                        << counts.refusedRuns << " refused and run, of which "
                        << counts.caught << " hang or fail");
}
