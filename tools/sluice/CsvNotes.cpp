#include "tools/sluice/CsvNotes.h"

#include "tools/sluice/CsvTrial.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <tuple>

namespace sluice {

namespace {

using verify::FindingKind;
using verify::OpPlace;

class Notes {
public:
  Notes(const CsvSchedule &of, const Plan *by, const verify::Result &in,
        const verify::Finding &about)
      : csv(of), plan(by && of.actions.hasMessages ? by : nullptr), result(in),
        finding(about),
        trials(kFewest + kEffort / (of.actions.list.size() + 1)) {}

  /// Of the finding that is the `nth` of its kind.
  std::vector<CsvNote> take(size_t nth) {
    for (const verify::Step &each : finding.story)
      step(each);
    if (finding.untold != 0)
      return {};
    if (nth >= kTried)
      trials = 0;
    switch (finding.kind) {
    case FindingKind::Deadlock:
      mendDeadlock(nth);
      break;
    case FindingKind::Mismatch:
      if (plan && finding.place)
        otherEnd(*finding.place);
      break;
    case FindingKind::Duplicate:
      if (nth == 0 && finding.place)
        oldLetters();
      break;
    case FindingKind::Missing:
    case FindingKind::Order:
    case FindingKind::Memory:
    case FindingKind::Lifetime:
    case FindingKind::Malformed:
      break;
    }
    return std::move(notes);
  }

private:
  static constexpr size_t kTried = 3;        ///< findings of a kind
  static constexpr size_t kFewest = 3;       ///< trials for each
  static constexpr size_t kEffort = 300'000; ///< actions in more of them

  void note(std::string message, SourceLocation where = {}) {
    notes.push_back({std::move(message), where});
  }
  const PlanOp &opAt(OpPlace at) const {
    return plan->ranks[at.rank].ops[at.index];
  }
  std::string rowOf(Id rank) const {
    return "row " + std::to_string(csv.lines[rank].where.line);
  }

  //===--------------------------------------------------------------------===//
  // Deadlocks
  //===--------------------------------------------------------------------===//

  /// What a WAIT_SEND holds back is told with its cell.
  void step(const verify::Step &of) {
    std::optional<size_t> wait =
        plan ? waitBetween(of.from, of.to) : std::nullopt;
    if (!wait)
      return note(of.text, csv.locate(of.from));
    OpPlace cell = csv.placeOfAside(of.from.rank, *wait);
    note("rank " + std::to_string(of.from.rank) + " reaches " +
             csv.nameAt(of.from) + " only after " + csv.nameAt(cell) +
             ", which waits for the end of " + csv.nameAt(of.to),
         csv.locate(cell));
    held.push_back({of.from, *wait});
  }

  /// The WAIT_SEND by which `from` waits for the send `to`, if that is why.
  std::optional<size_t> waitBetween(OpPlace from, OpPlace to) const {
    if (from.rank != to.rank || !isSend(opAt(to).op))
      return std::nullopt;
    const RankPlan &rank = plan->ranks[from.rank];
    if (!llvm::is_contained(rank.waitsOf(from.index), to.index))
      return std::nullopt;
    std::span<const Aside> asides = csv.actions.asidesOf(from.rank);
    uint32_t first = csv.actions.firstOfRank[from.rank];
    auto end = std::ranges::upper_bound(asides, first + from.index, {},
                                        &Aside::before);
    for (size_t i = end - asides.begin(); i-- > 0;) {
      if (asides[i].before <= first + to.index)
        return std::nullopt; // it would wait for what stands behind it
      if (std::optional<OpRef> send = sendOf(asides[i]);
          send && isNamed(opAt(to), *send))
        return i;
    }
    return std::nullopt;
  }

  void mendDeadlock(size_t nth) {
    for (const Held &each : held)
      if (helpsMoved(each))
        note("move " + csv.nameAt(csv.placeOfAside(each.op.rank, each.wait)) +
             " behind " + csv.nameAt(each.op));
    if (finding.fix &&
        (finding.fix->orGrouped || finding.fix->move == verify::Move::Grouped))
      note("in one group: " + groupOf(*finding.fix),
           csv.locate(finding.fix->other));
    if (nth == 0 && csv.orderHolds)
      note(std::string(notes.size() > finding.story.size() || finding.fix
                           ? "or "
                           : "") +
           "leave the messages of the file out" +
           (waitsForSends() ? ", and its WAIT_SENDs" : "") +
           ": they are then added in an order that holds (sluice compile SPEC "
           "--emit=torch-csv-comms writes it, of a spec with pipeline: "
           "{schedule: {csv: FILE}})");
  }

  bool waitsForSends() const {
    return llvm::any_of(csv.actions.asides,
                        [](const Aside &aside) { return !!sendOf(aside); });
  }

  /// An operation, and which of its row's asides holds it back.
  struct Held {
    OpPlace op;
    size_t wait;
  };

