//===- tools/sluice/Report.cpp - `sluice report` -------------------------===//
#include "compiler/emit/Emit.h"
#include "compiler/passes/PassManager.h"
#include "compiler/simulate/Compare.h"
#include "tools/sluice/Driver.h"
#include "tools/sluice/Reports.h"

#include "llvm/ADT/StringExtras.h"

namespace sluice {

Report reportOf(const Compilation &c) {
  Network network = c.network();
  ReportInput input{.model = c.model  ? c.model->name
                             : c.plan ? c.plan->model
                                      : "",
                    .graph = *c.graph,
                    .schedule = *c.schedule,
                    .timing = *c.timing,
                    .network = network,
                    .plan = c.plan ? &*c.plan : nullptr};
  if (c.spec)
    input.objective = c.spec->pipeline.objective;
  if (c.model) {
    input.costs = c.model->costs;
    input.sizes = c.model->sizes;
  }
  for (const Diagnostic &diagnostic : c.diagnostics.all())
    if (diagnostic.severity == Severity::Warning)
      input.warnings.push_back(diagnostic.message);
  if (c.warmup)
    for (const std::string &bound : c.warmup->bounds)
      input.warnings.push_back(bound);
  return buildReport(input);
}

/// Refuses what --compare cannot take: unknown names, or another input than a
/// spec.
static Status checkCompare(const Arguments &arguments, const Input &input) {
  for (const std::string &name : arguments.compare)
    if (!findSchedule(name))
      return Status::usage(
          "--compare=" + escaped(name) + " is not one of " +
          llvm::join(llvm::map_range(
                         allSchedules(),
                         [](const ScheduleInfo &info) { return info.text; }),
                     ", "));
  if (input.kind != InputKind::Spec)
    return Status::usage("--compare needs a spec: '" + escaped(input.name) +
                         "' has its order already");
  return Status();
}

/// The spec's own schedule beside others. Fine if any has a plan that fits;
/// what is wrong with the spec's own is then told in its row alone.
static int compare(const Arguments &arguments, const Input &input) {
  Status status = checkCompare(arguments, input);
  if (!status.ok())
    return fail(status);
  Invocation invocation;
  const Compilation &own = invocation.compilation;
  bool ok = loadSpec(arguments, input, invocation);
  if (!ok) {
    printDiagnostics(arguments, invocation);
    return 1;
  }
  ok = runPasses(arguments, fullPipeline(), invocation);
  Comparison comparison = compareSchedules(own, arguments.compare);
  status = writeOutput("", [&](llvm::raw_ostream &out) {
    if (!arguments.json)
      return emitComparisonText(comparison, out);
    std::optional<Report> report;
    if (own.timing && own.plan)
      report = reportOf(own);
    emitComparisonJson(comparison, report ? &*report : nullptr, out);
  });
  if (ok || !comparison.anyFits())
    printDiagnostics(arguments, invocation);
  if (!status.ok())
    return fail(status);
  return comparison.anyFits() ? 0 : 1;
}

int commands::report(const Arguments &arguments) {
  Input input;
  Status status = readInput(arguments.input, input);
  if (!status.ok())
    return fail(status);
  if (!arguments.compare.empty())
    return compare(arguments, input);
  if (arguments.costs && input.kind != InputKind::Csv)
    return fail(Status::usage("--costs is for a schedule CSV: '" +
                              escaped(input.name) + "' has costs of its own"));
  if (!arguments.overrides.empty() && input.kind == InputKind::Csv)
    return fail(Status::usage("--set=" + escaped(arguments.overrides[0].key) +
                              ": a schedule CSV has no keys; name it in a "
                              "spec, as pipeline.schedule: {csv: FILE}"));
  Invocation invocation;
  int code = loadCompiled(arguments, input, invocation);
  const Compilation &c = invocation.compilation;
  if (c.timing && c.plan) // a plan over its limit still has its report
    status = writeOutput("", [&](llvm::raw_ostream &out) {
      if (arguments.json)
        emitReportJson(reportOf(c), out);
      else
        emitReportText(reportOf(c), out, arguments.verbose);
    });
  printDiagnostics(arguments, invocation);
  return status.ok() ? code : fail(status);
}

} // namespace sluice
