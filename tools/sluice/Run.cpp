//===- tools/sluice/Run.cpp - `sluice run` -------------------------------===//
#include "compiler/emit/Emit.h"
#include "compiler/simulate/Measure.h"
#include "compiler/simulate/Report.h"
#include "ir/AsideFile.h"
#include "ir/ModuleKeys.h"
#include "runtime/Backend.h"
#include "runtime/Job.h"
#include "runtime/Modules.h"
#include "tools/sluice/Driver.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Process.h"

#include <algorithm>
#include <cstdlib>
#include <sys/resource.h>

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

static void setRunValue(Plan &plan, const std::string &key,
                        const std::string &value) {
  llvm::erase_if(plan.run,
                 [&](const auto &entry) { return entry.first == key; });
  plan.run.emplace_back(key, value);
  llvm::sort(plan.run);
}

namespace {
/// Tells how the training goes, on standard error: a bar on a terminal, else a
/// line for about every tenth of the steps.
class ProgressLine {
public:
  explicit ProgressLine(bool isQuiet)
      : quiet(isQuiet), terminal(llvm::sys::Process::StandardErrIsDisplayed()) {
  }

  void operator()(const runtime::StepInfo &info) const {
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
      out << llvm::format("  loss %.4f", info.loss);
    out << llvm::format("  %.1f ms", info.seconds * 1e3);
    out << (terminal && done != info.steps ? "   " : "\n");
  }

private:
  bool quiet, terminal;
};
} // namespace

static MeasuredCosts measuredCosts(llvm::ArrayRef<runtime::StageCosts> stages) {
  MeasuredCosts costs;
  for (const runtime::StageCosts &stage : stages) {
    costs.forward.push_back(stage.forward);
    costs.backwardInput.push_back(stage.backwardInput);
    costs.backwardWeight.push_back(stage.backwardWeight);
    costs.step.push_back(stage.optimizerStep);
  }
  return costs;
}

/// Median, with the mean of the middle two of an even number.
static double median(std::vector<double> values) {
  llvm::sort(values);
  size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle]
                           : (values[middle - 1] + values[middle]) / 2;
}

/// Step times without the first steps, in which memory warms up and costs are
/// measured; all of them where there are no others.
static std::vector<double> laterSteps(const runtime::JobResult &result,
                                      uint64_t skip) {
  llvm::ArrayRef<double> steps = result.stepSeconds;
  return (steps.size() > skip ? steps.drop_front(skip) : steps).vec();
}

static std::string seconds(double value) {
  return formatTime(static_cast<Ticks>(value * 1e12), TimeUnit::Seconds);
}

static void printSummary(llvm::raw_ostream &out, const Plan &plan,
                         const runtime::JobResult &result,
                         const std::optional<PlanTiming> &predicted,
                         uint64_t warmSteps) {
  if (!result.losses.empty())
    out << llvm::format("loss: %.4f at ", result.losses.front())
        << (result.firstStep == 0
                ? "the first step"
                : "step " + std::to_string(result.firstStep + 1))
        << llvm::format(", %.4f at the last\n", result.losses.back());
  std::vector<double> steps = laterSteps(result, warmSteps);
  out << "step time: ";
  if (predicted)
    out << "predicted " << formatTime(predicted->makespan, TimeUnit::Seconds)
        << " (from costs measured in the first " << warmSteps << " steps), ";
  out << "measured " << seconds(median(steps)) << " (median of " << steps.size()
      << (steps.size() == 1 ? " step)\n" : " steps)\n");
  for (Id rank = 0; rank < plan.ranks.size(); ++rank)
    out << "rank " << rank << ": arena planned " << plan.ranks[rank].arenaBytes
        << " bytes, allocated " << result.arenaBytes[rank]
        << " bytes; in use at the planned peak "
        << findMemoryPeak(plan.ranks[rank]).bytes << " bytes\n";
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0)
    out << "process: " << formatBytes(Bytes(usage.ru_maxrss) * 1024)
        << " resident at the peak, with arenas, program and data\n";
}

/// Writes STEM.KIND.svg and STEM.KIND.trace.
static Status writeTimeline(const std::string &stem, const Timeline &timeline,
                            Ticks scale) {
  Status status = writeOutput(stem + ".svg", [&](llvm::raw_ostream &out) {
    emitSvg(timeline, out, {.scale = scale});
  });
  if (!status.ok())
    return status;
  return writeOutput(stem + ".trace", [&](llvm::raw_ostream &out) {
    emitChromeTrace(timeline, out);
  });
}

