//===- tools/sluice/Run.cpp - `sluice run` -------------------------------===//
#include "ir/ModuleKeys.h"
#include "ir/PlanFile.h"
#include "runtime/Job.h"
#include "runtime/Modules.h"
#include "tools/sluice/Driver.h"
#include "tools/sluice/Processes.h"
#include "tools/sluice/RunOutput.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

#include <algorithm>
#include <cmath>
#include <optional>

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
/// that cannot be written. Of several processes only the first writes.
static Status checkRunPaths(const Arguments &arguments, const Plan &plan,
                            bool writes) {
  std::vector<NamedPath> inputs = {{arguments.input, "the input itself"}};
  std::string data = runValue(plan, runkeys::kData).str();
  if (!data.empty())
    inputs.push_back({data, "the data file"});
  if (llvm::StringRef(arguments.module).contains('/'))
    inputs.push_back({arguments.module, "the module"});
  std::vector<NamedPath> outputs;
  if (!writes)
    return checkPaths(inputs, outputs);
  if (!arguments.save.empty())
    outputs.push_back({arguments.save, "--save=" + arguments.save});
  if (!arguments.flightRecorder.empty())
    outputs.push_back({arguments.flightRecorder,
                       "--flight-recorder=" + arguments.flightRecorder});
  for (const std::string &path : timelinePaths(arguments.timeline))
    outputs.push_back(
        {path, "--timeline=" + arguments.timeline + " (" + path + ")"});
  return checkPaths(inputs, outputs);
}

/// All that can be said before the first step.
static Status prepare(const Arguments &arguments, const Input &input,
                      bool isFirst, Plan &plan, runtime::JobOptions &options) {
  if (arguments.save == "-")
    return Status::usage("--save=-: weights are binary, name a file for them");
  Status status = chooseModule(arguments, plan, options.module);
  if (status.ok())
    status = runtime::findBackend(options.backend)
                 ->placeModule(options.module, options.computesOnDevice);
  if (options.computesOnDevice)
    options.costSteps = 0; // its calls only enqueue
  if (status.ok())
    status = chooseSteps(arguments, plan, options.steps);
  if (status.ok())
    status = findData(arguments, input, *options.module, plan);
  if (status.ok())
    status = checkRunPaths(arguments, plan, isFirst);
  if (status.ok() && !arguments.quiet && options.backend != "cuda")
    for (auto [flag, isGiven] : {std::pair("--devices", arguments.devices != 0),
                                 std::pair("--graph", arguments.graph)})
      if (isGiven)
        llvm::errs() << "warning: " << flag << " has no effect with backend "
                     << options.backend << "\n";
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

/// What must be the same in all processes, a line each.
static Status identify(const Arguments &arguments, const Input &input,
                       const Plan &plan, runtime::JobOptions &options) {
  std::string hash;
  Status status = input.kind == InputKind::Plan ? planFileHash(input.name, hash)
                                                : planHash(plan, hash);
  options.identity = "a plan with content hash " + hash + "\n";
  for (const auto &[key, value] : plan.run)
    if (key != runkeys::kData)
      options.identity += "run." + key + "=" + escaped(value) + "\n";
  options.identity +=
      std::string("module ") + options.module->name + "\n" +
      std::to_string(options.steps) + " steps\n" +
      (arguments.save.empty() ? "no " : "") + "--save\n" +
      (arguments.timeline.empty() ? "no " : "") + "--timeline\n" +
      (arguments.flightRecorder.empty() ? "no " : "") + "--flight-recorder\n" +
      std::to_string(options.resume ? options.resume->steps : 0) +
      " steps of a checkpoint\n";
  return status;
}

/// Tells why a job failed, if it is this process's to tell, and ends the
/// process.
[[noreturn]] static void endFailed(const Arguments &arguments,
                                   Processes &processes, const Status &status,
                                   const runtime::JobResult &result) {
  int code = static_cast<int>(status.fault());
  if (result.speaks) {
    processes.speak();
    fail(status);
    if (Status written = writeFlight(arguments, result); !written.ok())
      fail(written);
  }
  if (result.orderly)
    processes.part();
  else if (result.speaks)
    processes.dismissOthers();
  endProcess(code);
}

static int execute(const Arguments &arguments, const Input &input, Plan &plan,
                   Processes &processes) {
  runtime::JobOptions options;
  options.backend = processes.backend();
  options.peers = processes.peers();
  options.token = processes.token();
  options.signal = &processes.signal();
  options.signalGraceSeconds = processes.signalGrace(arguments.timeoutSeconds);
  options.devices = arguments.devices;
  options.graphs = arguments.graph;
  options.timeoutSeconds = arguments.timeoutSeconds;
  options.recordLastStep = !arguments.timeline.empty();
  options.flight = !arguments.flightRecorder.empty();
  options.onStep = ProgressLine(arguments.quiet);
  options.onStuck = [&processes](const std::string &table) {
    processes.speak();
    llvm::errs() << table;
  };
  Status status = prepare(arguments, input, processes.isFirst(), plan, options);
  if (status.ok())
    status = findResume(arguments, options);
  if (status.ok() && options.peers)
    status = identify(arguments, input, plan, options);
  if (!status.ok())
    return processes.leave(fail(status), arguments.timeoutSeconds);

  if (!arguments.checkpointDir.empty())
    Processes::noteSignals();
  runtime::WeightsFile weights(arguments.save);
  runtime::JobResult result;
  status = runtime::runJob(plan, options, result,
                           arguments.save.empty() ? nullptr : &weights);
  if (!status.ok())
    endFailed(arguments, processes, status, result);
  bool anyStep = !options.resume || options.resume->steps != options.steps;
  if (processes.isFirst() && anyStep) { // else nothing was measured
    Prediction prediction = predict(plan, result, options);
    if (!arguments.quiet)
      printSummary(llvm::outs(), arguments, plan, result, prediction);
    status = writeTimelines(arguments, plan, result, prediction);
    if (status.ok())
      status = writeFlight(arguments, result);
  }
  processes.part();
  return status.ok() ? 0 : fail(status);
}

/// Reads what is to be run; returns an exit code.
static int load(const Arguments &arguments, const Processes &processes,
                Input &input, Invocation &invocation) {
  if (processes.peers() && arguments.input == "-")
    return fail(Status::usage("standard input reaches one of the processes "
                              "only: name a file"));
  if (Status status = readInput(arguments.input, input); !status.ok())
    return fail(status);
  if (input.kind == InputKind::Csv)
    return fail(Status::input(
        "'" + escaped(input.name) +
        "' is a schedule CSV, which says nothing of a model: name it in a "
        "spec, as pipeline.schedule: {csv: FILE}"));
  int code =
      loadCompiled(arguments, input, invocation,
                   processes.peers() ? std::optional(processes.peers()->self())
                                     : std::nullopt);
  printDiagnostics(arguments, invocation);
  return code;
}

int commands::run(const Arguments &arguments) {
  // Live until the process ends: a stuck thread may still use them.
  static Processes processes;
  static Invocation invocation;
  if (Status status = processes.meet(arguments); !status.ok())
    return fail(status);
  Input input;
  if (int code = load(arguments, processes, input, invocation); code != 0)
    return processes.leave(code, arguments.timeoutSeconds);
  return execute(arguments, input, *invocation.compilation.plan, processes);
}

} // namespace sluice
