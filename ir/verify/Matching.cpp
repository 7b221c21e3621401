#include "ir/verify/Internal.h"

#include <algorithm>

namespace sluice::verify {
namespace {

class Matching {
public:
  Matching(PlanIndex &of, Report &to)
      : index(of), plan(of.plan), report(to), counts(of.plan.channels.size()) {}

  bool match() {
    index.mate.assign(index.operations(), kNone);
    index.edge.assign(index.operations(), kNone);
    count();
    list();
    for (Id c = 0; c < plan.channels.size(); ++c)
      matchChannel(c);
    return !report.has(FindingKind::Mismatch);
  }

private:
  struct Counts {
    Id sends = 0;
    Id receives = 0;
  };

  void count() {
    for (const RankPlan &rank : plan.ranks)
      for (const PlanOp &op : rank.ops)
        if (isSend(op.op))
          ++counts[op.channel].sends;
        else if (isReceive(op.op))
          ++counts[op.channel].receives;
  }

  void list() {
    std::vector<Counts> next;
    Id total = 0;
    for (const Counts &each : counts) {
      index.firstOfChannel.push_back(total);
      next.push_back({total, total});
      total += std::max(each.sends, each.receives);
    }
    index.firstOfChannel.push_back(total);
    index.sends.assign(total, kNone);
    index.receives.assign(total, kNone);
    Id number = 0;
    for (const RankPlan &rank : plan.ranks)
      for (const PlanOp &op : rank.ops) {
        if (isSend(op.op))
          index.sends[next[op.channel].sends++] = number;
        else if (isReceive(op.op))
          index.receives[next[op.channel].receives++] = number;
        ++number;
      }
  }

  const PlanOp &sendOf(Id c, Id op) const {
    Id rank = plan.channels[c].source;
    return plan.ranks[rank].ops[op - index.firstOp[rank]];
  }
  const PlanOp &receiveOf(Id c, Id op) const {
    Id rank = plan.channels[c].destination;
    return plan.ranks[rank].ops[op - index.firstOp[rank]];
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
    const Channel &channel = plan.channels[c];
    Id pairs = std::min(counts[c].sends, counts[c].receives);
    if (pairs == 0 && counts[c].sends == counts[c].receives)
      return; // its ranks may not exist
    bool uneven = counts[c].sends != counts[c].receives;
    if (uneven)
      tellUneven(c, pairs);
    bool told = matchPairs(c, pairs, plan.ranks[channel.source],
                           plan.ranks[channel.destination], uneven);
    if (index.hasGroups && !told)
      compareGroups(c, pairs);
  }

  /// True if a pair differs, or something was `told` of the channel before:
  /// then what follows on the channel only repeats it.
  bool matchPairs(Id c, Id pairs, const RankPlan &from, const RankPlan &to,
                  bool told) {
    Id firstSend = index.firstOp[plan.channels[c].source];
    Id firstReceive = index.firstOp[plan.channels[c].destination];
    Id first = index.firstOfChannel[c], edge = kNone;
    for (Id n = 0; n < pairs; ++n) {
      Id send = index.sends[first + n], receive = index.receives[first + n];
      index.mate[send] = receive;
      index.mate[receive] = send;
      if (told)
        continue;
      const PlanOp &sender = from.ops[send - firstSend];
      const PlanOp &receiver = to.ops[receive - firstReceive];
      edge = edgeBetween(sender, receiver, edge);
      Bytes sent = messageBytes(plan, from, sender),
            taken = messageBytes(plan, to, receiver);
      bool same = carriesSame(sender, receiver, edge);
      if (same && sent == taken) {
        index.edge[send] = index.edge[receive] = edge;
        continue;
      }
      told = true;
      differ(c, n, sender, receiver, same, sent, taken);
    }
    return told;
  }

  /// Whether a message has one payload at both ends; `edge` is that between.
  bool carriesSame(const PlanOp &sender, const PlanOp &receiver,
                   Id edge) const {
    return info(sender.op).mate == receiver.op &&
           sender.microbatch == receiver.microbatch &&
           (edge != kNone || isExchange(sender, receiver));
  }
  bool carriesSame(Id c, Id send, Id receive) const {
    const PlanOp &sender = sendOf(c, send), &receiver = receiveOf(c, receive);
    return carriesSame(sender, receiver, edgeBetween(sender, receiver, kNone));
  }

  /// Whether a stage sends gradients to a copy of it, or to the stage that it
  /// is tied to.
  bool isExchange(const PlanOp &sender, const PlanOp &receiver) const {
    return info(sender.op).payload == Payload::TiedGradients
               ? plan.stages[sender.stage].tiedTo == receiver.stage
               : info(sender.op).payload == Payload::WeightGradients &&
                     sender.stage == receiver.stage;
  }

