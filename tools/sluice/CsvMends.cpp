#include "tools/sluice/CsvMends.h"

#include "ir/Words.h"
#include "tools/sluice/CsvTrial.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <tuple>

namespace sluice {

namespace {

using verify::FindingKind;
using verify::OpPlace;

Id peerOf(const PlanOp &op) {
  return isWithLater(op.op) ? op.stage + 1 : op.stage - 1;
}
OpRef mateOf(const PlanOp &op) {
  return {info(op.op).mate, peerOf(op), op.microbatch};
}
bool isNamed(const PlanOp &op, const OpRef &name) {
  return op.op == name.op && op.stage == name.stage &&
         op.microbatch == name.microbatch;
}

/// The messages of a plan of a CSV, by channel and end.
class Pairs {
public:
  explicit Pairs(const Plan &of) : plan(of), ends(of.channels.size()) {
    for (Id r = 0; r < plan.ranks.size(); ++r)
      for (uint32_t at = 0; at < plan.ranks[r].ops.size(); ++at)
        if (const PlanOp &op = plan.ranks[r].ops[at]; isMessage(op.op))
          (isSend(op.op) ? ends[op.channel].sends : ends[op.channel].receives)
              .push_back({r, at});
  }

  const PlanOp &opAt(OpPlace at) const {
    return plan.ranks[at.rank].ops[at.index];
  }
  /// The n-th send and receive of a channel.
  struct Pair {
    Id channel = kNone;
    std::optional<OpPlace> send, receive;
  };
  Pair pair(Id channel, size_t nth) const {
    auto nthOf = [nth](const std::vector<OpPlace> &of) {
      return nth < of.size() ? std::optional(of[nth]) : std::nullopt;
    };
    return {channel, nthOf(ends[channel].sends), nthOf(ends[channel].receives)};
  }
  /// The first pair of a channel that is none.
  std::optional<Pair> firstBad(Id channel) const {
    for (size_t n = 0; n < length(channel); ++n)
      if (Pair of = pair(channel, n); !meet(of))
        return of;
    return std::nullopt;
  }
  /// What meets a message: the n-th of the other end.
  std::optional<OpPlace> met(OpPlace at) const {
    Id channel = opAt(at).channel;
    bool sends = isSend(opAt(at).op);
    for (size_t n = 0; n < length(channel); ++n) {
      Pair of = pair(channel, n);
      const std::optional<OpPlace> &mine = sends ? of.send : of.receive;
      if (mine && mine->index == at.index)
        return sends ? of.receive : of.send;
    }
    return std::nullopt;
  }
  /// How many pairs of all channels are none.
  size_t bad() const {
    size_t count = 0;
    for (Id c = 0; c < ends.size(); ++c)
      for (size_t n = 0; n < length(c); ++n)
        count += !meet(pair(c, n));
    return count;
  }
  /// The last message of one end of a channel.
  std::optional<OpPlace> last(Id channel, bool sends) const {
    const auto &of = sends ? ends[channel].sends : ends[channel].receives;
    return of.empty() ? std::nullopt : std::optional(of.back());
  }
  std::optional<OpPlace> find(Id rank, const OpRef &name) const {
    const std::vector<PlanOp> &ops = plan.ranks[rank].ops;
    auto at =
        llvm::find_if(ops, [&](const PlanOp &op) { return isNamed(op, name); });
    if (at == ops.end())
      return std::nullopt;
    return OpPlace{rank, static_cast<uint32_t>(at - ops.begin())};
  }

private:
  size_t length(Id channel) const {
    return std::max(ends[channel].sends.size(), ends[channel].receives.size());
  }
  bool meet(const Pair &of) const {
    return of.send && of.receive &&
           isNamed(opAt(*of.receive), mateOf(opAt(*of.send)));
  }

  struct Ends {
    std::vector<OpPlace> sends, receives;
  };
  const Plan &plan;
  std::vector<Ends> ends;
};

/// A message that goes beside another cell of its row, or to its place, or is
/// added there.
struct Change {
  enum class Way : uint8_t { Move, Shift, Swap, Add };
  Way way;
  OpRef name;
  OpPlace other;
  bool behind = false;
  OpPlace moved{}; ///< not of an Add
};

/// A state of the file: its own, or with changes.
struct State {
  const Actions &actions;
  const Plan &plan;
  Pairs pairs{plan};

