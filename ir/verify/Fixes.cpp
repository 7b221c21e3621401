//===- ir/verify/Fixes.cpp - What would mend a deadlock -------------------===//
//
// Candidates are read off a cycle and tried on a copy: one for each cycle, and
// as long as other cycles show up, one for each of those. Only what ends in a
// plan without a deadlock, and with no other fault than before, is named.
//
//===----------------------------------------------------------------------===//
#include "ir/Groups.h"
#include "ir/verify/Internal.h"

#include <algorithm>
#include <tuple>

namespace sluice::verify {
namespace {

/// `moved` goes before `other`, into its group, or behind it.
struct Change {
  OpPlace moved, other;
  Move move;
};

/// Positions [first, second) of the group of `at`, or of itself.
std::pair<uint32_t, uint32_t> unitOf(const RankPlan &rank, uint32_t at) {
  return groupExtent(at, rank.ops.size(),
                     [&](size_t of) { return rank.ops[of].group; });
}

/// What goes with `change.moved`: a channel keeps its order, so also the
/// messages of its channel that stand between.
std::vector<uint32_t> movedBy(const Plan &plan, const Change &change) {
  const RankPlan &rank = plan.ranks[change.moved.rank];
  auto [first, end] = unitOf(rank, change.other.index);
  uint32_t at = change.moved.index;
  uint32_t from = change.move == Move::Behind ? at : first;
  uint32_t to = change.move == Move::Behind ? end : at + 1;
  std::vector<uint32_t> moved;
  for (uint32_t i = from; i < to; ++i)
    if (keepOrder(rank.ops[i], rank.ops[at]))
      moved.push_back(i);
  return moved;
}

bool contains(std::span<const uint32_t> ascending, uint32_t value) {
  return std::binary_search(ascending.begin(), ascending.end(), value);
}

/// Whether something that `change` moves would then stand before what it waits
/// for, or behind what waits for it; a wait for a send holds back whatever is
/// next, so that what it is about stays where it is.
bool breaksWaits(const Plan &plan, const Change &change) {
  const RankPlan &rank = plan.ranks[change.moved.rank];
  auto [first, end] = unitOf(rank, change.other.index);
  std::vector<uint32_t> moved = movedBy(plan, change);
  for (uint32_t at : moved)
    for (uint32_t wait : rank.waitsOf(at))
      if (isSend(rank.ops[wait].op) ||
          (change.move != Move::Behind && wait >= first))
        return true;
  if (change.move == Move::Behind)
    for (uint32_t at = change.moved.index + 1; at < end; ++at)
      for (uint32_t wait : rank.waitsOf(at))
        if (contains(moved, wait) && !contains(moved, at) &&
            !(rank.ops[at].group != kNone &&
              rank.ops[at].group == rank.ops[wait].group))
          return true;
  return false;
}

bool isPossible(const Plan &plan, const Change &change) {
  const PlanOp &moved = opAt(plan, change.moved);
  const PlanOp &other = opAt(plan, change.other);
  if (!isCommunication(moved.op) || keepOrder(moved, other) ||
      breaksWaits(plan, change))
    return false;
  return change.move != Move::Grouped ||
         (isCommunication(other.op) && movedBy(plan, change).size() == 1);
}

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

/// Two communications of a rank in the order that a cycle needs: of each way
/// within a rank, the one by which it comes to the rank stands behind the one
/// by which it leaves.
struct Turn {
  OpPlace first, second;
};

/// Receives that can be posted earlier come first, of these the nearest: a
/// receive that goes far ahead may hold up what its own message needs.
std::vector<Turn> turnsOf(const Plan &plan, std::span<const OpPlace> cycle) {
  using Rating = std::tuple<bool, uint32_t, bool>; // the least is the best
  std::vector<std::pair<Rating, Turn>> found;
  size_t length = cycle.size();
  auto isAfter = [&](size_t i) {
    return linkBetween(plan, cycle[i % length], cycle[(i + 1) % length]) ==
           Link::After;
  };
  for (size_t i = 0; i < length; ++i) {
    if (isAfter(i + length - 1) || !isAfter(i))
      continue;
    size_t end = i + 1;
    while (isAfter(end))
      ++end;
    Turn turn{cycle[end % length], cycle[i]};
    const PlanOp &first = opAt(plan, turn.first);
    const PlanOp &second = opAt(plan, turn.second);
    bool posts = isReceive(second.op) && isSend(first.op);
    found.emplace_back(Rating(!posts, turn.second.index - turn.first.index,
                              first.op != Op::SendForward),
                       turn);
  }
  std::stable_sort(
      found.begin(), found.end(),
      [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<Turn> turns;
  for (const auto &[rating, turn] : found)
    turns.push_back(turn);
  return turns;
}

/// The changes that may break `cycle`, the best first.
std::vector<Change> candidatesOf(const Plan &plan,
                                 std::span<const OpPlace> cycle) {
  std::vector<Change> candidates;
  auto add = [&](OpPlace moved, OpPlace other, Move move) {
    if (Change change{moved, other, move}; isPossible(plan, change))
      candidates.push_back(change);
  };
  for (size_t i = 0; i < cycle.size(); ++i) {
    OpPlace from = cycle[i], to = cycle[(i + 1) % cycle.size()];
    Link link = linkBetween(plan, from, to);
    bool isGroup = opAt(plan, from).group != kNone &&
                   opAt(plan, from).group == opAt(plan, to).group;
    if (link == Link::Need || (link == Link::Event && isGroup)) {
      add(to, from, Move::Before);
      add(from, to, Move::Behind);
    } else if (link == Link::Group) { // it holds up `from`, if not what is late
      add(to, from, Move::Behind);
      add(from, to, Move::Before);
    }
  }
  std::vector<Turn> turns = turnsOf(plan, cycle);
  for (const Turn &turn : turns)
    add(turn.second, turn.first, Move::Before);
  for (const Turn &turn : turns)
    add(turn.first, turn.second, Move::Behind);
  return candidates;
}

//===----------------------------------------------------------------------===//
// A changed copy
//===----------------------------------------------------------------------===//

/// The list of a rank while it is changed: positions of the list as it was,
/// each with its group.
class Draft {
public:
  explicit Draft(const RankPlan &of) : rank(of) {
    for (uint32_t at = 0; at < rank.ops.size(); ++at) {
      entries.push_back({at, rank.ops[at].group});
      if (Id group = rank.ops[at].group; group != kNone)
        nextGroup = std::max(nextGroup, group + 1);
    }
  }

  void make(const Change &change) {
    size_t other = find(change.other.index), at = find(change.moved.index);
    auto [first, end] = unitAt(other);
    if (change.move == Move::Grouped)
      return join(at, other);
    if (change.move == Move::Behind ? at >= end : at < first)
      return; // by another change
    size_t from = change.move == Move::Behind ? at : first;
    size_t to = change.move == Move::Behind ? end : at + 1;
    const PlanOp &moved = rank.ops[change.moved.index];
    auto isMoved = [&](const Entry &entry) {
      return keepOrder(rank.ops[entry.at], moved);
    };
    auto begin = entries.begin();
    auto middle = std::stable_partition(
        begin + from, begin + to, [&](const Entry &entry) {
          return isMoved(entry) == (change.move != Move::Behind);
        });
    auto [alone, stop] = change.move == Move::Behind
                             ? std::pair(middle, begin + to)
                             : std::pair(begin + from, middle);
    for (; alone != stop; ++alone)
      alone->group = kNone;
  }

  /// The list; false if it has a wait for what does not stand before it.
  bool take(RankPlan &to) const {
    to = rank;
    to.waits.clear();
    to.operands.clear();
    std::vector<uint32_t> placeOf(entries.size());
    for (uint32_t place = 0; place < entries.size(); ++place)
      placeOf[entries[place].at] = place;
    for (uint32_t place = 0; place < entries.size(); ++place) {
      PlanOp &op = to.ops[place];
      op = rank.ops[entries[place].at];
      op.group = entries[place].group;
      op.firstWait = static_cast<uint32_t>(to.waits.size());
      op.firstOperand = static_cast<uint32_t>(to.operands.size());
      for (uint32_t wait : rank.waitsOf(entries[place].at)) {
        if (placeOf[wait] >= place)
          return false;
        to.waits.push_back(placeOf[wait]);
      }
      std::span<const Operand> operands = rank.operandsOf(entries[place].at);
      to.operands.insert(to.operands.end(), operands.begin(), operands.end());
    }
    return true;
  }

private:
  struct Entry {
    uint32_t at;
    Id group;
  };

  size_t find(uint32_t at) const {
    return std::find_if(entries.begin(), entries.end(),
                        [at](const Entry &entry) { return entry.at == at; }) -
           entries.begin();
  }
  std::pair<size_t, size_t> unitAt(size_t at) const {
    return groupExtent(at, entries.size(),
                       [this](size_t of) { return entries[of].group; });
  }

  /// Takes entry `at` into the group of entry `other`.
  void join(size_t at, size_t other) {
    if (entries[other].group == kNone)
      entries[other].group = nextGroup++;
    else if (entries[at].group == entries[other].group)
      return;
    entries[at].group = entries[other].group;
    Entry moved = entries[at];
    if (at < other) {
      entries.erase(entries.begin() + at);
      --other;
      entries.insert(entries.begin() + unitAt(other).first, moved);
      return;
    }
    entries.erase(entries.begin() + at);
    entries.insert(entries.begin() + unitAt(other).second, moved);
  }

  const RankPlan &rank;
  std::vector<Entry> entries;
  Id nextGroup = 0;
};

/// `plan` with all changes, one after the other; none if they do not fit.
std::optional<Plan> changed(const Plan &plan, std::span<const Change> changes) {
  Plan copy = plan;
  for (Id r = 0; r < plan.ranks.size(); ++r) {
    auto isHere = [r](const Change &change) { return change.moved.rank == r; };
    if (std::none_of(changes.begin(), changes.end(), isHere))
      continue;
    Draft draft(plan.ranks[r]);
    for (const Change &change : changes)
      if (isHere(change))
        draft.make(change);
    if (!draft.take(copy.ranks[r]))
      return std::nullopt;
  }
  return copy;
}

//===----------------------------------------------------------------------===//
// Trials
//===----------------------------------------------------------------------===//

using Cycles = std::vector<std::vector<OpPlace>>;

class Trials {
public:
  Trials(const Plan &of, const Options &by, uint64_t faults)
      : plan(of), options(by), otherFaults(faults) {
    constexpr uint64_t kEffort = 2'000'000; // operations proved again
    left = std::max<uint64_t>(1, kEffort / (operationCount(plan) + 1));
  }

  /// How often changes are made until the plan is mended, first of all
  /// `changes`, one for each deadlock of it, then those for what comes up; 0 if
  /// it is not, after a few rounds.
  unsigned mends(std::vector<Change> changes, bool grouped) {
    Plan current = plan;
    for (unsigned round = 1; round <= kRounds && left > 0; ++round) {
      --left;
      if (grouped)
        for (Change &change : changes)
          group(current, change);
      std::optional<Plan> next = changed(current, changes);
      Cycles cycles;
      if (!next || !prove(*next, cycles))
        return 0;
      if (cycles.empty())
        return round;
      current = std::move(*next);
      changes = firstOf(current, cycles);
      if (changes.size() != cycles.size())
        return 0;
    }
    return 0;
  }

  /// Whether there was no time for more.
  bool isExhausted() const { return left == 0; }

private:
  /// The first candidate of each cycle, as far as all have one.
  static std::vector<Change> firstOf(const Plan &of, const Cycles &cycles) {
    std::vector<Change> changes;
    if (cycles.size() <= Report::kMaxOfKind)
      for (const std::vector<OpPlace> &cycle : cycles)
        if (std::vector<Change> all = candidatesOf(of, cycle); !all.empty())
          changes.push_back(all.front());
    return changes;
  }

  static void group(const Plan &of, Change &change) {
    Change other{change.moved, change.other, Move::Grouped};
    if (change.move == Move::Before && isPossible(of, other))
      change = other;
  }

  /// Proves `changedPlan` as far as a deadlock is; what else it has must be
  /// what was there before, once there is none.
  bool prove(const Plan &changedPlan, Cycles &cycles) {
    Result result;
    Report report(result);
    PlanIndex index(changedPlan);
    if (!indexPlan(index, /*structureChecked=*/false, report))
      return false;
    if (!checkOperations(index, options, report))
      return false;
    cycles = deadlocksOf(index, options, effort);
    if (options.buffers && cycles.empty())
      checkBuffers(index, report);
    return report.count() <= otherFaults;
  }

  static constexpr unsigned kRounds = 8;
  const Plan &plan;
  Options options;
  uint64_t otherFaults;
  uint64_t left;                ///< how often a plan may be proved
  uint64_t effort = 10'000'000; ///< for the cycles of all
};

std::string namesOf(const Plan &plan, Id rank,
                    std::span<const uint32_t> places) {
  constexpr size_t kNamed = 8;
  std::string names;
  for (uint32_t at : places.first(std::min(kNamed, places.size())))
    names += (names.empty() ? "" : " and ") + nameOf(plan, {rank, at});
  if (places.size() > kNamed)
    names += " and so on to " + nameOf(plan, {rank, places.back()});
  return names;
}

/// ": what to change".
std::string wordsOf(const Plan &plan, const Fix &fix) {
  std::vector<uint32_t> moved = movedBy(plan, {fix.moved, fix.other, fix.move});
  std::string names = namesOf(plan, fix.moved.rank, moved);
  std::string other = nameOf(plan, fix.other);
  Id group = opAt(plan, fix.other).group;
  if (fix.move == Move::Before && group != kNone &&
      opAt(plan, fix.moved).group == group)
    return ": take " + names + " out of its group, before the group";
  if (fix.move == Move::Behind)
    return (opAt(plan, fix.moved).group != kNone
                ? ": take " + names + " out of its group, behind "
                : ": move " + names + " behind ") +
           other;
  bool isGrouped = fix.orGrouped || fix.move == Move::Grouped;
  if (isGrouped && group != kNone)
    return ": add " + names + " to the group of " + other;
  bool messages = isMessage(opAt(plan, fix.moved).op) &&
                  isMessage(opAt(plan, fix.other).op);
  std::string together = messages ? "send " : "put ";
  if (fix.move == Move::Grouped)
    return ": " + together + names + " and " + other + " in one group";
  return ": post " + names + " before " + other +
         (fix.orGrouped ? ", or " + together + "them in one group" : "");
}

/// How many rounds of changes mend a plan, 0 if they do not: as they are, and
/// where what can be is put in one group instead.
struct Rounds {
  unsigned apart = 0, grouped = 0;

  bool mend() const { return apart != 0 || grouped != 0; }
  unsigned least() const {
    return apart == 0 || (grouped != 0 && grouped < apart) ? grouped : apart;
  }
  /// Without what takes more rounds than the other, if that takes one.
  Rounds best() const {
    return least() != 1 ? *this : Rounds{apart == 1, grouped == 1};
  }
};

/// The fix that `change` stands for.
Fix fixOf(const Plan &plan, const Change &change, Rounds rounds) {
  bool canGroup = change.move == Move::Before &&
                  isPossible(plan, {change.moved, change.other, Move::Grouped});
  Fix fix{change.moved, change.other, change.move};
  if (canGroup && rounds.apart == 0)
    fix.move = Move::Grouped;
  fix.orGrouped = canGroup && rounds.apart != 0 && rounds.grouped != 0;
  fix.isLast = rounds.least() == 1;
  return fix;
}

/// The `nth` candidate of each of `deadlocks`; none if one has no candidates,
/// or these were tried before.
std::vector<Change> candidatesOf(const Plan &plan,
                                 std::span<Finding *const> deadlocks,
                                 size_t nth) {
  std::vector<Change> changes;
  bool isNew = false;
  for (const Finding *each : deadlocks) {
    std::vector<Change> candidates = candidatesOf(plan, each->cycle);
    if (candidates.empty())
      return {};
    isNew |= nth < candidates.size();
    changes.push_back(candidates[std::min(nth, candidates.size() - 1)]);
  }
  return isNew ? changes : std::vector<Change>();
}

/// Gives each of `deadlocks` its fix, if some are known to mend the plan; best
/// are those after which nothing else comes up.
void fixAll(const Plan &plan, std::span<Finding *const> deadlocks,
            Trials &trials) {
  constexpr size_t kCandidates = 4;
  Rounds best;
  for (size_t nth = 0; nth < kCandidates && best.least() != 1; ++nth) {
    std::vector<Change> changes = candidatesOf(plan, deadlocks, nth);
    if (changes.empty())
      return;
    Rounds rounds{trials.mends(changes, /*grouped=*/false),
                  trials.mends(changes, /*grouped=*/true)};
    rounds = rounds.best();
    if (!rounds.mend() || (best.mend() && rounds.least() != 1))
      continue;
    best = rounds;
    for (size_t i = 0; i < changes.size(); ++i)
      deadlocks[i]->fix = fixOf(plan, changes[i], rounds);
  }
}

} // namespace

void nameFixes(const Plan &plan, const Options &options, bool all,
               uint64_t otherFaults, Result &result) {
  std::vector<Finding *> deadlocks;
  for (Finding &finding : result.errors)
    if (finding.kind == FindingKind::Deadlock)
      deadlocks.push_back(&finding);
  Trials trials(plan, options, otherFaults);
  if (all)
    fixAll(plan, deadlocks, trials);
  if (deadlocks.front()->fix) {
    for (Finding *each : deadlocks)
      each->message +=
          wordsOf(plan, *each->fix) +
          (each->fix->isLast ? "" : "; another deadlock then comes up");
    return;
  }
  bool tried = all && !trials.isExhausted();
  if (tried)
    result.advice = "found no few changes of order that mend the deadlocks";
  if (result.minBuffering)
    result.advice += (tried ? "; under buffered:" : "under buffered:") +
                     std::to_string(*result.minBuffering) + " there are none";
  else if (tried)
    result.advice += ", and no buffering helps";
}

} // namespace sluice::verify