/// Names of the files that --timeline=STEM writes, without their extensions.
static std::string predictedStem(const Arguments &arguments) {
  return arguments.timeline + ".predicted";
}
static std::string measuredStem(const Arguments &arguments) {
  return arguments.timeline + ".measured";
}

/// Tries all outputs before the first step, so that no training is lost for a
/// path that cannot be written.
static Status checkOutputs(const Arguments &arguments) {
  std::vector<std::string> paths;
  if (!arguments.save.empty())
    paths.push_back(arguments.save);
  if (!arguments.timeline.empty())
    for (const std::string &stem :
         {predictedStem(arguments), measuredStem(arguments)}) {
      paths.push_back(stem + ".svg");
      paths.push_back(stem + ".trace");
    }
  for (const std::string &path : paths) {
    AsideFile trial; // dropped without a trace
    Status status = trial.open(path);
    if (!status.ok())
      return status;
  }
  return Status();
}

/// Writes the predicted and the measured timeline at one scale.
static Status writeTimelines(const Arguments &arguments, const Plan &plan,
                             const runtime::JobResult &result,
                             const std::optional<PlanTiming> &predicted) {
  if (arguments.timeline.empty() || !result.lastStep)
    return Status();
  Timeline measured = *result.lastStep;
  measured.title = plan.model + ", " + plan.schedule + ", measured";
  Ticks scale = makespanOf(measured);
  if (predicted) {
    Timeline expected = timelineOf(plan, *predicted);
    expected.title = plan.model + ", " + plan.schedule + ", predicted";
    expected.unit = TimeUnit::Seconds;
    scale = std::max(scale, makespanOf(expected));
    Status status = writeTimeline(predictedStem(arguments), expected, scale);
    if (!status.ok())
      return status;
  }
  return writeTimeline(measuredStem(arguments), measured, scale);
}

/// Ends the process: after a failed run a thread may still be inside a module.
[[noreturn]] static void endProcess(int code) {
  llvm::outs().flush();
  llvm::errs().flush();
  std::_Exit(code);
}

static int execute(const Arguments &arguments, Plan &plan) {
  if (!arguments.data.empty())
    setRunValue(plan, runkeys::kData, arguments.data);
  runtime::JobOptions options;
  options.backend = arguments.backend;
  options.timeoutSeconds = arguments.timeoutSeconds;
  options.recordLastStep = !arguments.timeline.empty();
  options.onStep = ProgressLine(arguments.quiet);
  options.onStuck = [](const std::string &table) { llvm::errs() << table; };
  Status status = chooseModule(arguments, plan, options.module);
  if (status.ok())
    status = chooseSteps(arguments, plan, options.steps);
  if (status.ok())
    status = checkOutputs(arguments);
  if (!status.ok())
    return fail(status);

  runtime::WeightsFile weights(arguments.save);
  runtime::JobResult result;
  status = runtime::runJob(plan, options, result,
                           arguments.save.empty() ? nullptr : &weights);
  if (!status.ok())
    endProcess(fail(status));

  std::optional<PlanTiming> predicted;
  uint64_t warmSteps = 2 + options.costSteps;
  if (!result.costs.empty() && options.steps > warmSteps)
    predicted = predictTiming(plan, measuredCosts(result.costs));
  if (!arguments.quiet)
    printSummary(llvm::outs(), plan, result, predicted, warmSteps);
  status = writeTimelines(arguments, plan, result, predicted);
  return status.ok() ? 0 : fail(status);
}

int commands::run(const Arguments &arguments) {
  if (!runtime::findBackend(arguments.backend)) {
    std::vector<std::string_view> names;
    for (const runtime::BackendInfo &backend : runtime::backends())
      names.push_back(backend.text);
    return fail(Status::usage("--backend=" + escaped(arguments.backend) +
                              " is not one of " + llvm::join(names, ", ")));
  }
  Input input;
  Status status = readInput(arguments.input, input);
  if (!status.ok())
    return fail(status);
  // Lives until the process ends: a stuck thread may still read the plan.
  static Invocation invocation;
  int code = loadCompiled(arguments, input, invocation);
  printDiagnostics(arguments, invocation);
  if (code != 0)
    return code;
  return execute(arguments, *invocation.compilation.plan);
}

} // namespace sluice
