#include "ir/Words.h"
#include "ir/verify/Internal.h"

#include <algorithm>
#include <tuple>

namespace sluice::verify {
namespace {

class Matching {
public:
  Matching(PlanIndex &of, Report &to)
      : index(of), plan(of.plan), report(to), ends(of.ends) {}

  bool match() {
    index.matches.assign(index.operations(), {});
    list();
    for (Id c = 0; c < plan.channels.size(); ++c)
      matchChannel(c);
    return !report.has(FindingKind::Mismatch);
  }

private:
  /// Lists the ends of all messages, channel by channel.
  void list() {
    std::vector<Ends> next;
    Id total = 0;
    for (const Ends &each : ends) {
      index.firstOfChannel.push_back(total);
      next.push_back({total, total});
      total += std::max(each.sends, each.receives);
    }
    index.firstOfChannel.push_back(total);
    index.sends.assign(total, {});
    index.receives.assign(total, {});
    Id number = 0;
    for (const RankPlan &rank : plan.ranks)
      for (const PlanOp &op : rank.ops) {
        if (isSend(op.op))
          index.sends[next[op.channel].sends++] = endOf(rank, op, number);
        else if (isReceive(op.op))
          index.receives[next[op.channel].receives++] = endOf(rank, op, number);
        ++number;
      }
  }

  End endOf(const RankPlan &rank, const PlanOp &op, Id number) const {
    return {number, op.stage, op.microbatch, op.op,
            messageBytes(plan, rank, op)};
  }
  static std::string nameOf(const End &end) {
    return opName(end.kind, end.stage, end.microbatch);
  }

  /// The edge from stage `from` to stage `to`; kNone without one.
  Id findEdge(Id from, Id to) const {
    std::span<const Id> out = index.outgoing.of(from);
    auto at =
        std::lower_bound(out.begin(), out.end(), to, [this](Id edge, Id stage) {
          return plan.edges[edge].to < stage;
        });
    return at != out.end() && plan.edges[*at].to == to ? *at : kNone;
  }

  void matchChannel(Id c) {
    Id pairs = std::min(ends[c].sends, ends[c].receives);
    if (pairs == 0 && ends[c].sends == ends[c].receives)
      return; // its ranks may not exist
    bool uneven = ends[c].sends != ends[c].receives;
    if (uneven)
      tellUneven(c, pairs);
    bool told = matchPairs(c, pairs, uneven);
    if (index.hasGroups && !told)
      compareGroups(c, pairs);
  }

  /// True if a pair differs, or something was `told` of the channel before:
  /// then what follows on the channel only repeats it.
  bool matchPairs(Id c, Id pairs, bool told) {
    const Channel &channel = plan.channels[c];
    Id first = index.firstOfChannel[c], edge = kNone;
    for (Id n = 0; n < pairs; ++n) {
      const End &send = index.sends[first + n];
      const End &receive = index.receives[first + n];
      Match &sent = index.matches[send.op];
      Match &received = index.matches[receive.op];
      sent = {receive.op, channel.destination, kNone};
      received = {send.op, channel.source, kNone};
      if (told)
        continue;
      edge = edgeBetween(send, receive, edge);
      bool same = carriesSame(send, receive, edge);
      if (same && send.bytes == receive.bytes) {
        sent.edge = received.edge = edge;
        continue;
      }
      told = true;
      differ(c, n, same);
    }
    return told;
  }

  /// Whether a message has one payload at both ends; `edge` is that between.
  bool carriesSame(const End &send, const End &receive, Id edge) const {
    return info(send.kind).mate == receive.kind &&
           send.microbatch == receive.microbatch &&
           (edge != kNone || isExchange(send, receive));
  }
  bool carriesSame(const End &send, const End &receive) const {
    return carriesSame(send, receive, edgeBetween(send, receive, kNone));
  }

  /// Whether a stage sends gradients to a copy of it, or to the stage that it
  /// is tied to.
  bool isExchange(const End &send, const End &receive) const {
    return info(send.kind).payload == Payload::TiedGradients
               ? plan.stages[send.stage].tiedTo == receive.stage
               : info(send.kind).payload == Payload::WeightGradients &&
                     send.stage == receive.stage;
  }

