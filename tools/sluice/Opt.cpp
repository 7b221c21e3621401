//===- tools/sluice/Opt.cpp - `sluice opt` -------------------------------===//
#include "ir/text/Text.h"
#include "tools/sluice/Driver.h"

namespace sluice {

/// Fills `session` with what `input` holds.
static bool loadAny(const Arguments &arguments, const Input &input,
                    Session &session) {
  if (input.kind == InputKind::Spec)
    return loadSpec(arguments, input, session);
  std::optional<IrText> ir =
      parseIr(input.text, input.name, session.diagnostics);
  if (!ir)
    return false;
  session.compilation.graph = std::move(ir->graph);
  session.compilation.schedule = std::move(ir->schedule);
  session.compilation.plan = std::move(ir->plan);
  return true;
}

int commands::opt(const Arguments &arguments) {
  Input input;
  Status status = readInput(arguments.input, input);
  if (status.ok() && input.kind != InputKind::Spec &&
      input.kind != InputKind::Ir)
    status = Status::input("'" + escaped(input.name) +
                           "' is neither IR text nor a spec");
  if (!status.ok())
    return fail(status);

  Session session;
  if (!loadAny(arguments, input, session)) {
    printDiagnostics(arguments, session);
    return 1;
  }
  Pipeline pipeline;
  std::string error;
  if (!parsePipeline(arguments.passes, artifactsOf(session.compilation),
                     pipeline, error)) {
    printDiagnostics(arguments, session);
    return fail(Status::usage(error));
  }
  bool ok = runPasses(arguments, pipeline, session);
  printDiagnostics(arguments, session);
  if (!ok)
    return 1;
  status = writeOutput(arguments.output, [&](llvm::raw_ostream &out) {
    printIr(session.compilation, out);
  });
  return status.ok() ? 0 : fail(status);
}

} // namespace sluice
