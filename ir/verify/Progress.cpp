#include "ir/verify/Machine.h"

#include <algorithm>

namespace sluice::verify {
namespace {

constexpr unsigned numberOf(Progress progress) {
  return static_cast<unsigned>(progress);
}

Id longestChannel(const PlanIndex &index) {
  Id longest = 0;
  for (size_t c = 0; c + 1 < index.firstOfChannel.size(); ++c)
    longest = std::max(longest,
                       index.firstOfChannel[c + 1] - index.firstOfChannel[c]);
  return longest;
}

/// Least N under which `machine`, which fails without buffers, ends: doubling,
/// then bisection; more buffers never hurt.
std::optional<uint32_t> leastBuffering(Machine &machine, Id longest) {
  if (longest == 0 || !machine.run(longest))
    return std::nullopt;
  uint32_t fails = 0, holds = 1;
  while (holds < longest && !machine.run(holds)) {
    fails = holds;
    holds *= 2;
  }
  holds = std::min(holds, longest);
  while (holds - fails > 1) {
    uint32_t middle = fails + (holds - fails) / 2;
    (machine.run(middle) ? holds : fails) = middle;
  }
  return holds;
}

/// A wait of a group's member for another of its members never fires, and is
/// the only way in which list order hides a cycle from the quick proof.
bool waitsInside(const PlanIndex &index) {
  if (!index.hasGroups)
    return false;
  for (Id r = 0; r < index.plan.ranks.size(); ++r) {
    const RankPlan &rank = index.plan.ranks[r];
    Id first = index.firstOp[r];
    for (uint32_t at = 0; at < rank.ops.size(); ++at)
      for (uint32_t wait : rank.waitsOf(at))
        if (index.unit(first + wait) == index.unit(first + at))
          return true;
  }
  return false;
}

/// The quick proof, for every progress model.
bool holdsAtOnce(const PlanIndex &index) {
  return index.needs.empty() && !waitsInside(index) && runsInListOrder(index);
}

void reportDeadlocks(const Plan &plan, const Machine &machine,
                     const Options &options, Report &report) {
  uint64_t effort = options.remedies ? kCycleEffort : 0;
  for (std::vector<OpPlace> &cycle : machine.witnesses(effort)) {
    if (!report.admits(FindingKind::Deadlock))
      continue;
    OpPlace place = cycle.front();
    std::string message = deadlockMessage(plan, options, cycle);
    std::vector<Step> story = storyOf(plan, options.buffered, cycle);
    report.error(FindingKind::Deadlock, place, std::move(message),
                 std::move(cycle), std::nullopt, std::move(story));
  }
}

} // namespace

void checkProgress(const PlanIndex &index, const Options &options,
                   Report &report, Result &result) {
  if (holdsAtOnce(index)) {
    result.holds.fill(!index.isTurned);
    if (!index.isTurned)
      result.minBuffering = 0;
    return;
  }
  bool implied = false; // by a stricter model that holds
  for (Progress progress : kProgressModels) {
    bool chosen = progress == options.progress;
    if (implied && !chosen) {
      result.holds[numberOf(progress)] = true;
      continue;
    }
    Machine machine(index, progress);
    bool holds = machine.run(options.buffered);
    result.holds[numberOf(progress)] = holds;
    implied |= holds;
    if (!chosen)
      continue;
    if (!holds)
      reportDeadlocks(index.plan, machine, options, report);
    if (options.buffered == 0 ? holds : machine.run(0))
      result.minBuffering = 0;
    else if (options.remedies)
      result.minBuffering = leastBuffering(machine, longestChannel(index));
  }
  if (index.isTurned) {
    result.holds.fill(false);
    result.minBuffering.reset();
  }
}

std::vector<std::vector<OpPlace>>
deadlocksOf(const PlanIndex &index, const Options &options, uint64_t &effort) {
  if (holdsAtOnce(index))
    return {};
  Machine machine(index, options.progress);
  if (machine.run(options.buffered))
    return {};
  return machine.witnesses(effort);
}

} // namespace sluice::verify
