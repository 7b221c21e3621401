//===- tools/sluice/Compile.cpp - `sluice compile` -----------------------===//
#include "ir/PlanFile.h"
#include "tools/sluice/Driver.h"
#include "tools/sluice/Emit.h"

#include "llvm/ADT/StringExtras.h"

namespace sluice {

/// The rows that --emit names; reports unknown ones and a plan without -o.
static Status selectEmits(const Arguments &arguments,
                          std::vector<const EmitInfo *> &emits) {
  std::vector<std::string> names = arguments.emits;
  if (names.empty())
    names.push_back("plan");
  for (const std::string &name : names) {
    const EmitInfo *emit = findEmit(name);
    if (!emit) {
      std::string known = llvm::join(
          llvm::map_range(allEmits(),
                          [](const EmitInfo &info) { return info.name; }),
          ", ");
      return Status::usage("--emit=" + escaped(name) + " is not one of " +
                           known);
    }
    if (llvm::is_contained(emits, emit))
      return Status::usage("--emit names " + name + " twice");
    emits.push_back(emit);
  }
  bool toStandardOutput = arguments.output.empty() || arguments.output == "-";
  if (emits.size() > 1 && toStandardOutput)
    return Status::usage("several --emit need -o, the stem of their names");
  if (!emits.front()->write && toStandardOutput)
    return Status::usage("a plan is binary: name its file with -o");
  return Status();
}

/// The files to write, one for each row of `emits`.
static std::vector<NamedPath>
outputsOf(const Arguments &arguments, llvm::ArrayRef<const EmitInfo *> emits) {
  std::vector<NamedPath> outputs;
  for (const EmitInfo *emit : emits) {
    std::string path = arguments.output, shown = "-o " + path;
    if (emits.size() > 1) {
      path += "." + emit->extension.str();
      shown += " (" + path + ")";
    }
    outputs.push_back({path, shown});
  }
  return outputs;
}

static Status writeEmit(const EmitInfo &emit, const Compilation &compilation,
                        const std::string &path) {
  if (!emit.write)
    return writePlanFile(*compilation.plan, path);
  return writeOutput(
      path, [&](llvm::raw_ostream &out) { emit.write(compilation, out); });
}

/// Reports what cannot be written in the formats that were asked for.
static bool canHold(const std::vector<const EmitInfo *> &emits,
                    Invocation &invocation) {
  const Compilation &c = invocation.compilation;
  for (const EmitInfo *emit : emits)
    if (std::string why = emit->refuse ? emit->refuse(c) : ""; !why.empty())
      invocation.diagnostics.error(c.spec->pipeline.schedule.where,
                                   "--emit=" + emit->name.str() + ": " + why);
  return !invocation.diagnostics.hasErrors();
}

int commands::compile(const Arguments &arguments) {
  std::vector<const EmitInfo *> emits;
  std::vector<NamedPath> outputs;
  Input input;
  Status status = readInput(arguments.input, input);
  if (status.ok())
    status = selectEmits(arguments, emits);
  if (status.ok() && input.kind != InputKind::Spec)
    status = Status::input("'" + escaped(input.name) +
                           "' is not a spec; compile takes a YAML spec" +
                           (input.kind == InputKind::Csv
                                ? ", which can name it, as "
                                  "pipeline.schedule: {csv: FILE}"
                                : ""));
  if (status.ok()) {
    outputs = outputsOf(arguments, emits);
    status = checkPaths({{arguments.input, "the spec itself"}}, outputs);
  }
  if (!status.ok())
    return fail(status);

  Invocation invocation;
  bool ok = loadSpec(arguments, input, invocation) &&
            runPasses(arguments, fullPipeline(), invocation) &&
            canHold(emits, invocation);
  printDiagnostics(arguments, invocation);
  if (!ok)
    return 1;

  for (size_t i = 0; i < emits.size(); ++i) {
    const std::string &path = outputs[i].path;
    status = writeEmit(*emits[i], invocation.compilation, path);
    if (!status.ok())
      return fail(status);
    if (arguments.verbose && !path.empty())
      llvm::errs() << "wrote " << path << '\n';
  }
  return 0;
}

} // namespace sluice
