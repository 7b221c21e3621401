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
  if (!spec)
    return false;
  warnOfIdleKeys(*spec, arguments.module, runtime::moduleNames(),
                 invocation.diagnostics);
  return !spec->pipeline.scheduleCsv.given ||
         checkScheduleCsv(*spec, invocation.diagnostics);
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

/// Reads the section of a process's rank only.
static Status readSection(const Input &input, Id process, Plan &plan) {
  Status status = readPlanFileHeader(input.name, plan);
  if (!status.ok())
    return status;
  auto ranks = static_cast<Id>(plan.ranks.size());
  return readPlanFileRank(input.name, process % ranks, plan);
}

Status loadPlan(const Arguments &arguments, const Input &input,
                Invocation &invocation, std::optional<Id> process) {
  Plan plan;
  Status status =
      process ? readSection(input, *process, plan) : readPlan(input, plan);
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
#ifdef SLUICE_TEST_UNVERIFIED // a program of the tests (tests/CMakeLists.txt)
  return true;
#endif
  Pipeline pipeline;
  std::string error;
  if (!parsePipeline("verify-plan", artifactsOf(invocation.compilation),
                     pipeline, error)) {
    invocation.diagnostics.error({}, error);
    return false;
  }
  return runPasses(arguments, pipeline, invocation);
}

/// What is told of a schedule with messages is told of its computations.
static void warnOfMessages(const CsvSchedule &csv, Diagnostics &diagnostics) {
  const std::vector<Action> &list = csv.actions.list;
  auto first = llvm::find_if(
      list, [](const Action &action) { return isMessage(action.op); });
  if (first == list.end())
    return;
  auto at = static_cast<uint32_t>(first - list.begin());
  auto rank = static_cast<Id>(llvm::upper_bound(csv.actions.firstOfRank, at) -
                              csv.actions.firstOfRank.begin() - 1);
  diagnostics.warning(
      csv.locate({rank, at - csv.actions.firstOfRank[rank]}),
      opName(first->op, first->stage, first->microbatch) +
          " and all other messages of the file are replaced by the compiler's "
          "own; only plan_makespan is of the file's");
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
  if (result.ok())
    warnOfMessages(*csv, c.diagnostics);
  return result.ok() && (c.timing || raisePlan(c)) ? 0 : 1;
}

int loadCompiled(const Arguments &arguments, const Input &input,
                 Invocation &invocation, std::optional<Id> process) {
  bool section = process.value_or(0) != 0;
  switch (input.kind) {
  case InputKind::Spec:
    return loadSpec(arguments, input, invocation) &&
                   runPasses(arguments, fullPipeline(), invocation)
               ? 0
               : 1;
  case InputKind::Plan: {
    Status status = loadPlan(arguments, input, invocation,
                             section ? process : std::nullopt);
    if (!status.ok())
      return fail(status);
    if (invocation.diagnostics.hasErrors())
      return 1;
    if (section)
      return 0;
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