  /// Whether fewer deadlocks are left where the wait stands behind what it
  /// holds back.
  bool helpsMoved(const Held &of) {
    if (trials == 0)
      return false; // a trial is as long as the row
    CsvTrial trial(csv, of.op.rank);
    trial.move(trial.cellOfAside(of.wait), trial.cellOf(of.op.index),
               /*behind=*/true);
    std::optional<Faults> left = prove(trial);
    return left && left->deadlocks < own().deadlocks;
  }

  struct Faults {
    size_t deadlocks = 0;
    size_t others = 0;
  };
  static Faults faultsOf(std::span<const verify::Finding> errors) {
    Faults faults;
    for (const verify::Finding &each : errors)
      ++(each.kind == FindingKind::Deadlock ? faults.deadlocks : faults.others);
    return faults;
  }

  /// Those of the file's own plan.
  Faults own() const {
    return faultsOf(std::span(result.errors).first(csv.ofPlan));
  }

  /// What is left of the faults; none if it cannot be told, or not in time.
  std::optional<Faults> prove(const CsvTrial &trial) {
    if (trials == 0)
      return std::nullopt;
    --trials;
    std::optional<verify::Result> left = trial.prove();
    return left ? std::optional(faultsOf(left->errors)) : std::nullopt;
  }

  /// Whether the file has fewer faults with a change, deadlocks apart: those
  /// show up only where messages match.
  bool helps(const CsvTrial &trial) {
    std::optional<Faults> left = prove(trial);
    return left && left->others < own().others;
  }

  /// The cell that holds both, with what is in the group of the first.
  std::string groupOf(const verify::Fix &fix) const {
    const std::vector<PlanOp> &ops = plan->ranks[fix.other.rank].ops;
    Id group = ops[fix.other.index].group;
    uint32_t at = fix.other.index;
    while (group != kNone && at > 0 && ops[at - 1].group == group)
      --at;
    std::string cell = "(" + nameOf(ops[at]);
    while (group != kNone && ++at < ops.size() && ops[at].group == group)
      cell += ";" + nameOf(ops[at]);
    return cell + ";" + csv.nameAt(fix.moved) + ")BATCH_P2P";
  }

  //===--------------------------------------------------------------------===//
  // Mismatches
  //===--------------------------------------------------------------------===//

  /// What a message meets or should meet.
  void otherEnd(OpPlace at) {
    const PlanOp &op = opAt(at);
    OpRef mate{info(op.op).mate, peerOf(op), op.microbatch};
    const Channel &channel = plan->channels[op.channel];
    Id rank = isSend(op.op) ? channel.destination : channel.source;
    std::optional<OpPlace> stands = find(rank, mate);
    std::optional<OpPlace> met = counterpart(at, rank);
    if (!stands)
      return addMate(rank, mate, op.channel, met);
    note(csv.nameAt(met ? *met : *stands) + " is here",
         csv.locate(met ? *met : *stands));
    if (!met)
      return;
    std::vector<Reorder> orders;
    swaps(*stands, *met, orders);
    OpRef due{info(opAt(*met).op).mate, peerOf(opAt(*met)),
              opAt(*met).microbatch};
    if (std::optional<OpPlace> here = find(at.rank, due))
      swaps(*here, at, orders);
    reorder(orders);
  }

  enum class Way : uint8_t { Before, Behind, Swapped };
  /// A message that goes before another of its row, behind it, or to its place.
  struct Reorder {
    OpPlace moved, other;
    Way way;
  };

  /// The ways to have `late` before `early`.
  static void swaps(OpPlace late, OpPlace early, std::vector<Reorder> &to) {
    if (late.index <= early.index)
      return;
    to.push_back({late, early, Way::Before});
    to.push_back({early, late, Way::Behind});
    to.push_back({early, late, Way::Swapped});
  }

  CsvTrial trialOf(const Reorder &of) const {
    CsvTrial trial(csv, of.moved.rank);
    size_t moved = trial.cellOf(of.moved.index);
    size_t other = trial.cellOf(of.other.index);
    if (of.way == Way::Swapped)
      trial.swap(moved, other);
    else
      trial.move(moved, other, of.way == Way::Behind);
    return trial;
  }

  std::string wordsOf(const Reorder &of) const {
    std::string moved = csv.nameAt(of.moved), other = csv.nameAt(of.other);
    std::string row = " (" + rowOf(of.moved.rank) + ")";
    if (of.way == Way::Swapped)
      return "swap " + moved + " and " + other + row;
    std::string way = of.way == Way::Behind ? " behind " : " before ";
    Id group = opAt(of.moved).group;
    if (group != kNone && group == opAt(of.other).group)
      return "take " + moved + " out of its group," + way + "it" + row;
    return "move " + moved + way + wholeOf(of.other) + row;
  }

  /// A cell, which may hold more than one operation.
  std::string wholeOf(OpPlace at) const {
    return (opAt(at).group == kNone ? "" : "the group of ") + csv.nameAt(at);
  }

  /// Tells the one of `orders` that leaves the fewest faults.
  void reorder(std::span<const Reorder> orders) {
    const Reorder *best = nullptr;
    Faults least = own();
    least.deadlocks = 0; // it may have more
    for (const Reorder &each : orders) {
      std::optional<Faults> left = prove(trialOf(each));
      if (!left || std::tie(left->others, left->deadlocks) >=
                       std::tie(least.others, least.deadlocks))
        continue;
      best = &each;
      least = *left;
    }
    if (best)
      note(wordsOf(*best), csv.locate(best->moved));
  }

