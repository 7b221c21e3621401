#include "compiler/simulate/Simulate.h"
#include "ir/PlanStructure.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

namespace sluice {
namespace {

/// A message whose two ends stand at the head of their streams, or a copy that
/// does.
struct Transfer {
  Ticks ready;
  Id send; ///< operation, or the copy
  bool operator>(const Transfer &other) const {
    return std::pair(ready, send) > std::pair(other.ready, other.send);
  }
};

/// Operations of all ranks are numbered through. What starts is a unit: a
/// group, known by its first operation, or a single operation. Transfers are
/// taken in order of the time at which they become ready, so that a link goes
/// to the first that asks for it; all else follows by dependences alone.
class PlanSimulation {
public:
  PlanSimulation(const Plan &plan, const PlanCosts &costs)
      : plan(plan), costs(costs) {}

  std::optional<PlanTiming> run();

private:
  void prepare();
  void prepareRank(Id rank);
  void joinWaits();
  void joinMessages();
  void joinCollectives();
  void joinLinks();
  void begin(Id unit);
  Ticks durationOf(const PlanOp &op) const;
  Ticks unitDuration(Id op) const;
  void beginOp(Id op, Ticks when);
  void attend(Id op, Ticks when);
  Ticks durationOf(const PlanOp &collective, Bytes bytes) const;
  void carry(const Transfer &transfer);
  void copy(const Transfer &transfer);
  Ticks occupy(Ticks &free, Ticks from, Link link, Bytes bytes);
  void end(Id op, Ticks from, Ticks to);
  void endUnit(Id unit);
  void release(Id op, Ticks when);
  Bytes payload(Id op) const;
  PlanTiming result() const;

  const PlanOp &at(Id op) const {
    Id rank = rankOf[op];
    return plan.ranks[rank].ops[op - firstOp[rank]];
  }

  /// The n-th operations of the ranks of a collective.
  struct Meeting {
    std::vector<Id> ops; ///< of one that misses some, only those before
    uint32_t toCome;     ///< ranks that have not started theirs
    Ticks ready = 0;     ///< start of the last that has
  };

