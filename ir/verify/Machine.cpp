#include "ir/verify/Machine.h"

#include <algorithm>

namespace sluice::verify {

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

Machine::Machine(const PlanIndex &of, Progress progress) : index(of) {
  numberMessages();
  addOrder(progress);
  addWaits();
  after = Digraph::fromPairs(index.units(), before);
  predecessors.assign(index.units(), 0);
  for (auto [first, second] : before)
    ++predecessors[second];
}

void Machine::numberMessages() {
  slotOf.assign(index.operations(), kNone);
  channelOf.assign(index.operations(), kNone);
  sends.assign(index.operations(), 0);
  for (Id c = 0; c < index.plan.channels.size(); ++c)
    for (Id slot = index.firstOfChannel[c]; slot < index.firstOfChannel[c + 1];
         ++slot) {
      Id send = index.sends[slot].op, receive = index.receives[slot].op;
      slotOf[send] = slotOf[receive] = slot;
      channelOf[send] = channelOf[receive] = c;
      sends[send] = 1;
    }
}

/// The queue of a message or a collective; kNone without one. Those of peers
/// stand first, then those of collectives.
Id Machine::queueOf(const PlanOp &op, Progress progress) const {
  if (progress == Progress::Rank)
    return 0;
  if (progress == Progress::Stream)
    return kNone;
  if (isCollective(op.op))
    return static_cast<Id>(2 * index.plan.ranks.size()) + op.channel;
  const Channel &channel = index.plan.channels[op.channel];
  Id peer = isSend(op.op) ? channel.destination : channel.source;
  return progress == Progress::Pair ? peer : 2 * peer + (isSend(op.op) ? 1 : 0);
}

/// Streams and queues are in order.
void Machine::addOrder(Progress progress) {
  size_t ranks = index.plan.ranks.size();
  size_t streams = 0;
  for (const RankPlan &rank : index.plan.ranks)
    streams = std::max(streams, rank.streams.size());
  std::vector<Id> lastOnStream(streams);
  std::vector<Id> lastInQueue(2 * ranks + index.plan.collectives.size(), kNone),
      used;
  auto follow = [this](Id &last, Id unit) {
    if (last != kNone && last != unit)
      before.emplace_back(last, unit);
    last = unit;
  };
  Id number = 0;
  for (const RankPlan &rank : index.plan.ranks) {
    std::fill(lastOnStream.begin(), lastOnStream.end(), kNone);
    for (const PlanOp &op : rank.ops) {
      Id unit = index.unit(number++);
      follow(lastOnStream[op.stream], unit);
      Id queue = isCommunication(op.op) ? queueOf(op, progress) : kNone;
      if (queue == kNone)
        continue;
      used.push_back(queue);
      follow(lastInQueue[queue], unit);
    }
    for (Id queue : used)
      lastInQueue[queue] = kNone;
    used.clear();
  }
}

void Machine::addWaits() {
  for (Id r = 0; r < index.plan.ranks.size(); ++r) {
    const RankPlan &rank = index.plan.ranks[r];
    Id first = index.firstOp[r];
    for (uint32_t at = 0; at < rank.ops.size(); ++at)
      for (uint32_t wait : rank.waitsOf(at))
        before.emplace_back(index.unit(first + wait), index.unit(first + at));
  }
  for (auto [op, needed] : index.needs)
    before.emplace_back(index.unit(needed), index.unit(op));
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

bool Machine::run(uint32_t buffered) {
  Id units = index.units();
  buffers = buffered;
  need = predecessors;
  pending.assign(units, 0);
  phase.assign(units, Phase::Waits);
  satisfied.assign(index.operations(), 0);
  toCome.resize(index.meetings());
  for (Id m = 0; m < index.meetings(); ++m)
    toCome[m] = static_cast<Id>(index.attendantsOf(m).size());
  startable.clear();
  endable.clear();
  for (Id unit = 0; unit < units; ++unit)
    if (need[unit] == 0)
      startable.push_back(unit);
  Id ended = 0;
  while (!startable.empty() || !endable.empty()) {
    if (!endable.empty()) {
      Id unit = endable.back();
      endable.pop_back();
      ++ended;
      end(unit);
      continue;
    }
    Id unit = startable.back();
    startable.pop_back();
    start(unit);
  }
  return ended == units;
}

/// The send ends without its mate: N messages fit, or N before it was taken.
bool Machine::hasRoom(Id send) const {
  if (buffers == 0)
    return false;
  Id slot = slotOf[send], first = index.firstOfChannel[channelOf[send]];
  return slot - first < buffers ||
         phase[index.unit(index.receives[slot - buffers].op)] == Phase::Ended;
}

bool Machine::needsMate(Id op) const {
  Id mate = index.mate(op);
  if (mate == kNone || phase[index.unit(mate)] != Phase::Waits)
    return false;
  return index.unit(mate) != index.unit(op) && !(sends[op] && hasRoom(op));
}

/// A rank's receives from one peer are in one queue, so the receive that frees
/// a buffer ends before the mate starts, but where both are in one group.
Id Machine::awaitedBy(Id op) const {
  Id mate = index.mate(op);
  if (buffers == 0 || !sends[op])
    return mate;
  Id freeing = index.receives[slotOf[op] - buffers].op;
  return index.unit(freeing) == index.unit(mate) ? mate : freeing;
}

void Machine::start(Id unit) {
  phase[unit] = Phase::Started;
  auto [first, end] = index.members(unit);
  for (Id op = first; op < end; ++op)
    if (index.meetingOf(op) == kNone)
      startMessage(op, unit);
    else
      attend(op, unit);
  if (pending[unit] == 0)
    endable.push_back(unit);
}

/// Starts a message, or what is neither a message nor a collective.
void Machine::startMessage(Id op, Id unit) {
  Id mate = index.mate(op);
  if (needsMate(op))
    ++pending[unit];
  else
    satisfied[op] = 1;
  if (mate != kNone && phase[index.unit(mate)] == Phase::Started &&
      index.unit(mate) != unit)
    satisfy(mate);
}

/// Starts a collective: whoever comes last to a meeting lets all others end.
void Machine::attend(Id op, Id unit) {
  Id meeting = index.meeting[op];
  if (--toCome[meeting] != 0) {
    ++pending[unit];
    return;
  }
  satisfied[op] = 1;
  for (Id other : index.attendantsOf(meeting))
    if (other != op)
      satisfy(other);
}

void Machine::satisfy(Id op) {
  if (satisfied[op])
    return;
  satisfied[op] = 1;
  Id unit = index.unit(op);
  if (--pending[unit] == 0)
    endable.push_back(unit);
}

void Machine::end(Id unit) {
  phase[unit] = Phase::Ended;
  for (Id e = after.first[unit]; e < after.first[unit + 1]; ++e)
    if (--need[after.target[e]] == 0)
      startable.push_back(after.target[e]);
  if (buffers == 0)
    return;
  auto [first, last] = index.members(unit);
  for (Id op = first; op < last; ++op)
    if (slotOf[op] != kNone && !sends[op])
      freeBuffer(op);
}

/// A message was taken: the send that waits for its place may end.
void Machine::freeBuffer(Id receive) {
  Id slot = slotOf[receive], end = index.firstOfChannel[channelOf[receive] + 1];
  if (end - slot <= buffers)
    return;
  Id send = index.sends[slot + buffers].op;
  if (phase[index.unit(send)] == Phase::Started)
    satisfy(send);
}

//===----------------------------------------------------------------------===//
// The witness
//===----------------------------------------------------------------------===//

Digraph Machine::waitsFor(const std::vector<Id> &stuck) const {
  std::vector<Id> numberOf(index.units(), kNone);
  for (Id n = 0; n < stuck.size(); ++n)
    numberOf[stuck[n]] = n;
  auto firstMeeting = static_cast<Id>(2 * stuck.size());
  std::vector<std::pair<Id, Id>> pairs;
  for (auto [first, second] : before)
    if (numberOf[first] != kNone)
      pairs.emplace_back(2 * numberOf[second], 2 * numberOf[first] + 1);
  for (Id n = 0; n < stuck.size(); ++n) {
    if (phase[stuck[n]] == Phase::Waits)
      pairs.emplace_back(2 * n + 1, 2 * n);
    auto [first, end] = index.members(stuck[n]);
    for (Id op = first; op < end; ++op)
      if (needsMate(op)) {
        Id awaited = awaitedBy(op);
        pairs.emplace_back(2 * n + 1, 2 * numberOf[index.unit(awaited)] +
                                          (awaited == index.mate(op) ? 0 : 1));
      }
  }
  addMeetings(numberOf, firstMeeting, pairs);
  return Digraph::fromPairs(firstMeeting + index.meetings(), pairs);
}

void Machine::addMeetings(const std::vector<Id> &numberOf, Id firstNode,
                          std::vector<std::pair<Id, Id>> &pairs) const {
  for (Id m = 0; m < index.meetings(); ++m)
    for (Id op : index.attendantsOf(m)) {
      Id unit = index.unit(op);
      if (toCome[m] == 0 || phase[unit] == Phase::Ended)
        continue;
      pairs.emplace_back(2 * numberOf[unit] + 1, firstNode + m);
      if (phase[unit] == Phase::Waits)
        pairs.emplace_back(firstNode + m, 2 * numberOf[unit]);
    }
}

/// What operation `op` waits for in `unit`; kNone if nothing.
Id Machine::mateIn(Id op, Id unit) const {
  if (Id meeting = index.meetingOf(op); meeting != kNone) {
    for (Id other : index.attendantsOf(meeting))
      if (index.unit(other) == unit)
        return other;
    return kNone;
  }
  if (!needsMate(op))
    return kNone;
  Id awaited = awaitedBy(op);
  return index.unit(awaited) == unit ? awaited : kNone;
}

/// The member of `unit` that waits for one of unit `peer`, and that one.
std::pair<Id, Id> Machine::matesBetween(Id unit, Id peer) const {
  auto [first, end] = index.members(unit);
  for (Id op = first; op < end; ++op)
    if (Id mate = mateIn(op, peer); mate != kNone)
      return {op, mate};
  return {first, first}; // not reached: such a pair made the step
}

/// A member of a group that waits for another one, and that one.
std::vector<OpPlace> Machine::waitInside(Id unit) const {
  auto [first, end] = index.members(unit);
  OpPlace begin = index.place(first);
  for (uint32_t at = begin.index; at < begin.index + (end - first); ++at)
    for (uint32_t wait : index.plan.ranks[begin.rank].waitsOf(at))
      if (wait >= begin.index)
        return {{begin.rank, at}, {begin.rank, wait}};
  return {begin};
}

/// What of `unit` waits for the end of what of unit `other` by an event or a
/// need, and that one; kNone if its place in a list alone makes it wait.
std::pair<Id, Id> Machine::waitBetween(Id unit, Id other) const {
  auto [first, end] = index.members(unit);
  auto [otherFirst, otherEnd] = index.members(other);
  auto each = std::lower_bound(index.needs.begin(), index.needs.end(),
                               std::pair(first, Id(0)));
  for (; each != index.needs.end() && each->first < end; ++each)
    if (otherFirst <= each->second && each->second < otherEnd)
      return *each;
  OpPlace begin = index.place(first);
  Id firstOfRank = first - begin.index;
  for (Id op = first; op < end; ++op)
    for (uint32_t wait : index.plan.ranks[begin.rank].waitsOf(op - firstOfRank))
      if (Id awaited = firstOfRank + wait;
          otherFirst <= awaited && awaited < otherEnd)
        return {op, awaited};
  return {kNone, kNone};
}

std::vector<Id> Machine::stuckUnits() const {
  std::vector<Id> stuck;
  for (Id unit = 0; unit < index.units(); ++unit)
    if (phase[unit] != Phase::Ended)
      stuck.push_back(unit);
  return stuck;
}

std::vector<std::vector<OpPlace>> Machine::witnesses(uint64_t &effort) const {
  std::vector<Id> stuck = stuckUnits();
  std::vector<std::vector<OpPlace>> cycles;
  for (std::vector<Id> &cycle : shortestCycles(waitsFor(stuck), effort)) {
    std::erase_if(cycle, [&](Id node) { return node >= 2 * stuck.size(); });
    cycles.push_back(placesOf(stuck, cycle));
  }
  return cycles;
}

/// A cycle begins with what meets something; without any, with what needs
/// something, else with what waits for it.
std::vector<OpPlace> Machine::placesOf(const std::vector<Id> &stuck,
                                       const std::vector<Id> &cycle) const {
  size_t length = cycle.size();
  auto unitAt = [&](size_t i) { return stuck[cycle[i % length] / 2]; };
  // Two members that make the step; kNone where there is none, or only order.
  auto stepAt = [&](size_t i) {
    if (unitAt(i) == unitAt(i + 1))
      return std::pair(kNone, kNone);
    return cycle[i % length] % 2 == 1 ? matesBetween(unitAt(i), unitAt(i + 1))
                                      : waitBetween(unitAt(i), unitAt(i + 1));
  };
  auto rating = [&](size_t i) { // the least begins
    auto [op, awaited] = stepAt(i);
    return op == kNone ? 3 : cycle[i] % 2 == 1 ? 0 : op < awaited ? 1 : 2;
  };
  size_t begin = 0;
  for (size_t i = 1; i < length && rating(begin) != 0; ++i)
    if (rating(i) < rating(begin))
      begin = i;
  if (length == 2 && unitAt(0) == unitAt(1))
    return waitInside(unitAt(0));

  auto closes = [&](size_t i, Id front) {
    return i + 1 == begin + length && index.unit(front) == unitAt(i);
  };
  std::vector<Id> told;
  for (size_t i = begin; i < begin + length; ++i)
    if (auto [op, awaited] = stepAt(i); op != kNone) {
      if (told.empty() || told.back() != op)
        told.push_back(op);
      if (awaited != told.front())
        told.push_back(awaited);
    } else if (told.empty() || (index.unit(told.back()) != unitAt(i) &&
                                !closes(i, told.front()))) {
      told.push_back(index.members(unitAt(i)).first);
    }
  std::vector<OpPlace> places;
  for (Id op : told)
    places.push_back(index.place(op));
  return places;
}

//===----------------------------------------------------------------------===//
// The quick proof
//===----------------------------------------------------------------------===//

namespace {

class ListOrder {
public:
  explicit ListOrder(const PlanIndex &of)
      : index(of), ranks(of.plan.ranks.size()) {
    for (Id m = 0; m < of.meetings(); ++m)
      toCome.push_back(static_cast<Id>(of.attendantsOf(m).size()));
  }

  bool run() {
    for (Id r = 0; r < ranks.size(); ++r) {
      ranks[r] = {index.firstUnit[r], 0};
      complete.push_back(r);
      // The unit before the first is complete.
      --ranks[r].unit;
      while (!complete.empty()) {
        Id next = complete.back();
        complete.pop_back();
        advance(next);
      }
    }
    for (Id r = 0; r < ranks.size(); ++r)
      if (ranks[r].unit != index.firstUnit[r + 1])
        return false;
    return true;
  }

private:
  struct Rank {
    Id unit = kNone; ///< the unit that runs; kNone before the rank begins
    Id missing = 0;  ///< its members whose mates have not started
  };

  void advance(Id r) {
    Rank &rank = ranks[r];
    for (Id end = index.firstUnit[r + 1]; ++rank.unit != end;) {
      rank.missing = 0;
      auto [first, last] = index.members(rank.unit);
      fetch(first);
      for (Id op = first; op < last; ++op)
        if (const Match &match = index.matches[op]; match.mate != kNone)
          meet(rank, match);
        else if (index.meetingOf(op) != kNone)
          attend(rank, r, op);
      if (rank.missing != 0)
        return;
    }
  }

  /// Asks for what the rank looks at some turns later: so many lists side by
  /// side are more than the processor foresees.
  void fetch(Id op) const {
    constexpr size_t kAhead = 10;
    __builtin_prefetch(index.matches.data() +
                       std::min(op + kAhead, index.matches.size() - 1));
  }

  void meet(Rank &rank, const Match &match) {
    Id mate = index.unit(match.mate);
    if (mate == rank.unit)
      return;
    Rank &peer = ranks[match.rank];
    if (&peer == &rank || peer.unit != mate)
      ++rank.missing;
    else if (--peer.missing == 0)
      complete.push_back(match.rank);
  }

  /// All others of a meeting stand at it when the last one comes.
  void attend(Rank &rank, Id r, Id op) {
    Id meeting = index.meeting[op];
    if (--toCome[meeting] != 0) {
      ++rank.missing;
      return;
    }
    const PlanOp &last = index.plan.ranks[r].ops[op - index.firstOp[r]];
    for (Id peer : index.plan.collectives[last.channel].ranks)
      if (peer != r && --ranks[peer].missing == 0)
        complete.push_back(peer);
  }

  const PlanIndex &index;
  std::vector<Rank> ranks;
  std::vector<Id> toCome;   ///< per meeting, operations not started
  std::vector<Id> complete; ///< ranks whose unit has ended
};

} // namespace

bool runsInListOrder(const PlanIndex &index) { return ListOrder(index).run(); }

} // namespace sluice::verify
