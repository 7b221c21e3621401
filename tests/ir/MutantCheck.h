//===- tests/ir/MutantCheck.h - The verifier against the explorer ---------===//
#ifndef SLUICE_TESTS_IR_MUTANTCHECK_H
#define SLUICE_TESTS_IR_MUTANTCHECK_H

#include "ir/verify/Verify.h"
#include "tests/Catch.h"
#include "tests/ir/Explorer.h"
#include "tests/ir/FindingsForTests.h"
#include "tests/ir/Mutation.h"
#include "tests/ir/Unfold.h"

#include <array>
#include <span>

namespace sluice::testing {

/// What became of some mutants.
struct MutantCounts {
  unsigned mutants = 0, refused = 0, accepted = 0, deadlocks = 0;
  /// Refused for lifetimes or order alone, and of these, harmless.
  unsigned careful = 0, harmless = 0;
  std::array<unsigned, kChangeCount> acceptedOf{};
};

/// The smallest buffering under which `explorer` ends, tried one by one.
inline std::optional<uint32_t> leastBuffering(Explorer &explorer) {
  for (uint32_t n = 0; n <= explorer.longestChannel(); ++n)
    if (!explorer.hangs(Queue::Rank, n))
      return n;
  return std::nullopt;
}

/// How often each operation stands in a list, or in all.
using OpCounts = std::array<unsigned, kOpCount>;
inline unsigned numberOf(const OpCounts &counts, Op op) {
  return counts[static_cast<unsigned>(op)];
}

/// Every stage and microbatch has one forward and, if it is trained, one
/// backward, whole or in two parts.
inline bool computesAll(const Plan &plan) {
  std::map<std::pair<Id, Id>, OpCounts> counts;
  for (const RankPlan &rank : plan.ranks)
    for (const PlanOp &op : rank.ops)
      if (isCompute(op.op))
        ++counts[{op.stage, op.microbatch}][static_cast<unsigned>(op.op)];
  for (Id s = 0; s < plan.stages.size(); ++s)
    for (Id k = 0; k < plan.microbatches; ++k) {
      const OpCounts &count = counts[{s, k}];
      unsigned inputs = numberOf(count, Op::BackwardInput);
      if (numberOf(count, Op::Forward) != 1 ||
          inputs != numberOf(count, Op::BackwardWeight) ||
          numberOf(count, Op::Backward) + inputs !=
              (plan.stages[s].backward ? 1u : 0u))
        return false;
    }
  return true;
}

/// What goes to host memory comes back, once.
inline bool movesAll(const Plan &plan) {
  std::map<std::pair<Id, Id>, OpCounts> counts;
  for (const RankPlan &rank : plan.ranks)
    for (const PlanOp &op : rank.ops)
      if (isCopy(op.op))
        ++counts[{op.stage, op.microbatch}][static_cast<unsigned>(op.op)];
  return std::all_of(counts.begin(), counts.end(), [](const auto &of) {
    return numberOf(of.second, Op::Offload) == 1 &&
           numberOf(of.second, Op::Reload) == 1;
  });
}

/// If there is any step, every rank takes one of each trained stage that it
/// computes, after its copies have sent and added their gradients.
inline bool updatesAll(const Plan &plan) {
  std::map<Id, std::map<Id, OpCounts>> counts; // of a stage, on a rank
  unsigned steps = 0;
  for (Id r = 0; r < plan.ranks.size(); ++r)
    for (const PlanOp &op : plan.ranks[r].ops) {
      ++counts[op.stage][r][static_cast<unsigned>(op.op)];
      steps += op.op == Op::OptimizerStep;
    }
  for (auto &[stage, ranks] : counts) {
    std::erase_if(ranks, [](const auto &of) {
      return numberOf(of.second, Op::Forward) == 0;
    });
    for (const auto &[rank, count] : ranks) {
      unsigned sent = numberOf(count, Op::SendGradients);
      unsigned reduced = numberOf(count, Op::AllReduceGradients) +
                         numberOf(count, Op::ReduceScatterGradients);
      unsigned gathered = plan.stages[stage].optimizerParts > 1 ? 1 : 0;
      bool sums = ranks.size() < 2 || sent + reduced == 1;
      if (steps != 0 && plan.stages[stage].backward &&
          (numberOf(count, Op::OptimizerStep) != 1 || !sums ||
           numberOf(count, Op::AllGatherParameters) != gathered ||
           numberOf(count, Op::AddGradients) != sent))
        return false;
    }
  }
  return true;
}

/// Whether it hangs is told exactly, under every progress model, and how many
/// buffers would help.
inline void checkHangs(Explorer &explorer, const verify::Result &result) {
  constexpr Queue kQueues[] = {Queue::Rank, Queue::Pair, Queue::Edge,
                               Queue::None};
  static_assert(std::size(kQueues) == std::size(verify::kProgressModels));
  for (unsigned model = 0; model < std::size(kQueues); ++model)
    CHECK(explorer.hangs(kQueues[model]) != result.holds[model]);
  CHECK(leastBuffering(explorer) == result.minBuffering);
}

/// What is accepted is whole and right in every interleaving of its streams,
/// the loosest model.
inline void checkAccepted(const Plan &plan, Explorer &explorer) {
  CHECK(computesAll(plan));
  CHECK(updatesAll(plan));
  CHECK(movesAll(plan));
  CHECK(!explorer.mismatched);
  CHECK(!explorer.tooSmall);
  CHECK(!explorer.misbound);
  CHECK(!explorer.lacksOperand);
  Explored explored = explorer.exploreCells(Queue::None);
  CHECK(!explored.hangs);
  CHECK(!explored.wrongData);
}

inline bool onlyCareful(const verify::Result &result) {
  for (const verify::Finding &finding : result.errors)
    if (finding.kind != verify::FindingKind::Lifetime &&
        finding.kind != verify::FindingKind::Order)
      return false;
  return true;
}

inline void checkMutant(const Plan &plan, Change change, MutantCounts &counts) {
  verify::Result result = verify::verifyPlan(plan);
  bool mismatch = has(result, verify::FindingKind::Mismatch);
  bool deadlock = has(result, verify::FindingKind::Deadlock);
  ++counts.mutants;
  counts.deadlocks += deadlock;
  ++(result.ok() ? counts.accepted : counts.refused);
  if (has(result, verify::FindingKind::Malformed))
    return; // it has no meaning that could be explored
  const Plan whole = unfold(plan);
  Explorer explorer(whole);
  INFO(allOf(plan, result.errors));
  CHECK(mismatch == explorer.mismatched);
  CHECK((mismatch || deadlock == explorer.hangs()));
  if (!mismatch)
    checkHangs(explorer, result);
  if (result.ok()) {
    ++counts.acceptedOf[static_cast<unsigned>(change)];
    return checkAccepted(whole, explorer);
  }
  if (!onlyCareful(result))
    return;
  ++counts.careful;
  Explored explored = explorer.exploreCells(Queue::None);
  counts.harmless += !explored.hangs && !explored.wrongData;
}

/// Mutates `plans` in turn until `count` were tried.
inline MutantCounts checkMutants(std::span<const Plan> plans, unsigned count,
                                 unsigned seed) {
  MutantCounts counts;
  std::mt19937 random(seed);
  for (unsigned n = 0; counts.mutants < count; ++n) {
    auto change = static_cast<Change>(n % kChangeCount);
    Plan plan = plans[random() % plans.size()];
    if (!mutate(plan, change, random))
      continue;
    INFO("mutant " << n << " of " << plan.schedule << ": "
                   << kChangeNames[static_cast<unsigned>(change)]);
    checkMutant(plan, change, counts);
  }
  return counts;
}

/// For longer runs by hand: what to tell of them.
inline std::string describe(const MutantCounts &counts) {
  std::string text = std::to_string(counts.mutants) + " mutants, " +
                     std::to_string(counts.refused) + " refused, " +
                     std::to_string(counts.accepted) +
                     " accepted and harmless, " +
                     std::to_string(counts.deadlocks) + " deadlocks; of " +
                     std::to_string(counts.careful) +
                     " refused for lifetimes or order alone " +
                     std::to_string(counts.harmless) + " are harmless";
  for (unsigned change = 0; change < kChangeCount; ++change)
    text += std::string("\n  ") + kChangeNames[change] + ": " +
            std::to_string(counts.acceptedOf[change]) + " accepted";
  return text;
}

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_MUTANTCHECK_H
