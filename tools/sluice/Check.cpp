//===- tools/sluice/Check.cpp - `sluice check` ---------------------------===//
#include "ir/PlanFile.h"
#include "ir/text/Text.h"
#include "ir/verify/Verify.h"
#include "tools/sluice/Driver.h"
#include "tools/sluice/Explain.h"
#include "tools/sluice/Findings.h"

namespace sluice {

namespace {
/// What is checked, however it was given.
struct Checked {
  Invocation invocation;
  bool isCsv = false;
  bool isFaultyText = false;      ///< IR text that could not be read
  std::optional<CsvSchedule> csv; ///< none if it could not be read
  std::optional<IrText> text;     ///< its places

  Compilation &parts() { return invocation.compilation; }
  Subject subject() const;
};
} // namespace

Subject Checked::subject() const {
  const Compilation &c = invocation.compilation;
  return {.plan = c.plan ? &*c.plan : nullptr,
          .graph = c.graph ? &*c.graph : nullptr,
          .schedule = c.schedule ? &*c.schedule : nullptr,
          .csv = csv ? &*csv : nullptr,
          .ops = !text    ? nullptr
                 : c.plan ? &text->planOps
                          : &text->scheduleOps,
          .rowsAreRanks = isCsv,
          .file = isCsv || isFaultyText || text ? &invocation.diagnostics
                                                : nullptr};
}

/// Reads what can be checked.
static Status load(const Arguments &arguments, const Input &input,
                   Checked &checked) {
  Invocation &invocation = checked.invocation;
  switch (input.kind) {
  case InputKind::Plan:
    return loadPlan(arguments, input, invocation);
  case InputKind::Ir: {
    std::optional<IrText> ir =
        parseIr(input.text, input.name, invocation.diagnostics);
    checked.isFaultyText = !ir;
    if (!ir)
      return Status();
    if (!ir->plan && !ir->schedule)
      return Status::input("'" + escaped(input.name) +
                           "' holds neither a schedule nor a plan");
    checked.parts().plan = std::move(ir->plan);
    checked.parts().graph = std::move(ir->graph);
    checked.parts().schedule = std::move(ir->schedule);
    checked.text = std::move(ir);
    return Status();
  }
  case InputKind::Spec:
    return Status::input("'" + escaped(input.name) +
                         "' is not a plan, IR text or schedule CSV; compile a "
                         "spec first: sluice compile SPEC -o F");
  case InputKind::Csv:
    checked.isCsv = true;
    checked.csv = readCsv(input, {}, checked.parts());
    return Status();
  }
  return Status();
}

/// What could not even be read is malformed: the answer for a script.
static verify::Result malformed(std::string message) {
  verify::Result result;
  result.errors.push_back(
      {verify::FindingKind::Malformed, std::move(message), std::nullopt, {}});
  return result;
}

/// A plan's schedule must be right too, if the text holds one; else what is
/// told of a schedule holds for every progress model.
static verify::Result verifyChecked(const Arguments &arguments,
                                    Checked &checked) {
  if (checked.isCsv)
    return checked.csv
               ? verifyCsv(*checked.csv, arguments.verify, checked.parts())
               : malformed("the file cannot be read");
  if (checked.isFaultyText)
    return malformed("the text cannot be read");
  verify::Result result;
  Compilation &c = checked.parts();
  if (c.schedule)
    result = verify::verifySchedule(*c.graph, *c.schedule);
  if (!c.plan || !result.ok()) {
    c.plan.reset();
    return result;
  }
  verify::Options options = arguments.verify;
  options.structureChecked = true; // by both readers
  return verify::verifyPlan(*c.plan, options);
}

int commands::check(const Arguments &arguments) {
  if (arguments.explain && arguments.json)
    return fail(Status::usage("--explain is for people, --json for programs"));
  Input input;
  Checked checked;
  Status status = readInput(arguments.input, input);
  if (status.ok())
    status = load(arguments, input, checked);
  if (!status.ok() && !(arguments.json && status.fault() == Fault::Input))
    return fail(status);
  verify::Result result = status.ok() ? verifyChecked(arguments, checked)
                                      : malformed(status.message());
  if (!status.ok())
    (void)fail(status);
  status = writeOutput("", [&](llvm::raw_ostream &out) {
    (arguments.json ? writeFindingsJson : writeFindingsText)(
        arguments, checked.subject(), result, out);
  });
  if (status.ok() && arguments.explain && result.ok() && checked.parts().plan)
    status = writeOutput("", [&](llvm::raw_ostream &out) {
      explainPlan(*checked.parts().plan, arguments.verify, result, out);
    });
  if (!status.ok())
    return fail(status);
  return result.ok() ? 0 : 1;
}

} // namespace sluice
