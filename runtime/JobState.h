//===- runtime/JobState.h - What the threads of a job share --------------===//
//
// Inner header of Job.cpp and its neighbours.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_JOBSTATE_H
#define SLUICE_RUNTIME_JOBSTATE_H

#include "runtime/Executor.h"
#include "runtime/Job.h"
#include "runtime/Liaison.h"
#include "runtime/OrderlyStop.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace sluice::runtime {

/// One rank: written by its thread, read by runJob once that has ended.
struct RankState {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executor> executor; ///< after the backend: goes first
  Status loaded;
  /// Its part of the last stage's microbatches; not 0: it reports a loss.
  double lossShare = 0;
  RankReport report;             ///< at the end
  std::vector<int64_t> stepEnds; ///< nanoseconds, step modulo its size
  std::vector<double> losses;    ///< the same way; of the reporting rank
  bool hasLoss = false;
  std::vector<OpTime> times;        ///< of the last step, if that is recorded
  std::vector<StageCostSums> costs; ///< per stage of the rank
  bool ended = false;               ///< guarded by JobState::mutex
};

/// Why a job ended early.
struct JobFailure {
  bool set = false;
  Id rank = kNone;
  uint64_t step = 0;
  Failure failure;
};

/// Held by every thread of the job, so that a thread that never ends keeps all
/// that it may touch.
struct JobState {
  enum class Start : uint8_t { Pending, Go, Cancel };

  explicit JobState(const JobOptions &jobOptions) : options(jobOptions) {}

  const JobOptions options;
  /// The ranks of this process: all, or with peers one.
  Id firstHere = 0;
  Id countHere = 0;
  std::unique_ptr<World> world;
  std::vector<RankProgress> progress;
  std::vector<RankState> ranks;
  /// How many ranks have ended a step, modulo the size; who ends it last tells.
  std::vector<std::atomic<uint32_t>> endedRanks;
  /// The first step that is run.
  uint64_t firstStep = 0;
  std::optional<CheckpointReader> resumed;
  std::optional<CheckpointWriter> checkpoints;
  std::unique_ptr<OrderlyStop> stop; ///< with checkpoints
  uint64_t costBegin = 0;            ///< steps [costBegin, costEnd) are timed
  uint64_t costEnd = 0;
  int64_t startTime = 0;
  std::unique_ptr<Liaison> liaison;      ///< with peers
  std::function<StandingRow()> standing; ///< of the rank of this process

  std::mutex mutex; ///< guards what follows
  std::condition_variable changed;
  Start start = Start::Pending;
  size_t loadedCount = 0;
  size_t endedCount = 0;
  Id stuck = kNone; ///< set by the watchdog
  bool givenUp =
      false; ///< runJob no longer waits for those that have not ended
  JobFailure failed;
};

/// Steps whose times and losses are kept.
uint64_t keptSteps(const JobState &job);

/// What `step` took, once all ranks have ended it.
double stepSeconds(const JobState &job, uint64_t step);

/// The loss of a step that all ranks have ended: the mean over its
/// microbatches, which the copies of the last stage share; none without a loss.
std::optional<double> lossOf(const JobState &job, uint64_t step);

/// Gives `rank` the memory that its steps will write results to, here, and the
/// memory for its step ends and losses, where those are told.
void allocateResults(JobState &job, Id rank);
void allocateSteps(JobState &job, Id rank);

/// All that a rank does: loads, awaits the start, runs its steps.
void runRank(JobState &job, const Plan &plan, Id rank);

/// Keeps that `rank` has ended a step.
void keepStepEnd(JobState &job, Id rank, const StepEnd &end);

/// The same of a rank of another process, while the job is not given up; tells
/// of the step if that rank was the last to end it.
void countStepEnd(JobState &job, Id rank, const StepEnd &end);

/// What `rank`, whose thread has ended, leaves behind.
RankReport reportOf(const JobState &job, Id rank);

/// Nanoseconds of a clock to ticks since the first start.
void toTicks(Timeline &timeline);

/// Turns the reports and step ends of all ranks into `result`.
void collectResults(const Plan &plan, const JobState &job, JobResult &result);

/// The tensors of the ranks of this process.
Status tensorsHere(const JobState &job, std::vector<HeldTensor> &tensors);

/// Visits all tensors in order of position, each once.
Status visitWeights(const JobState &job, WeightsSink &sink);

//===----------------------------------------------------------------------===//
// What ranks did last, where it is asked for (JobFlight.cpp)
//===----------------------------------------------------------------------===//

/// That of the ranks of this process goes into their reports. What has not
/// ended lasts until now.
void reportFlight(const Plan &plan, JobState &job);
/// All reports that are here go into `result`.
void collectFlight(const Plan &plan, JobState &job, JobResult &result);
/// Of a process that ends early: sends its own to the process that speaks, or
/// is that and collects all.
void passFlight(const Plan &plan, JobState &job,
                const Liaison::Verdict &verdict, JobResult &result);

//===----------------------------------------------------------------------===//
// Sentences (JobEnding.cpp)
//===----------------------------------------------------------------------===//

/// So many processes do not fit the plan.
Status wrongCount(const Plan &plan, uint32_t processes);
Status describeFailure(const Plan &plan, const JobFailure &failed);
/// After the checkpoint that it names.
Status describeStop(const JobState &job);
Status describeSignal(int number);
/// `stuck` is a rank that made no progress for the timeout.
Status describeStuck(const Plan &plan, std::span<const StandingRow> rows,
                     Id stuck, double timeoutSeconds);
/// Of a job in several processes.
Status describe(const Plan &plan, const Liaison::Verdict &verdict,
                double timeoutSeconds);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_JOBSTATE_H