  /// The edge that a message is about, which is mostly `last`, that of the
  /// message before it; kNone without one.
  Id edgeBetween(const End &send, const End &receive, Id last) const {
    if (!info(send.kind).perMicrobatch)
      return kNone;
    bool forward = info(send.kind).payload == Payload::Activation;
    Id from = forward ? send.stage : receive.stage;
    Id to = forward ? receive.stage : send.stage;
    Id edge = last;
    if (last == kNone || plan.edges[last].from != from ||
        plan.edges[last].to != to)
      edge = findEdge(from, to);
    return edge == kNone || forward || isTrained(plan.stages, plan.edges[edge])
               ? edge
               : kNone;
  }

  /// With the communicator where several lead from one rank to the other.
  std::string channelName(Id c) const {
    const Channel &channel = plan.channels[c];
    auto isBeside = [&](const Channel &other) {
      return other.source == channel.source &&
             other.destination == channel.destination;
    };
    std::string name = "from rank " + std::to_string(channel.source) +
                       " to rank " + std::to_string(channel.destination);
    if (std::count_if(plan.channels.begin(), plan.channels.end(), isBeside) > 1)
      name += " on communicator " + std::to_string(channel.communicator);
    return name;
  }

  void tell(OpPlace place, std::string message,
            std::optional<OpPlace> meets = std::nullopt) {
    report.error(FindingKind::Mismatch, place, std::move(message), {}, meets);
  }

  OpPlace sendPlace(Id c, const End &send) const {
    Id rank = plan.channels[c].source;
    return {rank, send.op - index.firstOp[rank]};
  }
  OpPlace receivePlace(Id c, const End &receive) const {
    Id rank = plan.channels[c].destination;
    return {rank, receive.op - index.firstOp[rank]};
  }

  /// Tells that the n-th pair of channel `c` carries two different things, or
  /// the `same` thing in different sizes.
  void differ(Id c, Id n, bool same) {
    if (!report.admits(FindingKind::Mismatch))
      return;
    Id slot = index.firstOfChannel[c] + n;
    const End &send = index.sends[slot], &receive = index.receives[slot];
    OpPlace place = receivePlace(c, receive), meets = sendPlace(c, send);
    std::string pair = "message " + std::to_string(n + 1) + " " +
                       channelName(c) + ": " + nameOf(send) + " ";
    if (!same)
      return tell(place, pair + "meets " + nameOf(receive), meets);
    tell(place,
         pair + "sends " + std::to_string(send.bytes) + " bytes, " +
             nameOf(receive) + " takes " + std::to_string(receive.bytes),
         meets);
  }

  /// Tells that one end of channel `c` has more messages than the other, and
  /// which one is alone, if the others meet without it.
  void tellUneven(Id c, Id pairs) {
    if (!report.admits(FindingKind::Mismatch))
      return;
    bool moreSends = ends[c].sends > pairs;
    Id first = index.firstOfChannel[c];
    auto meets = [&](Id nth, Id mate) {
      return moreSends ? carriesSame(index.sends[first + nth],
                                     index.receives[first + mate])
                       : carriesSame(index.sends[first + mate],
                                     index.receives[first + nth]);
    };
    Id lone = 0;
    while (lone < pairs && meets(lone, lone))
      ++lone;
    Id rest = lone; // of the shorter list, what meets without the lone one
    while (rest < pairs && meets(rest + 1, rest))
      ++rest;
    if (rest < pairs) // no single one is to blame
      lone = firstWithoutMate(c, moreSends);
    tellLone(c, moreSends, lone);
  }

  /// The first message of the longer end that nothing of the other carries;
  /// kNone if each has its own. Only of a broken plan: sorts.
  Id firstWithoutMate(Id c, bool moreSends) const {
    Id first = index.firstOfChannel[c];
    auto keyOf = [&](Id nth, bool isSend) {
      const End &end = (isSend ? index.sends : index.receives)[first + nth];
      return std::tuple(end.kind, end.stage, end.microbatch);
    };
    Id fewer = std::min(ends[c].sends, ends[c].receives);
    Id more = std::max(ends[c].sends, ends[c].receives);
    std::vector<std::tuple<Op, Id, Id>> there;
    for (Id nth = 0; nth < fewer; ++nth)
      there.push_back(keyOf(nth, !moreSends));
    std::sort(there.begin(), there.end());
    for (Id nth = 0; nth < more; ++nth) {
      auto [kind, stage, microbatch] = keyOf(nth, moreSends);
      std::optional<Id> mate = mateStage(kind, stage);
      if (mate &&
          !std::binary_search(there.begin(), there.end(),
                              std::tuple(info(kind).mate, *mate, microbatch)))
        return nth;
    }
    return kNone;
  }

