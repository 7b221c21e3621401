#include "tools/sluice/CsvSchedule.h"

#include "compiler/passes/PassManager.h"
#include "compiler/schedules/OrdersText.h"
#include "ir/text/TextFile.h"
#include "tools/sluice/Findings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

namespace sluice {

SourceLocation CsvSchedule::locate(verify::OpPlace place) const {
  if (place.rank >= actions.ranks())
    return {};
  SourceLocation where = lines[place.rank].where;
  std::span<const Action> row = actions.rank(place.rank);
  std::span<const Aside> asides = actions.asidesOf(place.rank);
  if (place.index < row.size())
    where.column = row[place.index].column;
  else if (place.index - row.size() < asides.size())
    where.column = asides[place.index - row.size()].column;
  return where;
}

std::string CsvSchedule::nameAt(verify::OpPlace place) const {
  if (place.rank >= actions.ranks())
    return "";
  std::span<const Action> row = actions.rank(place.rank);
  std::span<const Aside> asides = actions.asidesOf(place.rank);
  if (place.index < row.size())
    return opName(row[place.index].op, row[place.index].stage,
                  row[place.index].microbatch);
  return place.index - row.size() < asides.size()
             ? nameOf(asides[place.index - row.size()])
             : "";
}

std::optional<CsvSchedule> readCsv(const Input &input, const ActionCosts &costs,
                                   Compilation &compilation) {
  Diagnostics &diagnostics = compilation.diagnostics;
  CsvSchedule csv;
  csv.lines =
      linesOfCsv(input.text, diagnostics.addSource(input.name, input.text));
  csv.actions = parseActions(csv.lines, ',', diagnostics);
  if (diagnostics.hasErrors())
    return std::nullopt;
  compilation.plan = planOfActions(csv.actions, csv.lines, costs, diagnostics);
  if (!compilation.plan)
    return std::nullopt;
  compilation.plan->model = llvm::sys::path::stem(input.name).str();
  return csv;
}

namespace {

/// What a plan does not say: gradients that are not reduced, or twice, and rows
/// without a computation.
class RowCheck {
public:
  RowCheck(const CsvSchedule &of, const Plan &by, verify::Result &to)
      : csv(of), plan(by), result(to) {}

  void check() {
    lastBackward.assign(plan.stages.size(), kNone);
    reduced.assign(plan.stages.size(), kNone);
    reduction.assign(plan.stages.size(), kNone);
    for (Id rank = 0; rank < csv.actions.ranks(); ++rank)
      checkRow(rank);
    if (warnings > kMost)
      warn(firstUntold, "and " + std::to_string(warnings - kMost) +
                            " more warnings, the first of them here");
    if (duplicates > kMost)
      twice(result.errors.back().place,
            "and " + std::to_string(duplicates - kMost) +
                " more REDUCE_GRADs that stand twice");
  }

private:
  void checkRow(Id rank) {
    std::span<const Action> row = csv.actions.rank(rank);
    std::vector<Id> trained;
    for (const Action &action : row)
      if (isCompute(action.op) && action.op != Op::Forward) {
        Id &last = lastBackward[action.stage];
        if (last == kNone)
          trained.push_back(action.stage);
        last = static_cast<Id>(&action - row.data());
      }
    if (llvm::none_of(row, [](const Action &a) { return isCompute(a.op); }))
      tell(verify::OpPlace{rank, kNone},
           "row " + std::to_string(csv.lines[rank].where.line) +
               " computes nothing: rank " + std::to_string(rank) + " is idle");
    reductions(rank);
    for (Id stage : trained)
      if (reduced[stage] != kNone && reduced[stage] <= lastBackward[stage])
        early(rank, stage);
      else if (reduced[stage] == kNone && csv.actions.hasMessages)
        unreduced(rank, stage); // PyTorch adds what a file without lacks
  }

  void reductions(Id rank) {
    std::span<const Aside> asides = csv.actions.asidesOf(rank);
    for (size_t i = 0; i < asides.size(); ++i) {
      if (asides[i].kind != AsideKind::ReduceGrad)
        continue;
      Id &at = reduced[asides[i].stage];
      if (at != kNone && ++duplicates <= kMost)
        twice(csv.placeOfAside(rank, i), nameOf(asides[i]) + " stands twice");
      at = asides[i].before - csv.actions.firstOfRank[rank];
      reduction[asides[i].stage] = static_cast<Id>(i);
      if (lastBackward[asides[i].stage] == kNone)
        tell(csv.placeOfAside(rank, i),
             nameOf(asides[i]) + " reduces nothing: stage " +
                 std::to_string(asides[i].stage) + " has no backward");
    }
  }