  const Plan &plan;
  const PlanCosts &costs;
  std::vector<Id> firstOp;      ///< per rank, and one past the last
  std::vector<Id> rankOf;       ///< per op, as all below
  std::vector<Id> unit;         ///< first op of its group, or itself
  std::vector<Id> nextOnStream; ///< first later op of another unit
  std::vector<Id> mate;         ///< other end of the message
  std::vector<Id> meetingOf;    ///< in `meetings`; empty without collectives
  std::vector<Meeting> meetings;
  std::vector<Id> firstWaiter; ///< in `waiters`
  std::vector<Id> waiters;     ///< ops that wait for an op's event
  std::vector<Ticks> starts, ends;
  std::vector<uint32_t> waits;     ///< per unit: what it still waits for
  std::vector<uint32_t> running;   ///< per unit: ops that have not ended
  std::vector<bool> begun;         ///< per unit
  std::vector<Id> linkOf;          ///< per channel
  std::vector<Ticks> linkFree;     ///< per link
  std::vector<Ticks> hostLinkFree; ///< per rank, to the host and back
  std::vector<Id> ready;           ///< units to begin
  std::priority_queue<Transfer, std::vector<Transfer>, std::greater<>>
      transfers;
  size_t ended = 0;
};

/// Units, and the order of each stream.
void PlanSimulation::prepareRank(Id rank) {
  const std::vector<PlanOp> &ops = plan.ranks[rank].ops;
  Id lastOnStream[kMaxStreams];
  std::fill(std::begin(lastOnStream), std::end(lastOnStream), kNone);
  for (Id i = 0; i < ops.size(); ++i) {
    Id op = firstOp[rank] + i;
    rankOf[op] = rank;
    bool joins =
        i > 0 && ops[i].group != kNone && ops[i].group == ops[i - 1].group;
    unit[op] = joins ? unit[op - 1] : op;
    ++running[unit[op]];
    Id &last = lastOnStream[ops[i].stream];
    if (last != kNone && unit[last] != unit[op]) {
      nextOnStream[last] = op;
      ++waits[unit[op]];
    }
    last = op;
  }
}

void PlanSimulation::joinWaits() {
  firstWaiter.assign(rankOf.size() + 1, 0);
  auto forEach = [&](auto visit) {
    for (Id rank = 0; rank < plan.ranks.size(); ++rank)
      for (Id i = 0; i < plan.ranks[rank].ops.size(); ++i)
        for (uint32_t recorded : plan.ranks[rank].waitsOf(i))
          visit(firstOp[rank] + recorded, firstOp[rank] + i);
  };
  forEach([&](Id recorded, Id) { ++firstWaiter[recorded + 1]; });
  for (size_t op = 0; op + 1 < firstWaiter.size(); ++op)
    firstWaiter[op + 1] += firstWaiter[op];
  waiters.resize(firstWaiter.back());
  std::vector<Id> free(firstWaiter.begin(), firstWaiter.end() - 1);
  forEach([&](Id recorded, Id waiter) {
    waiters[free[recorded]++] = waiter;
    ++waits[unit[waiter]];
  });
}

/// The n-th send of a channel meets its n-th receive.
void PlanSimulation::joinMessages() {
  std::vector<std::vector<Id>> sends(plan.channels.size());
  for (Id op = 0; op < rankOf.size(); ++op)
    if (isSend(at(op).op))
      sends[at(op).channel].push_back(op);
  std::vector<size_t> met(plan.channels.size(), 0);
  for (Id op = 0; op < rankOf.size(); ++op) {
    if (!isReceive(at(op).op))
      continue;
    Id channel = at(op).channel;
    if (met[channel] == sends[channel].size())
      continue;
    mate[op] = sends[channel][met[channel]++];
    mate[mate[op]] = op;
  }
}

/// The n-th operation of each rank of a collective meets those of the others.
void PlanSimulation::joinCollectives() {
  if (plan.collectives.empty())
    return;
  meetingOf.assign(rankOf.size(), kNone);
  std::vector<std::vector<Id>> of(plan.collectives.size());
  std::map<std::pair<Id, Id>, size_t> turns; // per rank and collective
  for (Id op = 0; op < rankOf.size(); ++op) {
    if (!isCollective(at(op).op))
      continue;
    Id collective = at(op).channel;
    size_t turn = turns[{rankOf[op], collective}]++;
    if (turn == of[collective].size()) {
      of[collective].push_back(static_cast<Id>(meetings.size()));
      const std::vector<Id> &ranks = plan.collectives[collective].ranks;
      meetings.push_back({{}, static_cast<uint32_t>(ranks.size())});
    }
    meetingOf[op] = of[collective][turn];
    meetings[meetingOf[op]].ops.push_back(op);
  }
}

/// Channels of the same ordered pair of ranks share a link.
void PlanSimulation::joinLinks() {
  std::map<std::pair<Id, Id>, Id> links;
  for (const Channel &channel : plan.channels) {
    auto entry = links.try_emplace({channel.source, channel.destination},
                                   static_cast<Id>(links.size()));
    linkOf.push_back(entry.first->second);
  }
  linkFree.assign(links.size(), 0);
  hostLinkFree.assign(2 * plan.ranks.size(), 0);
}

void PlanSimulation::prepare() {
  firstOp.push_back(0);
  for (const RankPlan &rank : plan.ranks)
    firstOp.push_back(firstOp.back() + static_cast<Id>(rank.ops.size()));
  size_t count = firstOp.back();
  rankOf.assign(count, 0);
  unit.assign(count, 0);
  nextOnStream.assign(count, kNone);
  mate.assign(count, kNone);
  starts.assign(count, 0);
  ends.assign(count, 0);
  waits.assign(count, 0);
  running.assign(count, 0);
  begun.assign(count, false);
  for (Id rank = 0; rank < plan.ranks.size(); ++rank)
    prepareRank(rank);
  joinWaits();
  joinMessages();
  joinCollectives();
  joinLinks();
}

Bytes PlanSimulation::payload(Id op) const {
  const RankPlan &rank = plan.ranks[rankOf[op]];
  return messageBytes(plan, rank, rank.ops[op - firstOp[rankOf[op]]]);
}

void PlanSimulation::begin(Id first) {
  begun[first] = true;
  Ticks when = starts[first];
  for (Id op = first; op < unit.size() && unit[op] == first; ++op)
    beginOp(op, when);
}

Ticks PlanSimulation::durationOf(const PlanOp &op) const {
  return costs
      .durations[size_t(op.stage) * kOpCount + static_cast<unsigned>(op.op)];
}

/// Time of what computes: its own, or that of the pair of which it is one.
Ticks PlanSimulation::unitDuration(Id op) const {
  bool isFirst = unit[op] == op;
  Id other = isFirst ? op + 1 : unit[op];
  bool isPair = other < unit.size() && unit[other] == unit[op];
  if (!isPair)
    return durationOf(at(op));
  const PlanOp &mine = at(op), &its = at(other);
  Ticks both = durationOf(mine) + durationOf(its);
  return costs.overlap
             ? pairDuration(durationOf(mine), durationOf(its),
                            plan.stages[mine.stage], plan.stages[its.stage])
             : both;
}

void PlanSimulation::beginOp(Id op, Ticks when) {
  const PlanOp &planned = at(op);
  if (isCollective(planned.op))
    return attend(op, when);
  if (isCopy(planned.op))
    return transfers.push({when, op});
  if (!isMessage(planned.op)) {
    end(op, when, later(when, unitDuration(op)));
    return;
  }
  starts[op] = when;
  Id other = mate[op];
  // A mate of the same unit that comes later in it begins in a moment.
  if (other == kNone || !begun[unit[other]] ||
      (unit[other] == unit[op] && other > op))
    return;
  transfers.push(
      {std::max(when, starts[other]), isSend(planned.op) ? op : other});
}

/// Lets all operations of a meeting end when the last one has started.
void PlanSimulation::attend(Id op, Ticks when) {
  Meeting &meeting = meetings[meetingOf[op]];
  starts[op] = when;
  meeting.ready = std::max(meeting.ready, when);
  if (--meeting.toCome != 0)
    return;
  Ticks done = later(meeting.ready, durationOf(at(op), payload(op)));
  for (Id each : meeting.ops)
    end(each, meeting.ready, done);
}

/// In a ring each of n ranks passes pieces of an n-th of the bytes on to its
/// neighbour: n - 1 to scatter sums, as many to gather, and an all-reduce is
/// one after the other (Patarasuk and Yuan, "Bandwidth optimal all-reduce
/// algorithms for clusters of workstations", 2009, section 3).
Ticks PlanSimulation::durationOf(const PlanOp &op, Bytes bytes) const {
  if (costs.freeMessages)
    return 0;
  const Collective &collective = plan.collectives[op.channel];
  uint64_t ranks = membersOf(plan, collective);
  Link link{collective.latency, collective.bandwidth};
  Ticks piece =
      later(link.latency, link.occupancy(bytes / ranks + (bytes % ranks != 0),
                                         plan.timeUnit));
  const bool isBoth = info(op.op).pattern == Pattern::AllReduce;
  auto pieces = static_cast<Ticks>((isBoth ? 2 : 1) * (ranks - 1));
  return piece != 0 && pieces > kMaxTicks / piece ? kMaxTicks : pieces * piece;
}

/// Puts `bytes`, ready at `from`, on a link that is free from `free` on; gives
/// when they start, and in `free` when the link is free again.
Ticks PlanSimulation::occupy(Ticks &free, Ticks from, Link link, Bytes bytes) {
  Ticks start = std::max(from, free);
  free = costs.freeMessages
             ? start
             : later(start, link.occupancy(bytes, plan.timeUnit));
  return start;
}

void PlanSimulation::carry(const Transfer &transfer) {
  if (isCopy(at(transfer.send).op))
    return copy(transfer);
  const Channel &channel = plan.channels[at(transfer.send).channel];
  Ticks &free = linkFree[linkOf[at(transfer.send).channel]];
  Ticks start =
      occupy(free, transfer.ready, {channel.latency, channel.bandwidth},
             payload(transfer.send));
  Ticks sent = free;
  end(transfer.send, start, sent);
  end(mate[transfer.send], start,
      later(sent, costs.freeMessages ? 0 : channel.latency));
}

/// A rank's copies take turns, those to the host and those back apart.
void PlanSimulation::copy(const Transfer &transfer) {
  Id rank = rankOf[transfer.send];
  Ticks &free =
      hostLinkFree[2 * size_t(rank) + (at(transfer.send).op == Op::Reload)];
  Link link{plan.hostLink.latency, plan.hostLink.bandwidth};
  Ticks start =
      occupy(free, transfer.ready, link,
             copiedBytes(plan.ranks[rank], transfer.send - firstOp[rank]));
  end(transfer.send, start, later(free, costs.freeMessages ? 0 : link.latency));
}

void PlanSimulation::end(Id op, Ticks from, Ticks to) {
  starts[op] = from;
  ends[op] = to;
  ++ended;
  if (--running[unit[op]] == 0)
    endUnit(unit[op]);
}

/// All of a unit ends with its last operation, and starts with its first.
void PlanSimulation::endUnit(Id first) {
  Id last = first;
  Ticks from = starts[first], to = ends[first];
  for (; last < unit.size() && unit[last] == first; ++last) {
    from = std::min(from, starts[last]);
    to = std::max(to, ends[last]);
  }
  for (Id op = first; op < last; ++op) {
    starts[op] = from;
    ends[op] = to;
    if (nextOnStream[op] != kNone)
      release(nextOnStream[op], to);
    for (Id i = firstWaiter[op]; i < firstWaiter[op + 1]; ++i)
      release(waiters[i], to);
  }
}

void PlanSimulation::release(Id op, Ticks when) {
  Id first = unit[op];
  starts[first] = std::max(starts[first], when);
  if (--waits[first] == 0)
    ready.push_back(first);
}

PlanTiming PlanSimulation::result() const {
  PlanTiming timing;
  for (Id rank = 0; rank < plan.ranks.size(); ++rank) {
    auto cut = [&](const std::vector<Ticks> &all) {
      return std::vector<Ticks>(all.begin() + firstOp[rank],
                                all.begin() + firstOp[rank + 1]);
    };
    timing.start.push_back(cut(starts));
    timing.end.push_back(cut(ends));
  }
  if (!ends.empty())
    timing.makespan = *std::max_element(ends.begin(), ends.end());
  return timing;
}

std::optional<PlanTiming> PlanSimulation::run() {
  if (operationCount(plan) >= kNone)
    return std::nullopt;
  prepare();
  for (Id op = 0; op < unit.size(); ++op)
    if (unit[op] == op && waits[op] == 0)
      ready.push_back(op);
  while (true) {
    while (!ready.empty()) {
      Id first = ready.back();
      ready.pop_back();
      begin(first);
    }
    if (transfers.empty())
      break;
    Transfer transfer = transfers.top();
    transfers.pop();
    carry(transfer);
  }
  if (ended != unit.size())
    return std::nullopt;
  return result();
}

} // namespace

PlanCosts costsOf(const Plan &plan) {
  PlanCosts costs;
  costs.durations.reserve(plan.stages.size() * kOpCount);
  for (const Stage &stage : plan.stages)
    for (unsigned op = 0; op < kOpCount; ++op)
      costs.durations.push_back(stage.duration(static_cast<Op>(op)));
  return costs;
}

std::optional<PlanTiming> simulatePlan(const Plan &plan) {
  return simulatePlan(plan, costsOf(plan));
}

Ticks copyTime(const Plan &plan) {
  auto moves = [](const RankPlan &rank) { return rank.hostArenaBytes != 0; };
  if (std::none_of(plan.ranks.begin(), plan.ranks.end(), moves))
    return 0;
  Plan atOnce = plan;
  atOnce.hostLink = {};
  std::optional<PlanTiming> timing = simulatePlan(plan);
  std::optional<PlanTiming> free = simulatePlan(atOnce);
  return timing && free ? std::max(Ticks(0), timing->makespan - free->makespan)
                        : 0;
}

std::optional<PlanTiming> simulatePlan(const Plan &plan,
                                       const PlanCosts &costs) {
  return PlanSimulation(plan, costs).run();
}

} // namespace sluice
