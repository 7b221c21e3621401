//===- tools/sluice/Driver.h - From an input to what a command needs -----===//
#ifndef SLUICE_TOOLS_SLUICE_DRIVER_H
#define SLUICE_TOOLS_SLUICE_DRIVER_H

#include "compiler/Compilation.h"
#include "compiler/passes/PassManager.h"
#include "tools/sluice/CommandLine.h"
#include "tools/sluice/Files.h"

#include <memory>
#include <optional>

namespace sluice {

/// A compilation with the diagnostics it writes to.
struct Invocation {
  Diagnostics diagnostics;
  Compilation compilation{diagnostics};
};

/// Prints what `invocation` has to say so far to standard error (with -q only
/// if there is an error) and forgets nothing; call once, at the end.
void printDiagnostics(const Arguments &arguments, const Invocation &invocation);

/// Parses the spec in `input` with the overrides into `invocation`; false after
/// reporting its faults.
bool loadSpec(const Arguments &arguments, const Input &input,
              Invocation &invocation);

/// Reads the plan in `input`, applies overrides (run.* only), whose faults
/// become diagnostics. `process`: only the section of that rank of all replicas
/// is read.
Status loadPlan(const Arguments &arguments, const Input &input,
                Invocation &invocation, std::optional<Id> process = {});

/// Sets a key of the plan's run section.
void setRunValue(Plan &plan, const std::string &key, const std::string &value);

/// Runs `pipeline` with the command line's options for printing. What it says
/// of a plan over its memory limit comes with advice.
bool runPasses(const Arguments &arguments, const Pipeline &pipeline,
               Invocation &invocation);

/// For commands that take a spec or a plan: gets a plan that is verified, with
/// graph, schedule and timing. Returns an exit code; 1 with a plan there means
/// that everything worked but the plan was refused. `process`, not 0: of a plan
/// only the section of that rank is read; process 0 proves the whole of it.
int loadCompiled(const Arguments &arguments, const Input &input,
                 Invocation &invocation, std::optional<Id> process = {});

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_DRIVER_H
