#include "compiler/passes/RecomputeSearch.h"

#include "compiler/passes/PassManager.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

namespace sluice {

namespace {

using Policies = std::vector<RecomputePolicy>;

/// What policies come to.
struct Price {
  Ticks objective = 0;
  Ticks recompute = 0;       ///< of all stages, per microbatch
  std::vector<bool> over;    ///< per rank: more than the limit
  std::vector<Stage> stages; ///< as they are cut
  Placement placement;
  bool fits() const { return !llvm::is_contained(over, true); }
  auto cost() const { return std::pair(objective, recompute); }
};

class RecomputeSearch {
public:
  RecomputeSearch(const Spec &original, uint32_t stageCount)
      : spec(original), stages(stageCount) {}

  Policies run(uint32_t tries);

private:
  std::optional<Price> price(const Policies &policies);
  void findSteps();
  Policies enumerate();
  Policies raise();
  bool raiseRank(Id rank, const Price &price, Policies &policies) const;
  void takeBack(Policies &policies);
  RecomputePolicy after(Id stage, RecomputePolicy policy) const;

  Spec spec;
  uint32_t stages;
  /// Per stage the policies that differ there, by what R takes.
  std::vector<std::vector<RecomputePolicy>> steps;
  /// Per stage and policy, what R takes.
  std::vector<std::array<Ticks, std::size(kRecomputePolicies)>> times;
};
} // namespace

/// None if it does not compile, for another reason than its memory.
std::optional<Price> RecomputeSearch::price(const Policies &policies) {
  spec.pipeline.recompute.value = Recompute(policies);
  Diagnostics ignored;
  Compilation trial(ignored);
  trial.spec = spec;
  if (!runPipeline(pipelineBefore("verify-plan"), trial))
    return std::nullopt;
  Price price;
  price.objective = spec.pipeline.objective.value == Objective::Span
                        ? trial.timing->span
                        : trial.timing->makespan;
  const Plan &plan = *trial.plan;
  for (const RankPlan &rank : plan.ranks)
    price.over.push_back(plan.memoryLimit != 0 &&
                         rank.arenaBytes + plan.memoryAllowance >
                             plan.memoryLimit);
  price.stages = plan.stages;
  price.placement = trial.choice->placement;
  for (const Stage &stage : plan.stages)
    price.recompute += stage.recompute;
  return price;
}

/// Finds what each stage may do, and what R takes then.
void RecomputeSearch::findSteps() {
  steps.assign(stages, {RecomputePolicy::None});
  times.assign(stages, {});
  for (RecomputePolicy policy :
       {RecomputePolicy::Selective, RecomputePolicy::Full}) {
    std::optional<Price> all = price(Policies(stages, policy));
    for (Id stage = 0; all && stage < stages; ++stage) {
      const Stage &of = all->stages[stage];
      if (of.recomputePolicy != policy)
        continue; // nothing to select
      steps[stage].push_back(policy);
      times[stage][static_cast<unsigned>(policy)] = of.recompute;
    }
  }
  for (Id stage = 0; stage < stages; ++stage)
    llvm::stable_sort(steps[stage], [&](RecomputePolicy a, RecomputePolicy b) {
      return times[stage][static_cast<unsigned>(a)] <
             times[stage][static_cast<unsigned>(b)];
    });
}

/// Every combination, the last stage changing fastest.
Policies RecomputeSearch::enumerate() {
  std::vector<size_t> at(stages, 0);
  std::optional<Price> least;
  Policies best(stages, RecomputePolicy::None);
  for (bool done = false; !done;) {
    Policies policies;
    for (Id stage = 0; stage < stages; ++stage)
      policies.push_back(steps[stage][at[stage]]);
    std::optional<Price> now = price(policies);
    if (now && now->fits() && (!least || now->cost() < least->cost())) {
      least = std::move(now);
      best = policies;
    }
    done = true;
    for (Id stage = stages; done && stage-- > 0;) {
      done = ++at[stage] == steps[stage].size();
      if (done)
        at[stage] = 0;
    }
  }
  return least ? best : raise();
}

RecomputePolicy RecomputeSearch::after(Id stage, RecomputePolicy policy) const {
  auto found = llvm::find(steps[stage], policy);
  return found == steps[stage].end() || found + 1 == steps[stage].end()
             ? policy
             : *(found + 1);
}

/// Takes the next step of the stage of `rank` for which it costs least; false
/// if there is none.
bool RecomputeSearch::raiseRank(Id rank, const Price &price,
                                Policies &policies) const {
  Id best = kNone;
  Ticks least = 0;
  for (const Placement::Holding &held :
       price.placement.holdingsOf(rank, spec.pipeline.microbatches)) {
    RecomputePolicy now = policies[held.stage], next = after(held.stage, now);
    Ticks more = times[held.stage][static_cast<unsigned>(next)] -
                 times[held.stage][static_cast<unsigned>(now)];
    if (next == now || (best != kNone && more >= least))
      continue;
    best = held.stage;
    least = more;
  }
  if (best != kNone)
    policies[best] = after(best, policies[best]);
  return best != kNone;
}

Policies RecomputeSearch::raise() {
  Policies policies(stages, RecomputePolicy::None);
  while (std::optional<Price> now = price(policies)) {
    bool raised = false;
    for (Id rank = 0; rank < now->over.size(); ++rank)
      if (now->over[rank])
        raised |= raiseRank(rank, *now, policies);
    if (!raised)
      break; // it fits, or never will
  }
  return policies;
}

/// Lowers each stage as far as all still fits, those first whose R takes most.
void RecomputeSearch::takeBack(Policies &policies) {
  std::vector<Id> order;
  for (Id stage = 0; stage < stages; ++stage)
    order.push_back(stage);
  auto timeOf = [&](Id stage) {
    return times[stage][static_cast<unsigned>(policies[stage])];
  };
  llvm::stable_sort(order, [&](Id a, Id b) { return timeOf(a) > timeOf(b); });
  for (Id stage : order)
    for (RecomputePolicy lower : steps[stage]) {
      if (lower == policies[stage])
        break;
      Policies fewer = policies;
      fewer[stage] = lower;
      if (std::optional<Price> now = price(fewer); now && now->fits()) {
        policies = std::move(fewer);
        break;
      }
    }
}

Policies RecomputeSearch::run(uint32_t tries) {
  std::optional<Price> none = price(Policies(stages, RecomputePolicy::None));
  if (!none || none->fits())
    return Policies(stages, RecomputePolicy::None);
  findSteps();
  if (stages == spec.pipeline.ranks.value && none->placement.copies() == 1)
    return raise();
  uint64_t combinations = 1;
  for (const auto &of : steps)
    combinations = std::min<uint64_t>(combinations * of.size(), tries + 1ull);
  if (combinations <= tries)
    return enumerate();
  Policies policies = raise();
  takeBack(policies);
  return policies;
}

std::vector<RecomputePolicy> searchRecompute(const Spec &spec, uint32_t stages,
                                             uint32_t tries) {
  return RecomputeSearch(spec, stages).run(tries);
}

} // namespace sluice