  /// The edge that a message from `sender` to `receiver` is about, which is
  /// mostly `last`, that of the message before it; kNone without one.
  Id edgeBetween(const PlanOp &sender, const PlanOp &receiver, Id last) const {
    if (!info(sender.op).perMicrobatch)
      return kNone;
    bool forward = info(sender.op).payload == Payload::Activation;
    Id from = forward ? sender.stage : receiver.stage;
    Id to = forward ? receiver.stage : sender.stage;
    Id edge = last;
    if (last == kNone || plan.edges[last].from != from ||
        plan.edges[last].to != to)
      edge = findEdge(from, to);
    return edge == kNone || forward || trained(edge) ? edge : kNone;
  }

  bool trained(Id edge) const {
    return plan.stages[plan.edges[edge].from].backward &&
           plan.stages[plan.edges[edge].to].backward;
  }

  std::string channelName(Id c) const {
    const Channel &channel = plan.channels[c];
    return "from rank " + std::to_string(channel.source) + " to rank " +
           std::to_string(channel.destination) + " on communicator " +
           std::to_string(channel.communicator);
  }

  void tell(OpPlace place, std::string message,
            std::optional<OpPlace> meets = std::nullopt) {
    if (report.admits(FindingKind::Mismatch))
      report.error(FindingKind::Mismatch, place, std::move(message), {}, meets);
  }

  /// Tells that the n-th pair of channel `c` carries two different things, or
  /// the `same` thing in different sizes.
  void differ(Id c, Id n, const PlanOp &sender, const PlanOp &receiver,
              bool same, Bytes sent, Bytes taken) {
    const Channel &channel = plan.channels[c];
    Id slot = index.firstOfChannel[c] + n;
    OpPlace place{channel.destination,
                  index.receives[slot] - index.firstOp[channel.destination]};
    OpPlace meets{channel.source,
                  index.sends[slot] - index.firstOp[channel.source]};
    std::string pair = "message " + std::to_string(n + 1) + " " +
                       channelName(c) + ": " + nameOf(sender) + " ";
    if (!same)
      return tell(place, pair + "meets " + nameOf(receiver), meets);
    tell(place,
         pair + "sends " + std::to_string(sent) + " bytes, " +
             nameOf(receiver) + " takes " + std::to_string(taken),
         meets);
  }

  /// Tells that one end of channel `c` has more messages than the other, and
  /// which one is alone, if the others meet without it.
  void tellUneven(Id c, Id pairs) {
    bool moreSends = counts[c].sends > pairs;
    Id first = index.firstOfChannel[c];
    auto meets = [&](Id nth, Id mate) {
      return moreSends ? carriesSame(c, index.sends[first + nth],
                                     index.receives[first + mate])
                       : carriesSame(c, index.sends[first + mate],
                                     index.receives[first + nth]);
    };
    Id lone = 0;
    while (lone < pairs && meets(lone, lone))
      ++lone;
    Id rest = lone; // of the shorter list, what meets without the lone one
    while (rest < pairs && meets(rest + 1, rest))
      ++rest;
    if (rest < pairs)
      lone = pairs; // no single one is to blame
    tellLone(c, moreSends, lone);
  }

  void tellLone(Id c, bool isSend, Id nth) {
    const Channel &channel = plan.channels[c];
    Id slot = index.firstOfChannel[c] + nth;
    Id op = isSend ? index.sends[slot] : index.receives[slot];
    const PlanOp &lone = isSend ? sendOf(c, op) : receiveOf(c, op);
    Id rank = isSend ? channel.source : channel.destination;
    tell({rank, op - index.firstOp[rank]},
         channelName(c) + " there are " + std::to_string(counts[c].sends) +
             " sends and " + std::to_string(counts[c].receives) +
             " receives: " + nameOf(lone) + " meets no " + wanted(lone));
  }

  /// Name of what a message should meet, if one stage is at its other end.
  std::string wanted(const PlanOp &lone) const {
    std::string any = isSend(lone.op) ? "receive" : "send";
    if (!info(lone.op).perMicrobatch)
      return any;
    bool up = lone.op == Op::SendForward || lone.op == Op::RecvBackward;
    std::span<const Id> edges =
        (up ? index.outgoing : index.incoming).of(lone.stage);
    if (edges.size() != 1)
      return any;
    const StageEdge &edge = plan.edges[edges[0]];
    return opName(info(lone.op).mate, up ? edge.to : edge.from,
                  lone.microbatch);
  }