  /// The stage at the other end of a microbatch's message, if only one can be.
  std::optional<Id> mateStage(Op kind, Id stage) const {
    if (!info(kind).perMicrobatch)
      return std::nullopt;
    bool up = isWithLater(kind);
    std::span<const Id> edges =
        (up ? index.outgoing : index.incoming).of(stage);
    if (edges.size() != 1)
      return std::nullopt;
    const StageEdge &edge = plan.edges[edges[0]];
    return up ? edge.to : edge.from;
  }

  /// `nth` is kNone where no message is alone.
  void tellLone(Id c, bool isSend, Id nth) {
    Id last = std::max(ends[c].sends, ends[c].receives) - 1;
    Id slot = index.firstOfChannel[c] + std::min(nth, last);
    const End &lone = isSend ? index.sends[slot] : index.receives[slot];
    tell(isSend ? sendPlace(c, lone) : receivePlace(c, lone),
         channelName(c) + (ends[c].sends == 1 ? " there is " : " there are ") +
             counted(ends[c].sends, "send") + " and " +
             counted(ends[c].receives, "receive") +
             (nth == kNone
                  ? std::string()
                  : ": " + nameOf(lone) + " meets no " + wanted(lone)));
  }

  /// Name of what a message should meet, if one stage is at its other end.
  std::string wanted(const End &lone) const {
    if (std::optional<Id> stage = mateStage(lone.kind, lone.stage))
      return opName(info(lone.kind).mate, *stage, lone.microbatch);
    return isSend(lone.kind) ? "receive" : "send";
  }

  /// Whether the n-th message of a channel's list starts another unit there
  /// than the one before it. Members of a group stand together in the list.
  bool startsUnit(const std::vector<End> &list, Id slot) const {
    return index.unit(list[slot].op) != index.unit(list[slot - 1].op);
  }
  Id unitSize(const std::vector<End> &list, Id slot, Id first, Id end) const {
    Id unit = index.unit(list[slot].op), size = 1;
    for (Id at = slot; at > first && index.unit(list[at - 1].op) == unit; --at)
      ++size;
    for (Id at = slot + 1; at < end && index.unit(list[at].op) == unit; ++at)
      ++size;
    return size;
  }

  /// Warns where one end of a channel groups other messages than the other.
  void compareGroups(Id c, Id pairs) {
    Id first = index.firstOfChannel[c], slot = first + 1;
    while (slot < first + pairs &&
           startsUnit(index.sends, slot) == startsUnit(index.receives, slot))
      ++slot;
    if (slot >= first + pairs || !report.admitsWarning(FindingKind::Mismatch))
      return;
    const End &send = index.sends[slot], &receive = index.receives[slot];
    Id sends = unitSize(index.sends, slot, first, first + pairs);
    Id receives = unitSize(index.receives, slot, first, first + pairs);
    report.warning(FindingKind::Mismatch, sendPlace(c, send),
                   "groups of different sizes meet " + channelName(c) + ": " +
                       nameOf(send) + " is one of " + counted(sends, "send") +
                       ", " + nameOf(receive) + " one of " +
                       counted(receives, "receive"));
  }

  PlanIndex &index;
  const Plan &plan;
  Report &report;
  const std::vector<Ends> &ends; ///< per channel
};

/// NCCL wants the communicators of a group in the same order on all ranks.
class GroupOrders {
public:
  GroupOrders(const PlanIndex &of, Report &to)
      : index(of), plan(of.plan), report(to) {}

  /// One warning a rank at most, about groups of later ranks that its own meet.
  void compare() {
    for (Id r = 0; r < plan.ranks.size(); ++r)
      for (Id unit = index.firstUnit[r]; unit < index.firstUnit[r + 1]; ++unit)
        if (!compareUnit(r, unit))
          break;
  }

private:
  /// A member of a group, and what it meets on a later rank.
  struct Met {
    Id op, other;
  };