  Id groupAt(OpPlace at) const { return pairs.opAt(at).group; }
  bool areGrouped(OpPlace one, OpPlace other) const {
    return groupAt(one) != kNone && groupAt(one) == groupAt(other);
  }
};

Actions apply(const State &to, const Change &change) {
  CsvTrial trial(to.actions, change.other.rank);
  size_t other = trial.cellOf(change.other.index);
  if (change.way == Change::Way::Add) {
    trial.insert(other, change.behind, change.name);
    return trial.actions();
  }
  size_t moved = trial.cellOf(change.moved.index);
  if (change.way == Change::Way::Swap)
    trial.swap(moved, other);
  else if (change.way == Change::Way::Shift)
    trial.shift(moved, other, change.behind);
  else
    trial.move(moved, other, change.behind);
  return trial.actions();
}

std::string wordsOf(const State &in, const Change &change) {
  const PlanOp &at = in.pairs.opAt(change.other);
  std::string name = nameOf(change.name), other = nameOf(at);
  std::string way = change.behind ? " behind " : " before ";
  std::string whole = (at.group == kNone ? "" : "the group of ") + other;
  switch (change.way) {
  case Change::Way::Swap:
    return "swap " + name + " and " + other;
  case Change::Way::Shift:
    return "in its group put " + name + way + other;
  case Change::Way::Add:
    return "add " + name + way + whole;
  case Change::Way::Move:
    break;
  }
  if (in.areGrouped(change.moved, change.other))
    return "take " + name + " out of its group," + way + "the group";
  if (in.groupAt(change.moved) != kNone)
    return "take " + name + " out of its group," + way + whole;
  return "move " + name + way + whole;
}

/// The ways to have `late` before `early`, the mildest first.
void addReorders(const State &in, OpPlace late, OpPlace early,
                 std::vector<Change> &to) {
  if (late.rank != early.rank || late.index <= early.index)
    return;
  auto refOf = [&](OpPlace at) {
    const PlanOp &op = in.pairs.opAt(at);
    return OpRef{op.op, op.stage, op.microbatch};
  };
  auto add = [&](Change::Way way) {
    to.push_back({way, refOf(late), early, false, late});
    to.push_back({way, refOf(early), late, true, early});
  };
  if (in.areGrouped(late, early))
    add(Change::Way::Shift);
  add(Change::Way::Move);
  to.push_back({Change::Way::Swap, refOf(early), late, false, early});
}

/// What takes a received message, or makes the one that is sent.
std::optional<OpPlace> userOf(const State &in, Id rank, const OpRef &message) {
  bool forward = info(message.op).payload == Payload::Activation;
  for (Op op : {Op::Forward, Op::Backward, Op::BackwardInput})
    if (forward == (op == Op::Forward))
      if (auto user =
              in.pairs.find(rank, {op, message.stage, message.microbatch}))
        return user;
  return std::nullopt;
}

/// Where `name` may be added: a receive before what needs it, a send behind
/// what makes it; before the message that stands in its place, or behind the
/// last one there.
void addAdditions(const State &in, const Pairs::Pair &bad, const OpRef &name,
                  std::vector<Change> &to) {
  bool sends = isSend(name.op);
  const Channel &channel = in.plan.channels[bad.channel];
  Id rank = sends ? channel.source : channel.destination;
  auto add = [&](std::optional<OpPlace> place, bool behind) {
    if (place)
      to.push_back({Change::Way::Add, name, *place, behind});
  };
  add(userOf(in, rank, name), /*behind=*/sends);
  add(sends ? bad.send : bad.receive, /*behind=*/false);
  add(in.pairs.last(bad.channel, sends), /*behind=*/true);
}

/// What may make a pair of what is none: where one end is nowhere it is added.
std::vector<Change> candidatesOf(const State &in, const Pairs::Pair &bad) {
  std::vector<Change> additions, reorders;
  auto endsOf = [&](std::optional<OpPlace> at, std::optional<OpPlace> met) {
    if (!at)
      return;
    OpRef name = mateOf(in.pairs.opAt(*at));
    const Channel &channel = in.plan.channels[bad.channel];
    Id rank = isSend(name.op) ? channel.source : channel.destination;
    std::optional<OpPlace> stands = in.pairs.find(rank, name);
    if (!stands)
      addAdditions(in, bad, name, additions);
    else if (met)
      addReorders(in, *stands, *met, reorders);
  };
  endsOf(bad.receive, bad.send);
  endsOf(bad.send, bad.receive);
  return additions.empty() ? reorders : additions;
}

/// A change, and the mismatch that it is told with.
struct Step {
  size_t finding;
  bool isAddition;
  std::string words;
  SourceLocation where;
};

/// What changes lead to, best first: no deadlock; one that a change of order
/// mends; one under the model that was asked for alone; one for good; other
/// faults than before; messages that do not match.
enum class End : uint8_t { Holds, Reordered, Weaker, Hangs, Faulty, Open };
struct Outcome {
  End end = End::Open;
  size_t others = 0; ///< faults, not of messages and deadlocks
  std::string words; ///< what then comes up
  std::vector<Step> steps;