  /// Whether the n-th message of a channel's list starts another unit there
  /// than the one before it. Members of a group stand together in the list.
  bool startsUnit(const std::vector<Id> &list, Id slot) const {
    return index.unit(list[slot]) != index.unit(list[slot - 1]);
  }
  Id unitSize(const std::vector<Id> &list, Id slot, Id first, Id end) const {
    Id unit = index.unit(list[slot]), size = 1;
    for (Id at = slot; at > first && index.unit(list[at - 1]) == unit; --at)
      ++size;
    for (Id at = slot + 1; at < end && index.unit(list[at]) == unit; ++at)
      ++size;
    return size;
  }

  /// Warns where one end of a channel groups other messages than the other.
  void compareGroups(Id c, Id pairs) {
    Id first = index.firstOfChannel[c], slot = first + 1;
    while (slot < first + pairs &&
           startsUnit(index.sends, slot) == startsUnit(index.receives, slot))
      ++slot;
    if (slot >= first + pairs)
      return;
    const Channel &channel = plan.channels[c];
    Id send = index.sends[slot], receive = index.receives[slot];
    Id sends = unitSize(index.sends, slot, first, first + pairs);
    Id receives = unitSize(index.receives, slot, first, first + pairs);
    report.warning(
        FindingKind::Mismatch,
        OpPlace{channel.source, send - index.firstOp[channel.source]},
        "groups of different sizes meet " + channelName(c) + ": " +
            nameOf(sendOf(c, send)) + " is one of " + std::to_string(sends) +
            (sends == 1 ? " send, " : " sends, ") +
            nameOf(receiveOf(c, receive)) + " one of " +
            std::to_string(receives) +
            (receives == 1 ? " receive" : " receives"));
  }

  PlanIndex &index;
  const Plan &plan;
  Report &report;
  std::vector<Counts> counts; ///< per channel
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
  const PlanOp &opOf(Id rank, Id op) const {
    return plan.ranks[rank].ops[op - index.firstOp[rank]];
  }
  Id communicatorOf(Id rank, Id op) const {
    return plan.channels[opOf(rank, op).channel].communicator;
  }

  /// False if it has warned.
  bool compareUnit(Id rank, Id unit) const {
    auto [first, end] = index.members(unit);
    std::vector<Id> met; // members whose mates are on later ranks
    for (Id op = first; end - first > 1 && op < end; ++op)
      if (index.mate[op] != kNone && index.mate[op] >= index.firstOp[rank + 1])
        met.push_back(op);
    auto mateUnit = [this](Id op) { return index.unit(index.mate[op]); };
    std::stable_sort(met.begin(), met.end(), [&](Id one, Id other) {
      return mateUnit(one) < mateUnit(other);
    });
    for (size_t begin = 0, at = 1; at <= met.size(); ++at)
      if (at == met.size() || mateUnit(met[at]) != mateUnit(met[begin])) {
        if (!compareMet(rank, std::span(met).subspan(begin, at - begin)))
          return false;
        begin = at;
      }
    return true;
  }

  /// The first member of each communicator.
  std::vector<Id> firstOfEach(Id rank, std::span<const Id> members) const {
    std::vector<Id> firsts;
    for (Id op : members)
      if (std::none_of(firsts.begin(), firsts.end(), [&](Id other) {
            return communicatorOf(rank, op) == communicatorOf(rank, other);
          }))
        firsts.push_back(op);
    return firsts;
  }

  /// `met`, in order of its rank, is what one group shares with another.
  bool compareMet(Id rank, std::span<const Id> met) const {
    std::vector<Id> turned(met.begin(), met.end());
    std::sort(turned.begin(), turned.end(), [this](Id one, Id other) {
      return index.mate[one] < index.mate[other];
    });
    std::vector<Id> here = firstOfEach(rank, met),
                    there = firstOfEach(rank, turned);
    size_t at = 0;
    while (at < here.size() &&
           communicatorOf(rank, here[at]) == communicatorOf(rank, there[at]))
      ++at;
    if (at == here.size())
      return true;
    auto named = [&](Id op) {
      return "communicator " + std::to_string(communicatorOf(rank, op)) + " (" +
             nameOf(opOf(rank, op)) + ")";
    };
    report.warning(FindingKind::Deadlock, index.place(here[at]),
                   "in one group rank " + std::to_string(rank) + " takes " +
                       named(here[at]) + " before " + named(there[at]) +
                       ", rank " +
                       std::to_string(index.rankOf(index.mate[here[at]])) +
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