  const PlanOp &opOf(Id rank, Id op) const {
    return plan.ranks[rank].ops[op - index.firstOp[rank]];
  }
  Id communicatorOf(Id rank, Id op) const {
    const PlanOp &of = opOf(rank, op);
    return isMessage(of.op) ? plan.channels[of.channel].communicator
                            : plan.collectives[of.channel].communicator;
  }

  /// What the members [first, end) of a group of `rank` meet on later ranks.
  std::vector<Met> metLater(Id rank, Id first, Id end) const {
    std::vector<Met> met;
    const Id later = index.firstOp[rank + 1];
    for (Id op = first; op < end; ++op)
      if (Id mate = index.mate(op); mate != kNone && mate >= later)
        met.push_back({op, mate});
      else if (Id meeting = index.meetingOf(op); meeting != kNone)
        for (Id other : index.attendantsOf(meeting))
          if (other >= later)
            met.push_back({op, other});
    return met;
  }

  /// False if it has warned.
  bool compareUnit(Id rank, Id unit) const {
    auto [first, end] = index.members(unit);
    if (end - first < 2)
      return true;
    std::vector<Met> met = metLater(rank, first, end);
    auto otherUnit = [this](const Met &of) { return index.unit(of.other); };
    std::stable_sort(met.begin(), met.end(),
                     [&](const Met &one, const Met &other) {
                       return otherUnit(one) < otherUnit(other);
                     });
    for (size_t begin = 0, at = 1; at <= met.size(); ++at)
      if (at == met.size() || otherUnit(met[at]) != otherUnit(met[begin])) {
        if (!compareMet(rank, std::span(met).subspan(begin, at - begin)))
          return false;
        begin = at;
      }
    return true;
  }

  /// Of `members` the first of each communicator, in their order.
  std::vector<Id> firstOfEach(Id rank, std::span<const Met> members) const {
    std::vector<std::pair<Id, size_t>> places; // communicator, which member
    for (size_t at = 0; at < members.size(); ++at)
      places.emplace_back(communicatorOf(rank, members[at].op), at);
    std::sort(places.begin(), places.end());
    auto sameCommunicator = [](const auto &one, const auto &other) {
      return one.first == other.first;
    };
    places.erase(std::unique(places.begin(), places.end(), sameCommunicator),
                 places.end());
    std::sort(places.begin(), places.end(),
              [](const auto &one, const auto &other) {
                return one.second < other.second;
              });
    std::vector<Id> firsts;
    for (const auto &place : places)
      firsts.push_back(members[place.second].op);
    return firsts;
  }

  /// `met`, in order of its rank, is what one group shares with another.
  bool compareMet(Id rank, std::span<const Met> met) const {
    std::vector<Met> turned(met.begin(), met.end());
    std::sort(turned.begin(), turned.end(),
              [](const Met &one, const Met &other) {
                return one.other < other.other;
              });
    std::vector<Id> here = firstOfEach(rank, met),
                    there = firstOfEach(rank, turned);
    size_t at = 0;
    while (at < here.size() &&
           communicatorOf(rank, here[at]) == communicatorOf(rank, there[at]))
      ++at;
    if (at == here.size())
      return true;
    if (!report.admitsWarning(FindingKind::Deadlock))
      return false;
    auto named = [&](Id op) {
      return "communicator " + std::to_string(communicatorOf(rank, op)) + " (" +
             nameOf(opOf(rank, op)) + ")";
    };
    report.warning(FindingKind::Deadlock, index.place(here[at]),
                   "in one group rank " + std::to_string(rank) + " takes " +
                       named(here[at]) + " before " + named(there[at]) +
                       ", rank " +
                       std::to_string(index.place(met[0].other).rank) +
                       " the other way round: NCCL asks for one order");
    return false;
  }

  const PlanIndex &index;
  const Plan &plan;
  Report &report;
};

} // namespace

void compareGroupOrders(const PlanIndex &index, Report &report) {
  if (index.hasGroups)
    GroupOrders(index, report).compare();
}

bool matchMessages(PlanIndex &index, Report &report) {
  return Matching(index, report).match();
}

} // namespace sluice::verify
