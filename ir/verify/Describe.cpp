#include "ir/verify/Internal.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace sluice::verify {
namespace {

const PlanOp &opAt(const Plan &plan, OpPlace at) {
  return plan.ranks[at.rank].ops[at.index];
}

/// How a place waits for the next one of a cycle.
enum class Step : uint8_t { Mate, Room, Group, Event, After };

/// Whether the names of a send and a receive are those of one message.
bool carrySame(const Plan &plan, const PlanOp &one, const PlanOp &other) {
  if (info(one.op).mate != other.op || one.microbatch != other.microbatch)
    return false;
  if (!info(one.op).perMicrobatch)
    return true;
  bool up = one.op == Op::SendForward || one.op == Op::RecvBackward;
  auto stages = up ? std::pair(one.stage, other.stage)
                   : std::pair(other.stage, one.stage);
  return std::any_of(plan.edges.begin(), plan.edges.end(),
                     [&](const StageEdge &edge) {
                       return std::pair(edge.from, edge.to) == stages;
                     });
}

/// Whether two messages are of one channel, or two collectives of one row.
bool onOneChannel(const PlanOp &one, const PlanOp &other) {
  return isCommunication(one.op) && isCommunication(other.op) &&
         isCollective(one.op) == isCollective(other.op) &&
         one.channel == other.channel;
}

Step stepBetween(const Plan &plan, OpPlace from, OpPlace to) {
  const PlanOp &waiter = opAt(plan, from);
  const PlanOp &awaited = opAt(plan, to);
  if (onOneChannel(waiter, awaited) &&
      isSend(waiter.op) != isSend(awaited.op)) // perhaps to itself
    return carrySame(plan, waiter, awaited) ? Step::Mate : Step::Room;
  if (from.rank != to.rank)
    return Step::Mate;
  std::span<const uint32_t> waits = plan.ranks[from.rank].waitsOf(from.index);
  if (std::find(waits.begin(), waits.end(), to.index) != waits.end())
    return Step::Event;
  if (waiter.group != kNone && waiter.group == awaited.group)
    return Step::Group;
  return Step::After;
}

std::string storyStep(const Plan &plan, uint32_t buffered, OpPlace from,
                      OpPlace to) {
  std::string waiter = nameOf(plan, from);
  if (std::string line = specLine(plan, opAt(plan, from).stage); !line.empty())
    waiter += " (" + line + ")";
  std::string rank = "rank " + std::to_string(from.rank);
  std::string awaited = nameOf(plan, to);
  switch (stepBetween(plan, from, to)) {
  case Step::Mate:
    return rank + " at " + waiter + " waits for rank " +
           std::to_string(to.rank) + " to reach " + awaited;
  case Step::Room:
    return rank + " ends " + waiter + " only once rank " +
           std::to_string(to.rank) + " has ended " + awaited + ": " +
           std::to_string(buffered) +
           (buffered == 1 ? " message is buffered" : " messages are buffered");
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

/// The first position of the unit of `at`: its group, or itself.
uint32_t unitBegin(const RankPlan &rank, uint32_t at) {
  Id group = rank.ops[at].group;
  while (group != kNone && at > 0 && rank.ops[at - 1].group == group)
    --at;
  return at;
}

/// What goes before `first` with `second`: a channel keeps its order, so also
/// the messages of its channel that stand between.
std::vector<uint32_t> movedBy(const Plan &plan, const Swap &swap) {
  const std::vector<PlanOp> &ops = plan.ranks[swap.second.rank].ops;
  const PlanOp &second = ops[swap.second.index];
  std::vector<uint32_t> moved;
  for (uint32_t at = swap.first.index; at <= swap.second.index; ++at)
    if (onOneChannel(ops[at], second) &&
        isSend(ops[at].op) == isSend(second.op))
      moved.push_back(at);
  return moved;
}

/// Whether `second` may go before `first`: all it waits for stands before.
bool canGoFirst(const Plan &plan, const Swap &swap) {
  const RankPlan &rank = plan.ranks[swap.second.rank];
  uint32_t begin = unitBegin(rank, swap.first.index);
  for (uint32_t at : movedBy(plan, swap))
    for (uint32_t wait : rank.waitsOf(at))
      if (wait >= begin)
        return false;
  return true;
}

/// The orders of two communications that `cycle` needs: of each way within a
/// rank, the one by which it comes to the rank stands behind the one by which
/// it leaves. Those of one channel keep their order. Receives that can be
/// posted earlier come first, of these the nearest: a receive that goes far
/// ahead may hold up what its own message needs.
std::vector<Swap> swapsOf(const Plan &plan, std::span<const OpPlace> cycle) {
  using Rating = std::tuple<bool, uint32_t, bool>; // the least is the best
  std::vector<std::pair<Rating, Swap>> found;
  size_t length = cycle.size();
  auto isAfter = [&](size_t i) {
    return stepBetween(plan, cycle[i % length], cycle[(i + 1) % length]) ==
           Step::After;
  };
  for (size_t i = 0; i < length; ++i) {
    if (isAfter(i + length - 1) || !isAfter(i))
      continue;
    size_t end = i + 1;
    while (isAfter(end))
      ++end;
    Swap swap{cycle[end % length], cycle[i]};
    const PlanOp &first = opAt(plan, swap.first);
    const PlanOp &second = opAt(plan, swap.second);
    if (!isCommunication(first.op) || !isCommunication(second.op) ||
        onOneChannel(first, second))
      continue;
    bool posts = isReceive(second.op) && isSend(first.op);
    found.emplace_back(Rating(!posts, swap.second.index - swap.first.index,
                              first.op != Op::SendForward),
                       swap);
  }
  std::stable_sort(
      found.begin(), found.end(),
      [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<Swap> swaps;
  for (const auto &[rating, swap] : found)
    swaps.push_back(swap);
  return swaps;
}

/// ": what to change", where one change of order helps.
std::string fixOf(const Plan &plan, std::span<const OpPlace> cycle) {
  if (std::optional<Swap> swap = swapThatHelps(plan, cycle)) {
    std::vector<uint32_t> moved = movedBy(plan, *swap);
    std::string first = nameOf(plan, swap->first), names;
    for (uint32_t at : moved)
      names += (names.empty() ? "" : " and ") +
               nameOf(plan, {swap->second.rank, at});
    if (moved.size() != 1)
      return ": post " + names + " before " + first;
    if (opAt(plan, swap->first).group != kNone)
      return ": add " + names + " to the group of " + first;
    bool messages = isMessage(opAt(plan, swap->first).op) &&
                    isMessage(opAt(plan, swap->second).op);
    return ": post " + names + " before " + first +
           (messages ? ", or send them in one group"
                     : ", or put them in one group");
  }
  for (const Swap &swap : swapsOf(plan, cycle))
    if (opAt(plan, swap.first).group != kNone)
      return ": take " + nameOf(plan, swap.first) + " out of its group";
  return "";
}

} // namespace

std::optional<Swap> swapThatHelps(const Plan &plan,
                                  std::span<const OpPlace> cycle) {
  for (const Swap &swap : swapsOf(plan, cycle))
    if (canGoFirst(plan, swap))
      return swap;
  return std::nullopt;
}

std::string deadlockMessage(const Plan &plan, const Options &options,
                            std::span<const OpPlace> cycle) {
  std::vector<std::string> waiters;
  for (size_t i = 0; i < cycle.size(); ++i) {
    Step step = stepBetween(plan, cycle[i], cycle[(i + 1) % cycle.size()]);
    if (step == Step::Mate || step == Step::Room)
      waiters.push_back("rank " + std::to_string(cycle[i].rank) + " at " +
                        nameOf(plan, cycle[i]));
  }
  std::string model =
      " (progress: " + std::string(progressName(options.progress)) +
      (options.buffered == 0
           ? ")"
           : ", buffered " + std::to_string(options.buffered) + ")");
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

std::vector<std::string> storyOf(const Plan &plan, uint32_t buffered,
                                 std::span<const OpPlace> cycle) {
  std::vector<std::string> steps;
  for (size_t i = 0; i < cycle.size(); ++i)
    steps.push_back(
        storyStep(plan, buffered, cycle[i], cycle[(i + 1) % cycle.size()]));
  return steps;
}

std::string describe(const Plan &plan, const Finding &finding) {
  std::string text = finding.message;
  for (const std::string &step : finding.story)
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
