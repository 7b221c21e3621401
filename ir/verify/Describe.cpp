#include "ir/verify/Cycle.h"
#include "ir/verify/Internal.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace sluice::verify {
namespace {

/// Whether the names of a send and a receive are those of one message.
bool carrySame(const Plan &plan, const PlanOp &one, const PlanOp &other) {
  if (info(one.op).mate != other.op || one.microbatch != other.microbatch)
    return false;
  if (!info(one.op).perMicrobatch)
    return true;
  bool up = isWithLater(one.op);
  auto stages = up ? std::pair(one.stage, other.stage)
                   : std::pair(other.stage, one.stage);
  auto edge = std::lower_bound( // they are sorted
      plan.edges.begin(), plan.edges.end(), stages,
      [](const StageEdge &of, const auto &wanted) {
        return std::pair(of.from, of.to) < wanted;
      });
  return edge != plan.edges.end() && std::pair(edge->from, edge->to) == stages;
}

/// Whether two messages are of one channel, or two collectives of one row.
bool onOneChannel(const PlanOp &one, const PlanOp &other) {
  return isCommunication(one.op) && isCommunication(other.op) &&
         isCollective(one.op) == isCollective(other.op) &&
         one.channel == other.channel;
}

} // namespace

bool keepOrder(const PlanOp &one, const PlanOp &other) {
  return onOneChannel(one, other) && isSend(one.op) == isSend(other.op);
}

Link linkBetween(const Plan &plan, OpPlace from, OpPlace to) {
  const PlanOp &waiter = opAt(plan, from);
  const PlanOp &awaited = opAt(plan, to);
  if (onOneChannel(waiter, awaited) &&
      isSend(waiter.op) != isSend(awaited.op)) // perhaps to itself
    return carrySame(plan, waiter, awaited) ? Link::Mate : Link::Room;
  if (from.rank != to.rank)
    return Link::Mate;
  std::span<const uint32_t> waits = plan.ranks[from.rank].waitsOf(from.index);
  if (std::find(waits.begin(), waits.end(), to.index) != waits.end())
    return Link::Event;
  if (waiter.group != kNone && waiter.group == awaited.group)
    return Link::Group;
  return from.index < to.index ? Link::Need : Link::After;
}

namespace {

/// The name of an operation, with its line in the spec where that is known.
std::string placeName(const Plan &plan, OpPlace at) {
  std::string line = specLine(plan, opAt(plan, at).stage);
  return nameOf(plan, at) + (line.empty() ? "" : " (" + line + ")");
}

std::string storyStep(const Plan &plan, uint32_t buffered, OpPlace from,
                      OpPlace to) {
  std::string waiter = placeName(plan, from);
  std::string rank = "rank " + std::to_string(from.rank);
  std::string awaited = nameOf(plan, to);
  switch (linkBetween(plan, from, to)) {
  case Link::Mate:
    return rank + " at " + waiter + " waits for rank " +
           std::to_string(to.rank) + " to reach " + awaited;
  case Link::Room:
    return rank + " ends " + waiter + " only once rank " +
           std::to_string(to.rank) + " has ended " + awaited + ": " +
           std::to_string(buffered) +
           (buffered == 1 ? " message is buffered" : " messages are buffered");
  case Link::Group:
    return rank + " ends " + waiter + " together with " + awaited +
           ", which is in the same group";
  case Link::Event:
    return rank + " starts " + waiter + " only after the end of " + awaited;
  case Link::Need:
    return rank + " starts " + waiter + " only after " + awaited +
           ", which it needs";
  case Link::After:
    return rank + " reaches " + waiter + " only after " + awaited;
  }
  return "";
}

/// A cycle of nothing but what one rank asks of itself: "1SEND_F0 needs 1F0,
/// which waits for 1RECV_F0 of its own group …".
std::string circleOfOneRank(const Plan &plan, std::span<const OpPlace> cycle) {
  constexpr size_t kNamed = 4;
  bool isNeed = linkBetween(plan, cycle[0], cycle[1]) == Link::Need;
  std::string text =
      nameOf(plan, cycle[0]) + (isNeed ? " needs " : " waits for ");
  for (size_t i = 1; i < cycle.size(); ++i) {
    if (i >= kNamed && i + 1 < cycle.size())
      continue;
    if (i > 1)
      text += i > kNamed ? ", which after " + std::to_string(i - kNamed) +
                               " more waits for "
                         : ", which waits for ";
    text += nameOf(plan, cycle[i]);
  }
  if (linkBetween(plan, cycle.back(), cycle[0]) == Link::Group)
    return text + " of " +
           (cycle.size() == 2 ? "its own group"
                              : "the group of " + nameOf(plan, cycle[0])) +
           ", which ends only as a whole";
  return text + ", which waits for " + nameOf(plan, cycle[0]);
}

} // namespace

std::string deadlockMessage(const Plan &plan, const Options &options,
                            std::span<const OpPlace> cycle) {
  std::vector<std::string> waiters;
  for (size_t i = 0; i < cycle.size(); ++i) {
    Link link = linkBetween(plan, cycle[i], cycle[(i + 1) % cycle.size()]);
    if (link == Link::Mate || link == Link::Room)
      waiters.push_back("rank " + std::to_string(cycle[i].rank) + " at " +
                        nameOf(plan, cycle[i]));
  }
  std::string model =
      " (progress: " + std::string(progressName(options.progress)) +
      (options.buffered == 0
           ? ")"
           : ", buffered " + std::to_string(options.buffered) + ")");
  if (waiters.empty() && cycle.size() > 1)
    return circleOfOneRank(plan, cycle) + model;
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
  return message + model;
}

std::vector<Step> storyOf(const Plan &plan, uint32_t buffered,
                          std::span<const OpPlace> cycle) {
  std::vector<Step> steps;
  auto isOrder = [&](size_t i) {
    return linkBetween(plan, cycle[i], cycle[(i + 1) % cycle.size()]) ==
           Link::After;
  };
  forEachToldStep(
      cycle.size(), isOrder, [&](size_t at, size_t end, size_t run) {
        OpPlace from = cycle[at], to = cycle[end % cycle.size()];
        std::string text =
            run > 1
                ? "rank " + std::to_string(from.rank) + " reaches " +
                      placeName(plan, from) + " only after " +
                      std::to_string(run) + " operations in order, " +
                      nameOf(plan, to) + " to " + nameOf(plan, cycle[at + 1])
                : storyStep(plan, buffered, from, to);
        steps.push_back({std::move(text), from, to});
      });
  return steps;
}

std::string describe(const Plan &plan, const Finding &finding) {
  std::string text = finding.message;
  for (const Step &step : finding.story)
    text += "\n  " + step.text;
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
