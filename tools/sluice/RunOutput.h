//===- tools/sluice/RunOutput.h - What a run tells and leaves behind -----===//
#ifndef SLUICE_TOOLS_SLUICE_RUNOUTPUT_H
#define SLUICE_TOOLS_SLUICE_RUNOUTPUT_H

#include "compiler/simulate/Simulate.h"
#include "runtime/Job.h"
#include "tools/sluice/CommandLine.h"
#include "tools/sluice/Files.h"

#include <optional>
#include <string>
#include <vector>

namespace sluice {

/// A loss for people, "nan" whatever the sign of its bits.
std::string lossText(double loss);

/// When a step's operations were to happen, in seconds.
struct Prediction {
  std::optional<PlanTiming> timing;
  std::string basis;      ///< what it comes from; where there is none, why not
  uint64_t warmSteps = 0; ///< first steps, which are no measure for later ones
};

/// From costs measured in the first steps if there are enough of them, else
/// from the plan's own if those are times.
Prediction predict(const Plan &plan, const runtime::JobResult &result,
                   const runtime::JobOptions &options);

void printSummary(llvm::raw_ostream &out, const Arguments &arguments,
                  const Plan &plan, const runtime::JobResult &result,
                  const Prediction &prediction);

/// The files of --timeline=`stem`; none if that is empty.
std::vector<std::string> timelinePaths(const std::string &stem);

/// Writes the predicted and the measured timeline at one scale. Where there is
/// no prediction, says why and removes one that an earlier run left there.
Status writeTimelines(const Arguments &arguments, const Plan &plan,
                      const runtime::JobResult &result,
                      const Prediction &prediction);

/// Writes the trace of --flight-recorder, if `result` has what goes there.
Status writeFlight(const Arguments &arguments,
                   const runtime::JobResult &result);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_RUNOUTPUT_H
