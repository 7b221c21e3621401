//===- tools/sluice/Run.cpp - `sluice run` -------------------------------===//
#include "ir/AsideFile.h"
#include "ir/ModuleKeys.h"
#include "runtime/Backend.h"
#include "runtime/Job.h"
#include "runtime/Modules.h"
#include "tools/sluice/Driver.h"
#include "tools/sluice/RunOutput.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace sluice {

/// The value of a key of the plan's run section; empty if it is not there.
static llvm::StringRef runValue(const Plan &plan, llvm::StringRef key) {
  for (const auto &[name, value] : plan.run)
    if (name == key)
      return value;
  return "";
}

/// Finds the module: --module, which may name a shared library; else the
/// plan's, which may only name a shipped one; else by what the stages are.
static Status chooseModule(const Arguments &arguments, const Plan &plan,
                           const sluice_module *&module) {
  if (!arguments.module.empty())
    return runtime::loadModule(arguments.module, module);
  std::string name = runValue(plan, runkeys::kModule).str();
  if (name.empty())
    name = plan.stages.front().description.empty() ? "synthetic" : "gpt";
  module = runtime::findModule(name);
  if (module)
    return Status();
  return Status::input("run.module is '" + escaped(name) +
                       "', but only shipped modules (" +
                       llvm::join(runtime::moduleNames(), ", ") +
                       ") are taken from a spec or plan; name a shared "
                       "library with --module");
}

static Status chooseSteps(const Arguments &arguments, const Plan &plan,
                          uint64_t &steps) {
  steps = 1;
  llvm::StringRef text = runValue(plan, runkeys::kSteps);
  if (arguments.steps)
    steps = *arguments.steps;
  else if (!text.empty() && text.getAsInteger(10, steps))
    return Status::input("run.steps is '" + escaped(text) + "', not a count");
  if (steps != 0)
    return Status();
  std::string message = "0 steps: there is nothing to run";
  return arguments.steps ? Status::usage(message) : Status::input(message);
}

namespace {
/// Tells how the training goes, on standard error: a bar on a terminal, else a
/// line for about every tenth of the steps. Warns once of a loss that is not a
/// number.
class ProgressLine {
public:
  explicit ProgressLine(bool isQuiet)
      : quiet(isQuiet), terminal(llvm::sys::Process::StandardErrIsDisplayed()) {
  }

  void operator()(const runtime::StepInfo &info) {
    warnOfLoss(info);
    uint64_t done = info.step + 1;
    uint64_t every = std::max<uint64_t>(1, info.steps / 10);
    bool shown = done == 1 || done == info.steps || done % every == 0;
    if (quiet || (!terminal && !shown))
      return;
    llvm::raw_ostream &out = llvm::errs();
    out << (terminal ? "\r" : "") << "step " << done << "/" << info.steps;
    if (terminal) {
      constexpr uint64_t kWidth = 30;
      uint64_t filled = done * kWidth / info.steps;
      out << " [" << std::string(filled, '#')
          << std::string(kWidth - filled, '.') << "]";
    }
    if (info.hasLoss)
      out << "  loss " << lossText(info.loss);
    out << llvm::format("  %.1f ms", info.seconds * 1e3);
    out << (terminal && done != info.steps ? "   " : "\n");
  }

private:
  void warnOfLoss(const runtime::StepInfo &info) {
    if (quiet || warned || !info.hasLoss || std::isfinite(info.loss))
      return;
    warned = true;
    llvm::errs() << (terminal ? "\n" : "") << "warning: the loss of step "
                 << info.step + 1 << " is " << lossText(info.loss)
                 << "; a smaller run.learning_rate may help\n";
  }

  bool quiet, terminal;
  bool warned = false;
};
} // namespace

/// Makes run.data a path that can be opened from here: --data as it is, else
/// the plan's, which is relative to the folder of the spec or the plan. A plan
/// that was moved may still find it from the current folder.
static Status findData(const Arguments &arguments, const Input &input,
                       const sluice_module &module, Plan &plan) {
  if (!arguments.data.empty())
    setRunValue(plan, runkeys::kData, arguments.data);
  std::string data = runValue(plan, runkeys::kData).str();
  if (!arguments.data.empty() || data.empty() ||
      llvm::sys::path::is_absolute(data))
    return Status();
  llvm::SmallString<128> beside(
      input.name == "-" ? "" : llvm::sys::path::parent_path(input.name));
  llvm::sys::path::append(beside, data);
  std::vector<std::string> candidates = {beside.str().str()};
  if (input.kind == InputKind::Plan && candidates.front() != data)
    candidates.push_back(data);
  std::string looked;
  for (const std::string &candidate : candidates) {
    if (llvm::sys::fs::exists(candidate)) {
      setRunValue(plan, runkeys::kData, candidate);
      return Status();
    }
    looked += (looked.empty() ? "'" : " and '") + escaped(candidate) + "'";
  }
  if (module.name != llvm::StringRef("gpt")) // may mean anything by it
    return Status();
  return Status::input("cannot find the data file '" + escaped(data) +
                       "' of run.data: looked for " + looked +
                       "; name it with --data=FILE");
}

