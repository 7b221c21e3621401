#include "ir/verify/Internal.h"

#include <algorithm>

namespace sluice::verify {
namespace {

const PlanOp &opAt(const Plan &plan, OpPlace at) {
  return plan.ranks[at.rank].ops[at.index];
}

/// How a place waits for the next one of a cycle.
enum class Step : uint8_t { Mate, Group, Event, After };

Step stepBetween(const Plan &plan, OpPlace from, OpPlace to) {
  const PlanOp &waiter = opAt(plan, from);
  const PlanOp &awaited = opAt(plan, to);
  if (from.rank != to.rank)
    return Step::Mate;
  if (isMessage(waiter.op) && waiter.channel == awaited.channel &&
      isSend(waiter.op) != isSend(awaited.op))
    return Step::Mate; // a message to itself
  std::span<const uint32_t> waits = plan.ranks[from.rank].waitsOf(from.index);
  if (std::find(waits.begin(), waits.end(), to.index) != waits.end())
    return Step::Event;
  if (waiter.group != kNone && waiter.group == awaited.group)
    return Step::Group;
  return Step::After;
}

std::string storyStep(const Plan &plan, OpPlace from, OpPlace to) {
  std::string waiter = nameOf(plan, from);
  if (std::string line = specLine(plan, opAt(plan, from).stage); !line.empty())
    waiter += " (" + line + ")";
  std::string rank = "rank " + std::to_string(from.rank);
  std::string awaited = nameOf(plan, to);
  switch (stepBetween(plan, from, to)) {
  case Step::Mate:
    return rank + " at " + waiter + " waits for rank " +
           std::to_string(to.rank) + " to reach " + awaited;
  case Step::Group:
    return rank + " ends " + waiter + " together with " + awaited +
           ", which is in the same group";
  case Step::Event:
    return rank + " starts " + waiter + " only after the event of " + awaited;
  case Step::After:
    return rank + " reaches " + waiter + " only after " + awaited;
  }
  return "";
}

/// Two communications of a rank: one stands before the other, and should not.
struct Swap {
  OpPlace first;
  OpPlace second;
};

/// The first position of the unit of `at`: its group, or itself.
uint32_t unitBegin(const RankPlan &rank, uint32_t at) {
  Id group = rank.ops[at].group;
  while (group != kNone && at > 0 && rank.ops[at - 1].group == group)
    --at;
  return at;
}

/// Whether `second` may go before `first`: all it waits for stands before.
bool canGoFirst(const Plan &plan, const Swap &swap) {
  const RankPlan &rank = plan.ranks[swap.second.rank];
  uint32_t begin = unitBegin(rank, swap.first.index);
  for (uint32_t wait : rank.waitsOf(swap.second.index))
    if (wait >= begin)
      return false;
  return true;
}

/// The two orders of communications that make two ranks wait for each other, if
/// that is what the cycle says.
std::vector<Swap> swapsOf(const Plan &plan, std::span<const OpPlace> cycle) {
  if (cycle.size() != 4 || cycle[0].rank == cycle[1].rank ||
      cycle[0].rank != cycle[3].rank || cycle[1].rank != cycle[2].rank)
    return {};
  std::vector<Swap> swaps;
  for (Swap swap : {Swap{cycle[0], cycle[3]}, Swap{cycle[2], cycle[1]}})
    if (stepBetween(plan, swap.second, swap.first) == Step::After)
      swaps.push_back(swap);
  if (swaps.size() == 2 && opAt(plan, swaps[1].first).op == Op::SendForward)
    std::swap(swaps[0], swaps[1]);
  return swaps;
}

/// ": what to change", where one change of order helps.
std::string fixOf(const Plan &plan, std::span<const OpPlace> cycle) {
  std::vector<Swap> swaps = swapsOf(plan, cycle);
  for (const Swap &swap : swaps)
    if (canGoFirst(plan, swap))
      return ": post " + nameOf(plan, swap.second) + " before " +
             nameOf(plan, swap.first) +
             (isMessage(opAt(plan, swap.first).op) &&
                      isMessage(opAt(plan, swap.second).op)
                  ? ", or send them in one group"
                  : ", or put them in one group");
  for (const Swap &swap : swaps)
    if (opAt(plan, swap.first).group != kNone)
      return ": take " + nameOf(plan, swap.first) + " out of its group";
  return "";
}

} // namespace

std::string deadlockMessage(const Plan &plan, Progress progress,
                            std::span<const OpPlace> cycle) {
  std::vector<std::string> waiters;
  for (size_t i = 0; i < cycle.size(); ++i)
    if (stepBetween(plan, cycle[i], cycle[(i + 1) % cycle.size()]) ==
        Step::Mate)
      waiters.push_back("rank " + std::to_string(cycle[i].rank) + " at " +
                        nameOf(plan, cycle[i]));
  std::string model =
      " (progress: " + std::string(progressName(progress)) + ")";
  if (waiters.empty() && cycle.size() == 2)
    return nameOf(plan, cycle[0]) + " waits for " + nameOf(plan, cycle[1]) +
           " of its own group, which ends only as a whole" + model +
           ": take them apart";
  constexpr size_t kNamed = 6;
  std::string message;
  for (size_t i = 0; i < waiters.size() && i < kNamed; ++i)
    message += (i == 0                    ? ""
                : i + 1 == waiters.size() ? " and "
                                          : ", ") +
               waiters[i];
  if (waiters.size() > kNamed)
    message += " and " + std::to_string(waiters.size() - kNamed) + " more";
  message += waiters.size() == 1   ? " waits for itself"
             : waiters.size() == 2 ? " wait for each other"
                                   : " wait in a circle";
  return message + model + fixOf(plan, cycle);
}

std::vector<std::string> storyOf(const Plan &plan, const Finding &finding) {
  std::vector<std::string> steps;
  for (size_t i = 0; i < finding.cycle.size(); ++i)
    steps.push_back(storyStep(plan, finding.cycle[i],
                              finding.cycle[(i + 1) % finding.cycle.size()]));
  return steps;
}

std::string describe(const Plan &plan, const Finding &finding) {
  std::string text = finding.message;
  for (const std::string &step : storyOf(plan, finding))
    text += "\n  " + step;
  if (!finding.cycle.empty() || !finding.place)
    return text;
  OpPlace at = *finding.place;
  if (at.rank >= plan.ranks.size() ||
      at.index >= plan.ranks[at.rank].ops.size())
    return text;
  text += " (operation " + std::to_string(at.index) + " of rank " +
          std::to_string(at.rank);
  if (std::string line = specLine(plan, opAt(plan, at).stage); !line.empty())
    text += ", " + line;
  return text + ")";
}

} // namespace sluice::verify