  /// Whether it is one to name: what then comes up can be mended.
  bool isGood() const { return end <= End::Weaker; }
  auto rating() const { return std::tuple(end, others, steps.size()); }
};

class Search {
public:
  Search(const CsvSchedule &of, const Plan &by, const verify::Result &in)
      : csv(of), plan(by), result(in),
        trials(
            std::min(kMost, kFewest + kEffort / (of.actions.list.size() + 1))) {
    for (const verify::Finding &each : result.errors) {
      if (each.kind == FindingKind::Mismatch && each.place && !each.untold)
        findings.push_back(&each);
      others += each.kind != FindingKind::Mismatch &&
                each.kind != FindingKind::Deadlock &&
                &each < result.errors.data() + csv.ofPlan;
    }
    inOrder.resize(findings.size());
    for (size_t i = 0; i < findings.size(); ++i)
      inOrder[i] = i;
    std::ranges::stable_sort(inOrder, {}, [this](size_t i) {
      return std::pair(findings[i]->place->rank, findings[i]->place->index);
    });
  }

  std::vector<CsvMends> take() {
    std::vector<CsvMends> mends(findings.size());
    State own{csv.actions, plan};
    for (size_t i = 0; i < findings.size(); ++i)
      tellHere(own, *findings[i], mends[i].here);
    std::vector<Step> steps;
    explore(own, own.pairs.bad(), steps);
    // What is missing is to be added, whatever comes up then.
    if (!best.isGood() && std::ranges::none_of(best.steps, &Step::isAddition))
      best.steps.clear();
    for (const Step &step : best.steps) {
      std::vector<CsvNote> &to = mends[step.finding].changes;
      to.push_back({(to.empty() ? "" : "then ") + step.words, step.where});
    }
    for (size_t i = 0; i < findings.size(); ++i)
      if (!mends[i].changes.empty())
        mends[i].changes.back().message += best.words;
      else if (best.end == End::Open)
        tellOne(own, i, mends[i].changes);
    return mends;
  }

private:
  static constexpr size_t kFewest = 9;       ///< trials
  static constexpr size_t kMost = 400;       ///< of a small file
  static constexpr size_t kEffort = 900'000; ///< actions in more of them
  static constexpr size_t kJudged = 25; ///< trials that one judgement is worth

  bool isOpen() const {
    return trials != 0 && (best.end != End::Holds || best.others != 0);
  }

  Id channelOf(size_t finding) const {
    OpPlace at = *findings[finding]->place;
    return plan.ranks[at.rank].ops[at.index].channel;
  }

  /// The same channel in a changed plan, whose channels may be others.
  static Id channelIn(const Plan &other, const Channel &channel) {
    for (Id c = 0; c < other.channels.size(); ++c)
      if (other.channels[c].source == channel.source &&
          other.channels[c].destination == channel.destination)
        return c;
    return kNone;
  }

  /// The first pair that is none, by the order in which mismatches are told,
  /// and which of these it is told with.
  std::optional<std::pair<Pairs::Pair, size_t>>
  next(const State &in, const std::vector<Step> &steps) const {
    for (size_t i : inOrder) {
      Id c = channelIn(in.plan, plan.channels[channelOf(i)]);
      if (c == kNone)
        continue;
      if (auto bad = in.pairs.firstBad(c))
        return std::pair(*bad, i);
    }
    for (Id c = 0; c < in.plan.channels.size(); ++c)
      if (auto bad = in.pairs.firstBad(c))
        return std::pair(*bad, steps.empty() ? 0 : steps.back().finding);
    return std::nullopt;
  }

  SourceLocation locate(const State &in, OpPlace at) const {
    SourceLocation where = csv.lines[at.rank].where;
    where.column = in.actions.rank(at.rank)[at.index].column;
    return where;
  }

  Step stepOf(const State &in, const Change &change, size_t finding) const {
    bool adds = change.way == Change::Way::Add;
    OpPlace at = adds ? change.other : change.moved;
    return {finding, adds,
            wordsOf(in, change) + " (row " +
                number(csv.lines[at.rank].where.line) + ")",
            locate(in, at)};
  }

  struct Tried {
    Actions actions;
    std::optional<Plan> plan;
    size_t bad;
    size_t change; ///< which
  };

  std::optional<Plan> planOf(const Actions &actions) const {
    Diagnostics faults;
    return planOfActions(actions, csv.lines, {}, faults);
  }

