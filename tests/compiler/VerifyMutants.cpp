//===- tests/compiler/VerifyMutants.cpp - Changes to compiled plans -------===//
//
// Small plans of every schedule, as the compiler makes them: the verifier must
// refuse what a small change makes wrong, or the explorer must find it
// harmless.
//
//===----------------------------------------------------------------------===//
#include "tests/compiler/ScheduleForTests.h"
#include "tests/ir/MutantCheck.h"

#include <set>

using namespace sluice;
using namespace sluice::testing;
using tests::Compiled;

namespace {

struct SmallCase {
  const ScheduleInfo &schedule;
  uint32_t ranks, chunks, microbatches;
  bool splits = false;
  bool tied = false;
  bool recomputes = false;
  bool offloads = false;
};

/// Layers of uneven times and sizes, so that messages cross and buffers differ.
std::string layers(uint32_t count) {
  std::string lines = "  layers:\n";
  for (uint32_t i = 0; i < count; ++i)
    lines += "    - {name: l, forward: " + std::to_string(1 + i * 5 % 3) +
             ", backward_input: " + std::to_string(1 + i % 2) +
             ", backward_weight: " + std::to_string(2 - i % 2) +
             ", activation_bytes: " + std::to_string(600 + 300 * (i % 3)) +
             ", kept_for_weight: 200, output_bytes: " +
             std::to_string(i % 4 == 3 ? 0 : 300) + ", params: 40}\n";
  return lines;
}

std::string transformer(uint32_t count) {
  return "  transformer: {layers: " + std::to_string(count) +
         ", hidden: 8, heads: 2, vocab: 16, sequence: 4, "
         "tied_embeddings: true}\n";
}

/// One per stage, in turn.
std::string policies(uint32_t stages) {
  std::string list;
  for (uint32_t stage = 0; stage < stages; ++stage)
    list += (stage == 0 ? "[" : ", ") +
            std::string(kRecomputePolicies[2 - stage % 3]);
  return list + "]";
}

std::string specOf(const SmallCase &of) {
  uint32_t stages = of.ranks * of.chunks;
  return "sluice: 1\nmodel:\n" +
         (of.tied ? transformer(stages + 1) : layers(stages)) +
         "pipeline: {ranks: " + std::to_string(of.ranks) +
         ", virtual_stages: " + std::to_string(of.chunks) +
         ", microbatches: " + std::to_string(of.microbatches) +
         ", schedule: " + std::string(of.schedule.text) +
         (of.splits ? ", backward: split" : "") +
         (of.recomputes ? ", recompute: " + policies(stages) : "") +
         (of.offloads
              ? ", offload: activations}\ncluster: {host_link: {latency: 1}"
              : "") +
         "}\n";
}

/// Every combination that a schedule takes.
std::vector<Plan> smallPlans() {
  std::vector<Plan> plans;
  std::set<std::string_view> seen;
  for (const ScheduleInfo &schedule : allSchedules())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks)
      for (uint32_t chunks = 1; chunks <= 2; ++chunks)
        for (uint32_t microbatches = 1; microbatches <= 4; ++microbatches)
          for (unsigned kind = 0; kind < 5; ++kind) {
            SmallCase of{schedule,
                         ranks,
                         chunks,
                         microbatches,
                         kind == 1,
                         kind == 2,
                         kind == 3 || (kind == 4 && chunks == 2),
                         kind == 4};
            bool asks = of.splits && schedule.backward != BackwardRule::Either;
            bool large = ranks == 4 && plans.size() % 4 != 0 &&
                         seen.count(schedule.text) != 0;
            if (asks || large ||
                (schedule.chunks != 0 && schedule.chunks != chunks))
              continue;
            Compiled compiled(specOf(of));
            if (!compiled.ok)
              continue;
            seen.insert(schedule.text);
            plans.push_back(std::move(*compiled.compilation.plan));
          }
  CHECK(seen.size() == allSchedules().size());
  return plans;
}

/// How many plans have an operation that `wanted` takes.
template <typename Wanted>
unsigned countWith(const std::vector<Plan> &plans, Wanted wanted) {
  unsigned count = 0;
  for (const Plan &plan : plans) {
    bool has = false;
    for (const RankPlan &rank : plan.ranks)
      has |= std::any_of(rank.ops.begin(), rank.ops.end(), wanted);
    count += has;
  }
  return count;
}

} // namespace

TEST_CASE("mutants: plans of every schedule are harmless as they are made") {
  std::vector<Plan> plans = smallPlans();
  for (const Plan &plan : plans) {
    CAPTURE(plan.schedule, plan.ranks.size(), plan.microbatches);
    REQUIRE(verify::verifyPlan(plan).ok());
    Explorer explorer(plan);
    checkHangs(explorer, verify::verifyPlan(plan));
    checkAccepted(plan, explorer);
  }
  for (Op op : {Op::Offload, Op::Reload, Op::Recompute, Op::Backward,
                Op::BackwardWeight, Op::SendGradients, Op::AddGradients,
                Op::SendTied, Op::OptimizerStep})
    CHECK(countWith(plans, [op](const PlanOp &each) { return each.op == op; }) >
          5);
  CHECK(countWith(plans, [](const PlanOp &each) {
          return isCompute(each.op) && each.group != kNone;
        }) > 2);
}

TEST_CASE("mutants: of every schedule, what is accepted is harmless") {
  unsigned count = countFromEnvironment("SLUICE_MUTANTS", 4000);
  MutantCounts counts = checkMutants(smallPlans(), count, 20250214);
  CHECK(counts.refused > counts.accepted);
  CHECK(counts.accepted > count / 50);
  CHECK(counts.deadlocks > 10);
  if (count > 4000)
    WARN(describe(counts));
}
