//===- runtime/JobState.h - What the threads of a job share --------------===//
//
// Inner header of Job.cpp and JobResult.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_JOBSTATE_H
#define SLUICE_RUNTIME_JOBSTATE_H

#include "runtime/Executor.h"
#include "runtime/Job.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace sluice::runtime {

/// One rank: written by its thread, read by runJob once that has ended.
struct RankState {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executor> executor; ///< after the backend: goes first
  Status loaded;
  /// Its part of the last stage's microbatches; not 0: it reports a loss.
  double lossShare = 0;
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
  std::unique_ptr<World> world;
  std::vector<RankProgress> progress;
  std::vector<RankState> ranks;
  /// How many ranks have ended a step, modulo the size; who ends it last tells.
  std::vector<std::atomic<uint32_t>> endedRanks;
  /// The first step that is run.
  uint64_t firstStep = 0;
  std::optional<CheckpointReader> resumed;
  std::optional<CheckpointWriter> checkpoints;
  uint64_t costBegin = 0; ///< steps [costBegin, costEnd) are timed
  uint64_t costEnd = 0;
  int64_t startTime = 0;

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

/// Gives `rank` the memory that its steps will write results to.
void allocateResults(JobState &job, Id rank);

/// Turns what the ranks wrote into `result`. All threads have ended.
void collectResults(const Plan &plan, const JobState &job, JobResult &result);

/// Visits all tensors in order of position, each once.
Status visitWeights(const JobState &job, WeightsSink &sink);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_JOBSTATE_H
