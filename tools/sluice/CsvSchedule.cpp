#include "tools/sluice/CsvSchedule.h"

#include "compiler/passes/PassManager.h"

#include "llvm/Support/Path.h"

namespace sluice {

SourceLocation CsvSchedule::locate(verify::OpPlace place) const {
  if (place.rank >= actions.ranks() ||
      place.index >= actions.rank(place.rank).size())
    return {};
  SourceLocation where = lines[place.rank].where;
  where.column = actions.rank(place.rank)[place.index].column;
  return where;
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

/// What is only worth a word: without REDUCE_GRAD PyTorch loads the file, and
/// skips the scaling and reduction of gradients.
static void warnOfReduction(const CsvSchedule &csv, const Plan &plan,
                            verify::Result &result) {
  bool trains = !plan.stages.empty() && plan.stages.front().backward;
  if (csv.actions.hasMessages && trains && !csv.actions.reducesGradients)
    result.warnings.push_back(
        {verify::FindingKind::Missing,
         "there is no REDUCE_GRAD: PyTorch takes a file with messages as it "
         "stands, and then neither scales nor reduces gradients",
         std::nullopt,
         {}});
}

verify::Result verifyCsv(const CsvSchedule &csv, const verify::Options &options,
                         Compilation &c) {
  verify::Options byName = options;
  byName.buffers = false;
  verify::Result result = verify::verifyPlan(*c.plan, byName);
  warnOfReduction(csv, *c.plan, result);
  if (csv.actions.hasMessages || !result.ok())
    return result;
  raiseSchedule(c);
  result = verify::verifySchedule(*c.graph, *c.schedule);
  if (!result.ok()) {
    c.plan.reset(); // it is the schedule that is wrong
    return result;
  }
  std::string model = std::move(c.plan->model);
  if (!passes::SimulateOps(c) || !passes::LowerToPlan(c))
    return result;
  c.plan->model = std::move(model);
  return verify::verifyPlan(*c.plan, options);
}

} // namespace sluice
