#include "tools/sluice/CsvNotes.h"

#include "ir/Groups.h"
#include "tools/sluice/CsvMends.h"
#include "tools/sluice/CsvTrial.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

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

  bool isMoveTold = false; ///< of a WAIT_SEND

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
      mendDeadlock();
      break;
    case FindingKind::Duplicate:
      if (nth == 0 && finding.place)
        oldLetters();
      break;
    case FindingKind::Mismatch: // CsvMends.h
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

  void mendDeadlock() {
    for (const Held &each : held)
      if (helpsMoved(each)) {
        isMoveTold = true;
        note("move " + csv.nameAt(csv.placeOfAside(each.op.rank, each.wait)) +
             " behind " + csv.nameAt(each.op));
      }
    if (finding.fix &&
        (finding.fix->orGrouped || finding.fix->move == verify::Move::Grouped))
      note("in one group: " + groupOf(*finding.fix),
           csv.locate(finding.fix->other));
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
    --trials;
    CsvTrial trial(csv.actions, of.op.rank);
    trial.move(trial.cellOfAside(of.wait), trial.cellOf(of.op.index),
               /*behind=*/true);
    std::optional<verify::Result> left = proveActions(csv, trial.actions());
    return left && deadlocksOf(*left) < deadlocksOf(result);
  }

  static size_t deadlocksOf(const verify::Result &of) {
    return llvm::count_if(of.errors, [](const verify::Finding &each) {
      return each.kind == FindingKind::Deadlock;
    });
  }

  /// The cell that holds both, with what is in the group of the first.
  std::string groupOf(const verify::Fix &fix) const {
    const std::vector<PlanOp> &ops = plan->ranks[fix.other.rank].ops;
    auto [first, end] = groupExtent(fix.other.index, ops.size(),
                                    [&](size_t at) { return ops[at].group; });
    std::string cell = "(";
    for (size_t at = first; at < end; ++at)
      cell += nameOf(ops[at]) + ";";
    return cell + csv.nameAt(fix.moved) + ")BATCH_P2P";
  }

  static bool isNamed(const PlanOp &op, const OpRef &name) {
    return op.op == name.op && op.stage == name.stage &&
           op.microbatch == name.microbatch;
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

CsvAdvice::CsvAdvice(const CsvSchedule &of, const Plan *by,
                     const verify::Result &in)
    : csv(of), plan(by), result(in) {}

std::vector<CsvNote> CsvAdvice::on(const verify::Finding &finding) {
  size_t nth = 0; // of its kind
  for (const verify::Finding &other : result.errors) {
    if (&other == &finding)
      break;
    nth += other.kind == finding.kind;
  }
  Notes own(csv, plan, result, finding);
  std::vector<CsvNote> notes = own.take(nth);
  isMoveTold |= own.isMoveTold;
  if (finding.kind != FindingKind::Mismatch || !plan ||
      !csv.actions.hasMessages)
    return notes;
  if (!mends)
    mends = mendMismatches(csv, *plan, result);
  if (nth < mends->size()) {
    llvm::append_range(notes, (*mends)[nth].here);
    llvm::append_range(notes, (*mends)[nth].changes);
  }
  return notes;
}

bool CsvAdvice::waitsForSends() const {
  return llvm::any_of(csv.actions.asides,
                      [](const Aside &aside) { return !!sendOf(aside); });
}

std::string CsvAdvice::onDeadlocks() const {
  bool deadlocks = llvm::any_of(result.errors, [](const auto &finding) {
    return finding.kind == FindingKind::Deadlock;
  });
  bool fixed = isMoveTold || llvm::any_of(result.errors, [](const auto &each) {
                 return each.fix.has_value();
               });
  if (!deadlocks || !csv.orderHolds)
    return "";
  return std::string(fixed ? "or " : "") +
         "leave the messages of the file out" +
         (waitsForSends() ? ", and its WAIT_SENDs" : "") +
         ": they are then added in an order that holds (sluice compile SPEC "
         "--emit=torch-csv-comms writes it, of a spec with pipeline: "
         "{schedule: {csv: FILE}})";
}

} // namespace sluice
