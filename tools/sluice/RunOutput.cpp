#include "tools/sluice/RunOutput.h"

#include "compiler/emit/Emit.h"
#include "compiler/simulate/Measure.h"
#include "compiler/simulate/Report.h"
#include "ir/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace sluice {

std::string lossText(double loss) {
  if (std::isnan(loss))
    return "nan";
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.4f", loss);
  return text;
}

//===----------------------------------------------------------------------===//
// Prediction
//===----------------------------------------------------------------------===//

static MeasuredCosts measuredCosts(llvm::ArrayRef<runtime::StageCosts> stages) {
  MeasuredCosts costs;
  for (const runtime::StageCosts &stage : stages) {
    costs.forward.push_back(stage.forward);
    costs.recompute.push_back(stage.recompute);
    costs.backwardInput.push_back(stage.backwardInput);
    costs.backwardWeight.push_back(stage.backwardWeight);
    costs.step.push_back(stage.optimizerStep);
  }
  return costs;
}

Prediction predict(const Plan &plan, const runtime::JobResult &result,
                   const runtime::JobOptions &options) {
  uint64_t warmSteps = 2 + options.costSteps;
  Prediction prediction{.timing = {}, .basis = "", .warmSteps = warmSteps};
  std::string count = std::to_string(warmSteps);
  if (options.costSteps != 0 && !result.costs.empty() &&
      options.steps > warmSteps) {
    prediction.timing = predictTiming(plan, measuredCosts(result.costs));
    prediction.basis = "from costs measured in the first " + count + " steps";
  } else if (plan.timeUnit == TimeUnit::Seconds) {
    prediction.timing = simulatePlan(plan);
    prediction.basis = "from the plan's own costs";
  } else if (options.costSteps == 0) {
    prediction.basis = "the plan's times are in abstract units, and what a "
                       "device takes is not measured";
  } else {
    prediction.basis = "the plan's times are in abstract units, and costs are "
                       "measured only in more than " +
                       count + " steps";
  }
  return prediction;
}

//===----------------------------------------------------------------------===//
// Summary
//===----------------------------------------------------------------------===//

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

static void printTimes(llvm::raw_ostream &out, const Plan &plan,
                       const runtime::JobResult &result,
                       const Prediction &prediction) {
  std::vector<double> steps = laterSteps(result, prediction.warmSteps);
  out << "step time: ";
  if (prediction.timing)
    out << "predicted "
        << formatTime(prediction.timing->makespan, TimeUnit::Seconds) << " ("
        << prediction.basis << "), ";
  out << "measured " << seconds(median(steps)) << " (median of " << steps.size()
      << (steps.size() == 1 ? " step)\n" : " steps)\n");
  unsigned cores = std::thread::hardware_concurrency();
  uint64_t ranks = plan.ranks.size() * uint64_t(plan.replicas);
  if (ranks > cores && cores != 0)
    out << "cores: " << ranks << " ranks share " << cores
        << (cores == 1 ? " core" : " cores")
        << "; the prediction lets all ranks compute at once, these cannot\n";
}

static void printMemory(llvm::raw_ostream &out, const Arguments &arguments,
                        const Plan &plan, const runtime::JobResult &result) {
  auto shown = [&](Bytes bytes) {
    std::string text = formatBytes(bytes);
    return arguments.verbose ? text + " (" + std::to_string(bytes) + " bytes)"
                             : text;
  };
  for (Id rank = 0; rank < plan.ranks.size(); ++rank) {
    out << "rank " << rank << ": arena planned "
        << shown(plan.ranks[rank].arenaBytes) << ", allocated "
        << shown(result.arenaBytes[rank]) << "; planned to be in use at most "
        << shown(findMemoryPeak(plan.ranks[rank]).bytes);
    if (Bytes host = plan.ranks[rank].hostArenaBytes)
      out << "; for what is offloaded planned " << shown(host) << ", allocated "
          << shown(result.hostArenaBytes[rank]);
    out << "\n";
  }
  if (plan.replicas > 1)
    out << "replicas: " << plan.replicas << ", each with ranks like these\n";
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0)
    out << "process: " << shown(Bytes(usage.ru_maxrss) * 1024)
        << " resident at the peak, with arenas, program and data\n";
}

void printSummary(llvm::raw_ostream &out, const Arguments &arguments,
                  const Plan &plan, const runtime::JobResult &result,
                  const Prediction &prediction) {
  if (!result.losses.empty())
    out << "loss: " << lossText(result.losses.front()) << " at "
        << (result.firstStep == 0
                ? "the first step"
                : "step " + std::to_string(result.firstStep + 1))
        << ", " << lossText(result.losses.back()) << " at the last\n";
  printTimes(out, plan, result, prediction);
  printMemory(out, arguments, plan, result);
}

//===----------------------------------------------------------------------===//
// Timelines
//===----------------------------------------------------------------------===//

static std::string predictedStem(const std::string &stem) {
  return stem + ".predicted";
}
static std::string measuredStem(const std::string &stem) {
  return stem + ".measured";
}

/// What is written of one timeline: a picture and a trace.
static std::vector<std::string> filesOf(const std::string &stem) {
  return {stem + ".svg", stem + ".trace"};
}

std::vector<std::string> timelinePaths(const std::string &stem) {
  if (stem.empty())
    return {};
  std::vector<std::string> paths = filesOf(predictedStem(stem));
  llvm::append_range(paths, filesOf(measuredStem(stem)));
  return paths;
}

static Status writeTimeline(const std::string &stem, const Timeline &timeline,
                            Ticks scale) {
  std::vector<std::string> files = filesOf(stem);
  Status status = writeOutput(files[0], [&](llvm::raw_ostream &out) {
    emitSvg(timeline, out, {.scale = scale});
  });
  if (!status.ok())
    return status;
  return writeOutput(files[1], [&](llvm::raw_ostream &out) {
    emitChromeTrace(timeline, out);
  });
}

/// An old prediction beside a new measurement would pass for this run's.
static void removeStale(const Arguments &arguments, const std::string &why) {
  std::string stem = predictedStem(arguments.timeline);
  for (const std::string &path : filesOf(stem))
    ::unlink(path.c_str());
  if (!arguments.quiet)
    llvm::errs() << "note: " << stem
                 << ".svg and .trace are not written: " << why << '\n';
}

Status writeTimelines(const Arguments &arguments, const Plan &plan,
                      const runtime::JobResult &result,
                      const Prediction &prediction) {
  if (arguments.timeline.empty() || !result.lastStep)
    return Status();
  Timeline measured = *result.lastStep;
  measured.title = plan.model + ", " + plan.schedule + ", measured";
  Ticks scale = makespanOf(measured);
  if (prediction.timing) {
    Timeline expected = timelineOf(plan, *prediction.timing);
    expected.title =
        plan.model + ", " + plan.schedule + ", predicted " + prediction.basis;
    expected.unit = TimeUnit::Seconds;
    scale = std::max(scale, makespanOf(expected));
    Status status =
        writeTimeline(predictedStem(arguments.timeline), expected, scale);
    if (!status.ok())
      return status;
  } else {
    removeStale(arguments, prediction.basis);
  }
  return writeTimeline(measuredStem(arguments.timeline), measured, scale);
}

Status writeFlight(const Arguments &arguments,
                   const runtime::JobResult &result) {
  if (!result.flight)
    return Status();
  return writeOutput(arguments.flightRecorder, [&](llvm::raw_ostream &out) {
    emitChromeTrace(*result.flight, out);
  });
}

} // namespace sluice
