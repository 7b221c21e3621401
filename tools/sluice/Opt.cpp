//===- tools/sluice/Opt.cpp - `sluice opt` -------------------------------===//
#include "ir/text/Text.h"
#include "tools/sluice/Driver.h"

namespace sluice {

/// Fills `invocation` with what `input` holds.
static bool loadAny(const Arguments &arguments, const Input &input,
                    Invocation &invocation) {
  if (input.kind == InputKind::Spec)
    return loadSpec(arguments, input, invocation);
  std::optional<IrText> ir =
      parseIr(input.text, input.name, invocation.diagnostics);
  if (!ir)
    return false;
  invocation.compilation.graph = std::move(ir->graph);
  invocation.compilation.schedule = std::move(ir->schedule);
  invocation.compilation.plan = std::move(ir->plan);
  return true;
}

/// A plan made anew has nothing of what only the spec said of the one before.
static void warnOfLostLimit(Bytes limit, Invocation &invocation) {
  const std::optional<Plan> &plan = invocation.compilation.plan;
  if (limit == 0 || !plan || plan->memoryLimit != 0)
    return;
  invocation.diagnostics.warning(
      {}, "the plan that was read has a memory limit of " +
              std::to_string(limit) +
              " bytes, the plan made from its graph and schedule has none; "
              "neither has it the model, source and run section, which only "
              "annotate-plan adds, from a spec");
}

int commands::opt(const Arguments &arguments) {
  Input input;
  Status status = readInput(arguments.input, input);
  if (status.ok() && input.kind != InputKind::Spec &&
      input.kind != InputKind::Ir)
    status = Status::input("'" + escaped(input.name) +
                           "' is neither IR text nor a spec");
  if (status.ok())
    status = checkPaths({{arguments.input, "the input itself"}},
                        {{arguments.output, "-o " + arguments.output}});
  if (!status.ok())
    return fail(status);

  Invocation invocation;
  if (!loadAny(arguments, input, invocation)) {
    printDiagnostics(arguments, invocation);
    return 1;
  }
  Pipeline pipeline;
  std::string error;
  if (!parsePipeline(arguments.passes, artifactsOf(invocation.compilation),
                     pipeline, error)) {
    printDiagnostics(arguments, invocation);
    return fail(Status::usage(error));
  }
  const std::optional<Plan> &plan = invocation.compilation.plan;
  Bytes limit = plan ? plan->memoryLimit : 0;
  bool ok = runPasses(arguments, pipeline, invocation);
  warnOfLostLimit(limit, invocation);
  printDiagnostics(arguments, invocation);
  if (!ok)
    return 1;
  status = writeOutput(arguments.output, [&](llvm::raw_ostream &out) {
    printIr(invocation.compilation, out);
  });
  return status.ok() ? 0 : fail(status);
}

} // namespace sluice