  /// Depth-first: the changes that leave the fewest bad pairs, one after the
  /// other, until something passes. A message that is nowhere is to be added
  /// whatever it leaves.
  void explore(const State &in, size_t bad, std::vector<Step> &steps) {
    auto at = next(in, steps);
    if (!at)
      return finish(in, steps);
    if (best.isGood() && steps.size() >= best.steps.size())
      return; // not with more changes
    std::vector<Change> changes = candidatesOf(in, at->first);
    std::vector<Tried> tried;
    for (size_t i = 0; i < changes.size() && trials != 0; ++i) {
      --trials;
      Tried one{apply(in, changes[i]), std::nullopt, 0, i};
      one.plan = planOf(one.actions);
      if (!one.plan)
        continue;
      one.bad = Pairs(*one.plan).bad();
      if (one.bad < bad || changes[i].way == Change::Way::Add)
        tried.push_back(std::move(one));
    }
    std::ranges::stable_sort(tried, {}, &Tried::bad);
    for (Tried &one : tried) {
      if (!isOpen())
        return;
      steps.push_back(stepOf(in, changes[one.change], at->second));
      explore({one.actions, *one.plan}, one.bad, steps);
      steps.pop_back();
    }
  }

  /// All messages match: what else is wrong?
  void finish(const State &in, const std::vector<Step> &steps) {
    verify::Options options = csv.proved;
    options.remedies = false;
    verify::Result left = verify::verifyPlan(in.plan, options);
    trials -= trials != 0;
    size_t deadlocks = llvm::count_if(left.errors, isDeadlock);
    Outcome outcome{End::Holds, left.errors.size() - deadlocks, "", steps};
    if (outcome.others > others) {
      outcome.end = End::Faulty;
      outcome.words = "; other faults then come up";
    } else if (deadlocks != 0) {
      outcome.end = End::Reordered; // at best
      if (outcome.rating() >= best.rating())
        return;
      trials -= std::min(trials, kJudged);
      judge(in, outcome);
    }
    if (outcome.rating() < best.rating())
      best = std::move(outcome);
  }

  static bool isDeadlock(const verify::Finding &finding) {
    return finding.kind == FindingKind::Deadlock;
  }

  /// Of changes after which there is a deadlock.
  void judge(const State &in, Outcome &outcome) const {
    verify::Result left = verify::verifyPlan(in.plan, csv.proved);
    bool mended = llvm::all_of(left.errors, [](const auto &each) {
      return !isDeadlock(each) || each.fix;
    });
    auto weaker = llvm::find_if(verify::kProgressModels, [&](auto model) {
      return left.holdsUnder(model);
    });
    outcome.words = "; a deadlock then comes up";
    if (mended) {
      outcome.end = End::Reordered;
      outcome.words += ", which another change of order mends";
      return;
    }
    bool holds = weaker != std::end(verify::kProgressModels);
    outcome.end = holds || left.minBuffering ? End::Weaker : End::Hangs;
    if (holds)
      outcome.words +=
          ", though not under " + std::string(verify::progressName(*weaker));
    if (left.minBuffering)
      outcome.words += std::string(holds ? " or" : ", though not under") +
                       " buffered:" + number(*left.minBuffering);
  }

  /// What stands at the other end of a mismatch.
  void tellHere(const State &in, const verify::Finding &finding,
                std::vector<CsvNote> &notes) const {
    const PlanOp &op = in.pairs.opAt(*finding.place);
    const Channel &channel = plan.channels[op.channel];
    Id rank = isSend(op.op) ? channel.destination : channel.source;
    std::optional<OpPlace> stands = in.pairs.find(rank, mateOf(op));
    if (!stands)
      return;
    OpPlace shown = in.pairs.met(*finding.place).value_or(*stands);
    notes.push_back({csv.nameAt(shown) + " is here", csv.locate(shown)});
  }

  /// The change that leaves the fewest bad pairs, of those for one mismatch.
  void tellOne(const State &in, size_t finding,
               std::vector<CsvNote> &notes) const {
    constexpr size_t kTold = 3; // mismatches: each trial is as long as the file
    std::optional<Pairs::Pair> bad = in.pairs.firstBad(channelOf(finding));
    if (!bad || finding >= kTold)
      return;
    size_t fewest = in.pairs.bad();
    std::optional<Step> step;
    for (const Change &change : candidatesOf(in, *bad)) {
      std::optional<Plan> changed = planOf(apply(in, change));
      size_t left = changed ? Pairs(*changed).bad() : fewest;
      bool isFirstAddition = !step && change.way == Change::Way::Add;
      if (left >= fewest && !isFirstAddition)
        continue;
      fewest = std::min(left, fewest);
      step = stepOf(in, change, finding);
    }
    if (step)
      notes.push_back({step->words + "; other messages then still do not match",
                       step->where});
  }

  const CsvSchedule &csv;
  const Plan &plan;
  const verify::Result &result;
  std::vector<const verify::Finding *> findings;
  std::vector<size_t> inOrder; ///< of the findings, by place
  size_t others = 0; ///< faults of the plan: neither mismatch nor deadlock
  size_t trials;     ///< how often a changed file may be looked at
  Outcome best;
};

} // namespace

std::vector<CsvMends> mendMismatches(const CsvSchedule &csv, const Plan &plan,
                                     const verify::Result &result) {
  return Search(csv, plan, result).take();
}

} // namespace sluice