/// Checks all paths before the first step, so that no training is lost for one
/// that cannot be written.
static Status checkRunPaths(const Arguments &arguments, const Plan &plan) {
  std::vector<NamedPath> inputs = {{arguments.input, "the input itself"}};
  std::string data = runValue(plan, runkeys::kData).str();
  if (!data.empty())
    inputs.push_back({data, "the data file"});
  if (llvm::StringRef(arguments.module).contains('/'))
    inputs.push_back({arguments.module, "the module"});
  std::vector<NamedPath> outputs;
  if (!arguments.save.empty())
    outputs.push_back({arguments.save, "--save=" + arguments.save});
  for (const std::string &path : timelinePaths(arguments.timeline))
    outputs.push_back(
        {path, "--timeline=" + arguments.timeline + " (" + path + ")"});
  return checkPaths(inputs, outputs);
}

/// Ends the process: after a failed run a thread may still be inside a module.
[[noreturn]] static void endProcess(int code) {
  dropAsideFiles();
  llvm::outs().flush();
  llvm::errs().flush();
  std::_Exit(code);
}

static Status unknownBackend(llvm::StringRef name) {
  std::string shown = "--backend=" + escaped(name);
  if (name == "mpi" || name == "cuda")
    return Status::usage(shown + " is not supported yet");
  std::vector<std::string_view> names;
  for (const runtime::BackendInfo &backend : runtime::backends())
    names.push_back(backend.text);
  return Status::usage(shown + " is not one of " + llvm::join(names, ", "));
}

/// All that can be said before the first step.
static Status prepare(const Arguments &arguments, const Input &input,
                      Plan &plan, runtime::JobOptions &options) {
  if (arguments.save == "-")
    return Status::usage("--save=-: weights are binary, name a file for them");
  Status status = chooseModule(arguments, plan, options.module);
  if (status.ok())
    status = chooseSteps(arguments, plan, options.steps);
  if (status.ok())
    status = findData(arguments, input, *options.module, plan);
  if (status.ok())
    status = checkRunPaths(arguments, plan);
  if (status.ok() && !arguments.quiet && !arguments.data.empty() &&
      options.module->name == llvm::StringRef("synthetic"))
    llvm::errs() << "warning: --data has no effect with module synthetic\n";
  return status;
}

/// Finds what to go on from, and says so.
static Status findResume(const Arguments &arguments,
                         runtime::JobOptions &options) {
  options.checkpointDirectory = arguments.checkpointDir;
  options.checkpointEvery = arguments.checkpointEvery;
  if (arguments.checkpointDir.empty())
    return Status();
  std::vector<std::string> skipped;
  Status status =
      runtime::findCheckpoint(arguments.checkpointDir, options.resume, skipped);
  for (const std::string &sentence : skipped)
    llvm::errs() << "warning: " << sentence << '\n';
  if (!status.ok() || !options.resume)
    return status;
  uint64_t steps = options.resume->steps;
  if (steps > options.steps)
    return Status::input(escaped(options.resume->folder) + " has " +
                         std::to_string(steps) + " steps behind it, over the " +
                         std::to_string(options.steps) +
                         " of this run: name another --checkpoint-dir, or "
                         "more --steps");
  if (!arguments.quiet)
    llvm::errs() << "goes on from " << escaped(options.resume->folder)
                 << (steps == options.steps ? ": no step is left\n" : "\n");
  return status;
}

static int execute(const Arguments &arguments, const Input &input, Plan &plan) {
  runtime::JobOptions options;
  options.backend = arguments.backend;
  options.timeoutSeconds = arguments.timeoutSeconds;
  options.recordLastStep = !arguments.timeline.empty();
  options.onStep = ProgressLine(arguments.quiet);
  options.onStuck = [](const std::string &table) { llvm::errs() << table; };
  Status status = prepare(arguments, input, plan, options);
  if (status.ok())
    status = findResume(arguments, options);
  if (!status.ok())
    return fail(status);

  runtime::WeightsFile weights(arguments.save);
  runtime::JobResult result;
  status = runtime::runJob(plan, options, result,
                           arguments.save.empty() ? nullptr : &weights);
  if (!status.ok())
    endProcess(fail(status));
  if (options.resume && options.resume->steps == options.steps)
    return 0; // nothing was measured

  Prediction prediction = predict(plan, result, options);
  if (!arguments.quiet)
    printSummary(llvm::outs(), arguments, plan, result, prediction);
  status = writeTimelines(arguments, plan, result, prediction);
  return status.ok() ? 0 : fail(status);
}

int commands::run(const Arguments &arguments) {
  if (!runtime::findBackend(arguments.backend))
    return fail(unknownBackend(arguments.backend));
  Input input;
  Status status = readInput(arguments.input, input);
  if (!status.ok())
    return fail(status);
  if (input.kind == InputKind::Csv)
    return fail(Status::input(
        "'" + escaped(input.name) +
        "' is a schedule CSV, which says nothing of a model: name it in a "
        "spec, as pipeline.schedule: {csv: FILE}"));
  // Lives until the process ends: a stuck thread may still read the plan.
  static Invocation invocation;
  int code = loadCompiled(arguments, input, invocation);
  printDiagnostics(arguments, invocation);
  if (code != 0)
    return code;
  return execute(arguments, input, *invocation.compilation.plan);
}

} // namespace sluice
