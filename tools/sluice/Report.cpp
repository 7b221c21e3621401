//===- tools/sluice/Report.cpp - `sluice report` -------------------------===//
#include "compiler/emit/Emit.h"
#include "tools/sluice/Driver.h"
#include "tools/sluice/Reports.h"

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
  for (const Diagnostic &diagnostic : c.diagnostics.all())
    if (diagnostic.severity == Severity::Warning)
      input.warnings.push_back(diagnostic.message);
  if (c.warmup)
    for (const std::string &bound : c.warmup->bounds)
      input.warnings.push_back(bound);
  return buildReport(input);
}

int commands::report(const Arguments &arguments) {
  Input input;
  Status status = readInput(arguments.input, input);
  if (!status.ok())
    return fail(status);
  Invocation invocation;
  int code = loadCompiled(arguments, input, invocation);
  const Compilation &c = invocation.compilation;
  if (c.timing && c.plan) // a plan over its limit still has its report
    status = writeOutput("", [&](llvm::raw_ostream &out) {
      (arguments.json ? emitReportJson : emitReportText)(reportOf(c), out);
    });
  printDiagnostics(arguments, invocation);
  return status.ok() ? code : fail(status);
}

} // namespace sluice
