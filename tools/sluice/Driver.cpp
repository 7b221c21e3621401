#include "tools/sluice/Driver.h"

#include "compiler/MemoryAdvice.h"
#include "compiler/spec/RunSection.h"
#include "compiler/spec/Sections.h"
#include "ir/PlanFile.h"
#include "ir/verify/Verify.h"
#include "runtime/Modules.h"
#include "tools/sluice/CsvSchedule.h"
#include "tools/sluice/Findings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Errno.h"

#include <sys/mman.h>

namespace sluice {

void printDiagnostics(const Arguments &arguments,
                      const Invocation &invocation) {
  if (!arguments.quiet || invocation.diagnostics.hasErrors())
    llvm::errs() << invocation.diagnostics.render();
}

bool loadSpec(const Arguments &arguments, const Input &input,
              Invocation &invocation) {
  std::optional<Spec> &spec = invocation.compilation.spec;
  spec = parseSpec(input.text, input.name, arguments.overrides,
                   invocation.diagnostics);
  if (spec)
    warnOfIdleKeys(*spec, arguments.module, runtime::moduleNames(),
                   invocation.diagnostics);
  return spec.has_value();
}

/// Sets `run.KEY` of a plan, by the rules of a spec; any other key is refused.
/// Faults of the values become diagnostics, and the plan stays as it is.
static Status applyOverrides(const Arguments &arguments, Plan &plan,
                             Diagnostics &diagnostics) {
  auto isSet = [&](llvm::StringRef key) {
    return llvm::any_of(arguments.overrides, [&](const Override &override) {
      return override.key == "run." + key.str();
    });
  };
  for (const Override &override : arguments.overrides) {
    llvm::StringRef key = override.key;
    if (!key.consume_front("run.") || !isRunKey(key))
      return Status::usage(
          "--set=" + escaped(override.key) +
          ": of a plan only keys of the run section can be set");
  }
  std::optional<RunSpec> run =
      parseRunOverrides(arguments.overrides, diagnostics);
  if (!run)
    return Status();
  for (auto &[key, value] : runEntries(*run))
    if (isSet(key))
      setRunValue(plan, key, value);
  return Status();
}

void setRunValue(Plan &plan, const std::string &key, const std::string &value) {
  llvm::erase_if(plan.run,
                 [&](const auto &entry) { return entry.first == key; });
  plan.run.emplace_back(key, value);
  llvm::sort(plan.run);
}

/// Reads a plan from a file, or by way of one in memory from standard input.
static Status readPlan(const Input &input, Plan &plan) {
  if (input.name != "-")
    return readPlanFile(input.name, plan);
  int file = ::memfd_create("plan", MFD_CLOEXEC);
  if (file < 0)
    return Status::environment("cannot create a file in memory: " +
                               llvm::sys::StrError());
  llvm::raw_fd_ostream out(file, /*shouldClose=*/true);
  out << input.text;
  out.flush();
  if (std::error_code error = out.error()) {
    out.clear_error();
    return Status::environment("cannot keep standard input in memory: " +
                               error.message());
  }
  return readPlanFile("/proc/self/fd/" + std::to_string(file), plan,
                      input.name);
}

Status loadPlan(const Arguments &arguments, const Input &input,
                Invocation &invocation) {
  Plan plan;
  Status status = readPlan(input, plan);
  invocation.diagnostics.addSource(input.name, "");
  if (status.ok())
    status = applyOverrides(arguments, plan, invocation.diagnostics);
  if (status.ok())
    invocation.compilation.plan = std::move(plan);
  return status;
}

bool runPasses(const Arguments &arguments, const Pipeline &pipeline,
               Invocation &invocation) {
  PipelineOptions options;
  options.printAfter = arguments.printAfter;
  options.timePasses = arguments.timePasses;
  options.log = &llvm::errs();
  Compilation &compilation = invocation.compilation;
  bool ok = runPipeline(pipeline, compilation, options);
  if (compilation.overLimit)
    adviseOnLimit(compilation);
  return ok;
}

/// Verifies a plan that was read; its faults become diagnostics.
static bool verifyLoaded(const Arguments &arguments, Invocation &invocation) {
  Pipeline pipeline;
  std::string error;
  if (!parsePipeline("verify-plan", artifactsOf(invocation.compilation),
                     pipeline, error)) {
    invocation.diagnostics.error({}, error);
    return false;
  }
  return runPasses(arguments, pipeline, invocation);
}

/// The plan of a CSV, raised; faults and findings become diagnostics.
static int loadCsv(const Arguments &arguments, const Input &input,
                   Invocation &invocation) {
  Compilation &c = invocation.compilation;
  std::optional<CsvSchedule> csv =
      readCsv(input, arguments.costs.value_or(ActionCosts()), c);
  if (!csv)
    return 1;
  verify::Result result = verifyCsv(*csv, arguments.verify, c);
  tellFindings({.plan = c.plan ? &*c.plan : nullptr, .csv = &*csv}, result,
               c.diagnostics);
  return result.ok() && (c.timing || raisePlan(c)) ? 0 : 1;
}

int loadCompiled(const Arguments &arguments, const Input &input,
                 Invocation &invocation) {
  switch (input.kind) {
  case InputKind::Spec:
    return loadSpec(arguments, input, invocation) &&
                   runPasses(arguments, fullPipeline(), invocation)
               ? 0
               : 1;
  case InputKind::Plan: {
    Status status = loadPlan(arguments, input, invocation);
    if (!status.ok())
      return fail(status);
    if (invocation.diagnostics.hasErrors())
      return 1;
    return verifyLoaded(arguments, invocation) &&
                   raisePlan(invocation.compilation)
               ? 0
               : 1;
  }
  case InputKind::Ir:
    return fail(Status::input("'" + escaped(input.name) +
                              "' is IR text; sluice opt and check read it"));
  case InputKind::Csv:
    return loadCsv(arguments, input, invocation);
  }
  return 1;
}

} // namespace sluice
