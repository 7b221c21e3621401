//===- runtime/Job.h - Runs a plan for some steps ------------------------===//
#ifndef SLUICE_RUNTIME_JOB_H
#define SLUICE_RUNTIME_JOB_H

#include "ir/Plan.h"
#include "ir/Status.h"
#include "ir/Timeline.h"
#include "runtime/Checkpoint.h"
#include "runtime/Executor.h"
#include "runtime/Peers.h"
#include "runtime/Weights.h"
#include "runtime/sluice.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sluice::runtime {

/// A step has ended on all ranks.
struct StepInfo {
  uint64_t step = 0; ///< from 0
  uint64_t steps = 0;
  double loss = 0;
  bool hasLoss = false;
  double seconds = 0; ///< as in JobResult::stepSeconds
};

/// Steps that JobResult keeps at most; of more, the last ones.
inline constexpr uint64_t kMaxKeptSteps = 1u << 16;

struct JobOptions {
  const sluice_module *module = nullptr;
  /// Whether the module enqueues what it computes on the backend's devices.
  bool computesOnDevice = false;
  uint64_t steps = 1; ///< in all, with those of what it goes on from
  /// Where to go on from, with the step after its steps.
  std::optional<FoundCheckpoint> resume;
  /// Where checkpoints are written, after every so many steps (0: none) and
  /// after the last; empty: nowhere.
  std::string checkpointDirectory;
  uint64_t checkpointEvery = 0;
  /// A rank that makes no progress for so long ends the job; not positive:
  /// never.
  double timeoutSeconds = 60;
  /// The last step is recorded, at 16 bytes an operation; else the clock reads
  /// are spared.
  bool recordLastStep = true;
  /// Whether JobResult::flight is told; what it is made of is always kept.
  bool flight = false;
  /// Steps in which every call of a module is timed, from the third step of
  /// this job on (or the last, where there are fewer). 0: none is.
  uint64_t costSteps = 3;
  std::string backend = "host";
  bool graphs = false;  ///< captures a step and repeats it, where it can
  uint32_t devices = 0; ///< for the backend to use at most; 0: all there are
  /// Called at each step's end, in their order, from the thread of the last
  /// rank to end it; while it runs, that rank waits. No call starts after
  /// runJob has returned.
  std::function<void(const StepInfo &)> onStep;
  /// Called once when the job ends early, from runJob's thread, with the table
  /// of who stood where and waited for what at that moment. With `peers` in one
  /// process only, the first that can.
  std::function<void(const std::string &table)> onStuck;
  /// The processes of the job where each has one rank; this one runs the rank
  /// of its number. Null: all ranks are here. All processes must run the same
  /// plan, and give the same options but for the functions.
  Peers *peers = nullptr;
  /// With `peers`: BackendFunctions::token of process 0.
  std::string token;
  /// With `peers`: lines that tell the job and must be the same in all.
  std::string identity;
  /// May be null: the number of a signal that came ends the job; with
  /// `checkpointDirectory` after the step in progress, whose checkpoint is
  /// written if that takes no more than `signalGraceSeconds`.
  const std::atomic<int> *signal = nullptr;
  double signalGraceSeconds = 60;
};

/// What a stage's calls took on the average, in seconds; 0 where none was made.
struct StageCosts {
  double forward = 0;
  double recompute = 0;
  double backwardInput = 0;
  double backwardWeight = 0;
  double optimizerStep = 0;
};

/// With JobOptions::peers that of process 0 only; of others it is empty, but
/// for what is of a job that failed.
struct JobResult {
  /// Step by step, from the end of the step before (the start of the job) to
  /// its end on the last rank to end it.
  std::vector<double> stepSeconds;
  std::vector<double> losses; ///< empty where no stage has one
  /// Step number of the first entry of the two.
  uint64_t firstStep = 0;
  std::vector<Bytes> arenaBytes;     ///< allocated, per rank of all replicas
  std::vector<Bytes> hostArenaBytes; ///< the same of host memory
  /// If that was to be recorded: of the first replica.
  std::optional<Timeline> lastStep;
  /// If it was asked for, also of a job that failed, where this process speaks:
  /// the last operations of all ranks of all replicas (FlightRecorder.h), as
  /// far as their processes are left.
  std::optional<Timeline> flight;
  /// Per stage, of the first replica: of costSteps steps after two to warm up.
  std::vector<StageCosts> costs;
  /// Of a job that failed: whether it is this process's to tell.
  bool speaks = true;
  /// Of a job that failed: whether all processes know and end in good order,
  /// so that the Peers may be destroyed.
  bool orderly = false;
};

/// Runs `plan`, every rank of every replica on a thread of its own, for
/// `options.steps` steps; then hands the trained weights to `weights` unless
/// that is null. The plan must be verified; that is trusted. Everything is
/// allocated before the first step. With `options.peers` only one rank runs
/// here, and of the other ranks' lists process 0 alone needs any.
///
/// Fails with Fault::Input where module and plan do not fit each other, the
/// plan has no ranks, no stages or too many replicas, or a checkpoint is of
/// another model, and with Fault::Environment where an operation fails, a rank
/// is stuck, a checkpoint cannot be written, or memory is short. A module's
/// function that does not return cannot be ended: a second after the job has,
/// runJob returns all the same (within timeoutSeconds + 2) and leaves that
/// thread behind with all that it may touch. `plan` must then stay as it is
/// until the process ends, and the process should end at once, by std::_Exit.
Status runJob(const Plan &plan, const JobOptions &options, JobResult &result,
              WeightsSink *weights = nullptr);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_JOB_H