  static bool isNamed(const PlanOp &op, const OpRef &name) {
    return op.op == name.op && op.stage == name.stage &&
           op.microbatch == name.microbatch;
  }

  static Id peerOf(const PlanOp &op) {
    return isWithLater(op.op) ? op.stage + 1 : op.stage - 1;
  }

  std::optional<OpPlace> find(Id rank, const OpRef &name) const {
    const std::vector<PlanOp> &ops = plan->ranks[rank].ops;
    auto at =
        llvm::find_if(ops, [&](const PlanOp &op) { return isNamed(op, name); });
    if (at == ops.end())
      return std::nullopt;
    return OpPlace{rank, static_cast<uint32_t>(at - ops.begin())};
  }

  /// The message at the other end with the same number on the channel.
  std::optional<OpPlace> counterpart(OpPlace at, Id rank) const {
    const PlanOp &op = opAt(at);
    auto isOneEnd = [&](const PlanOp &other, bool sends) {
      return other.channel == op.channel && isSend(other.op) == sends;
    };
    const std::vector<PlanOp> &mine = plan->ranks[at.rank].ops;
    auto nth = std::count_if(
        mine.begin(), mine.begin() + at.index,
        [&](const PlanOp &other) { return isOneEnd(other, isSend(op.op)); });
    const std::vector<PlanOp> &others = plan->ranks[rank].ops;
    for (uint32_t i = 0; i < others.size(); ++i)
      if (isOneEnd(others[i], !isSend(op.op)) && nth-- == 0)
        return OpPlace{rank, i};
    return std::nullopt;
  }

  /// Where a message is to be added: a receive before what needs it, a send
  /// behind what makes it; or, if that does not help, before the message that
  /// stands in its place, or behind the last one there.
  void addMate(Id rank, const OpRef &mate, Id channel,
               std::optional<OpPlace> met) {
    std::string name = "add " + nameOf(mate);
    std::string row = " (" + rowOf(rank) + ")";
    auto helpsAt = [&](std::optional<OpPlace> cell, bool behind) {
      if (!cell)
        return false;
      CsvTrial trial(csv, rank);
      trial.insert(trial.cellOf(cell->index), behind, mate);
      if (!helps(trial))
        return false;
      note(name + (behind ? " behind " : " before ") + wholeOf(*cell) + row,
           csv.locate(*cell));
      return true;
    };
    if (!helpsAt(userOf(rank, mate), isSend(mate.op)) &&
        !helpsAt(met, /*behind=*/false) &&
        !helpsAt(lastOn(rank, channel, isSend(mate.op)), /*behind=*/true))
      note(name + " to row " + std::to_string(csv.lines[rank].where.line));
  }

  /// The last message of one end of a channel.
  std::optional<OpPlace> lastOn(Id rank, Id channel, bool sends) const {
    const std::vector<PlanOp> &ops = plan->ranks[rank].ops;
    for (size_t i = ops.size(); i-- > 0;)
      if (ops[i].channel == channel && isMessage(ops[i].op) &&
          isSend(ops[i].op) == sends)
        return OpPlace{rank, static_cast<uint32_t>(i)};
    return std::nullopt;
  }

  /// What takes a received message, or makes the one that is sent.
  std::optional<OpPlace> userOf(Id rank, const OpRef &message) const {
    std::optional<OpPlace> user;
    bool forward = info(message.op).payload == Payload::Activation;
    for (Op op : {Op::Forward, Op::Backward, Op::BackwardInput})
      if (!user && forward == (op == Op::Forward))
        user = find(rank, {op, message.stage, message.microbatch});
    return user;
  }

  //===--------------------------------------------------------------------===//
  // Old letters
  //===--------------------------------------------------------------------===//

  /// PyTorch once wrote BW for B and B for I.
  void oldLetters() {
    size_t backwards = 0, weights = 0;
    for (const Action &action : csv.actions.list) {
      if (action.op == Op::BackwardInput)
        return;
      backwards += action.op == Op::Backward;
      weights += action.op == Op::BackwardWeight;
    }
    if (weights != 0 && weights == backwards)
      note("every B has a W: in PyTorch's old letters B was the backward by "
           "inputs; if that is meant, write I for B in the whole file");
  }

  const CsvSchedule &csv;
  const Plan *plan; ///< only if its operations are the file's
  const verify::Result &result;
  const verify::Finding &finding;
  std::vector<CsvNote> notes;
  std::vector<Held> held;
  size_t trials; ///< how often the file may be proved again
};

} // namespace

std::vector<CsvNote> notesOn(const CsvSchedule &csv, const Plan *plan,
                             const verify::Result &result,
                             const verify::Finding &finding) {
  size_t nth = 0;
  for (const verify::Finding &other : result.errors) {
    if (&other == &finding)
      break;
    nth += other.kind == finding.kind;
  }
  return Notes(csv, plan, result, finding).take(nth);
}

} // namespace sluice