  std::string lastBackwardOf(Id rank, Id stage) const {
    return csv.nameAt({rank, lastBackward[stage]});
  }

  void early(Id rank, Id stage) {
    verify::OpPlace at = csv.placeOfAside(rank, reduction[stage]);
    tell(at, csv.nameAt(at) + " stands before " + lastBackwardOf(rank, stage) +
                 ", whose gradients PyTorch then neither scales nor reduces; "
                 "move it to the end of the row");
  }

  void unreduced(Id rank, Id stage) {
    std::string number = std::to_string(stage);
    tell(verify::OpPlace{rank, lastBackward[stage]},
         "there is no " + number + "REDUCE_GRAD behind " +
             lastBackwardOf(rank, stage) +
             ": PyTorch takes a file with messages as it stands, and then "
             "neither scales nor reduces the gradients of stage " +
             number + "; end the row with " + number + "REDUCE_GRAD");
  }

  void twice(std::optional<verify::OpPlace> place, std::string message) {
    result.errors.push_back(
        {verify::FindingKind::Duplicate, std::move(message), place, {}});
  }
  void tell(std::optional<verify::OpPlace> place, std::string message) {
    if (++warnings <= kMost)
      warn(place, std::move(message));
    else if (!firstUntold)
      firstUntold = place;
  }
  void warn(std::optional<verify::OpPlace> place, std::string message) {
    result.warnings.push_back(
        {verify::FindingKind::Missing, std::move(message), place, {}});
  }

  static constexpr size_t kMost = 100;
  const CsvSchedule &csv;
  const Plan &plan;
  verify::Result &result;
  /// Per stage, positions in its row: of the last backward, of the action
  /// behind the REDUCE_GRAD, and of that among the asides.
  std::vector<Id> lastBackward, reduced, reduction;
  size_t warnings = 0, duplicates = 0;
  std::optional<verify::OpPlace> firstUntold; ///< of the warnings
};

} // namespace

verify::Result verifyCsv(CsvSchedule &csv, const verify::Options &options,
                         Compilation &c) {
  csv.proved = options;
  csv.proved.buffers = false;
  verify::Result rows, result = verify::verifyPlan(*c.plan, csv.proved);
  RowCheck(csv, *c.plan, rows).check();
  csv.ofPlan = result.errors.size();
  llvm::append_range(result.errors, rows.errors);
  llvm::append_range(result.warnings, rows.warnings);
  bool deadlocks = llvm::any_of(result.errors, [](const auto &finding) {
    return finding.kind == verify::FindingKind::Deadlock;
  });
  if (csv.actions.hasMessages ? !deadlocks : !result.ok())
    return result;
  raiseSchedule(c);
  verify::Result order = verify::verifySchedule(*c.graph, *c.schedule);
  if (csv.actions.hasMessages) {
    csv.orderHolds = order.ok();
    return result;
  }
  llvm::append_range(order.warnings, rows.warnings);
  if (!order.ok()) {
    c.plan.reset(); // it is the schedule that is wrong
    return order;
  }
  std::string model = std::move(c.plan->model);
  if (!passes::SimulateOps(c) || !passes::LowerToPlan(c)) {
    result.errors.push_back({verify::FindingKind::Malformed,
                             "no messages can be added",
                             std::nullopt,
                             {}});
    return result;
  }
  c.plan->model = std::move(model);
  result = verify::verifyPlan(*c.plan, options);
  llvm::append_range(result.warnings, rows.warnings);
  return result;
}

bool checkScheduleCsv(const Spec &spec, Diagnostics &diagnostics) {
  std::string path = scheduleCsvPath(spec);
  std::string text;
  if (!readTextFile(path, text).ok())
    return true;
  unsigned before = diagnostics.errorCount();
  auto good = [&] { return diagnostics.errorCount() == before; };
  CsvSchedule csv;
  csv.lines = linesOfCsv(text, diagnostics.addSource(path, text));
  csv.actions = parseActions(csv.lines, ',', diagnostics);
  if (!good())
    return false;
  dropMessages(csv.actions);
  std::optional<Plan> plan =
      planOfActions(csv.actions, csv.lines, {}, diagnostics);
  if (!plan)
    return false;
  Compilation own(diagnostics);
  own.plan = std::move(plan);
  verify::Options byName;
  byName.buffers = false;
  verify::Result result = verify::verifyPlan(*own.plan, byName);
  if (result.ok()) {
    raiseSchedule(own);
    result = verify::verifySchedule(*own.graph, *own.schedule);
  }
  tellFindings({.csv = &csv}, result, diagnostics);
  return good();
}

} // namespace sluice
