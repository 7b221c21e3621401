#include "tools/sluice/Driver.h"

#include "compiler/MemoryAdvice.h"
#include "compiler/spec/Sections.h"
#include "ir/PlanFile.h"
#include "ir/verify/Verify.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

namespace sluice {

void printDiagnostics(const Arguments &arguments,
                      const Invocation &invocation) {
  if (!arguments.quiet || invocation.diagnostics.hasErrors())
    llvm::errs() << invocation.diagnostics.render();
}

bool loadSpec(const Arguments &arguments, const Input &input,
              Invocation &invocation) {
  invocation.compilation.spec = parseSpec(
      input.text, input.name, arguments.overrides, invocation.diagnostics);
  return invocation.compilation.spec.has_value();
}

/// Sets `run.KEY` of a plan; any other key is refused.
static Status applyOverrides(const Arguments &arguments, Plan &plan) {
  for (const Override &override : arguments.overrides) {
    llvm::StringRef key = override.key;
    if (!key.consume_front("run.") || !isRunKey(key))
      return Status::usage(
          "--set=" + escaped(override.key) +
          ": of a plan only keys of the run section can be set");
    auto found = llvm::find_if(
        plan.run, [&](const auto &entry) { return entry.first == key; });
    if (found != plan.run.end())
      found->second = override.value;
    else
      plan.run.emplace_back(key, override.value);
  }
  llvm::sort(plan.run);
  return Status();
}

/// Reads a plan from a file, or by way of one from standard input.
static Status readPlan(const Input &input, Plan &plan) {
  if (input.name != "-")
    return readPlanFile(input.name, plan);
  llvm::SmallString<64> path;
  int descriptor = -1;
  if (std::error_code error = llvm::sys::fs::createTemporaryFile(
          "sluice", "plan", descriptor, path))
    return Status::environment("cannot create a temporary file: " +
                               error.message());
  llvm::FileRemover remover(path);
  llvm::raw_fd_ostream out(descriptor, /*shouldClose=*/true);
  out << input.text;
  out.close();
  if (out.has_error()) {
    std::error_code error = out.error();
    out.clear_error();
    return Status::environment("cannot write a temporary file: " +
                               error.message());
  }
  Status status = readPlanFile(path.str().str(), plan);
  llvm::StringRef message = status.message();
  if (status.fault() == Fault::Input && message.consume_front(path.str()))
    return Status::input("-" + message.str()); // the name that was given
  return status;
}

Status loadPlan(const Arguments &arguments, const Input &input,
                Invocation &invocation) {
  Plan plan;
  Status status = readPlan(input, plan);
  if (status.ok())
    status = applyOverrides(arguments, plan);
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
    invocation.diagnostics.addSource(input.name, "");
    return verifyLoaded(arguments, invocation) &&
                   raisePlan(invocation.compilation)
               ? 0
               : 1;
  }
  case InputKind::Ir:
    return fail(Status::input("'" + escaped(input.name) +
                              "' is IR text; sluice opt and check read it"));
  case InputKind::Csv:
    return fail(Status::input("'" + escaped(input.name) +
                              "' is a schedule CSV; reading these is not "
                              "supported yet"));
  }
  return 1;
}

} // namespace sluice
