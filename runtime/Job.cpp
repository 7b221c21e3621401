//===- runtime/Job.cpp ---------------------------------------------------===//
#include "runtime/Job.h"

#include "ir/PlanStructure.h"
#include "runtime/Clock.h"
#include "runtime/JobState.h"
#include "runtime/ModuleCall.h"
#include "runtime/Standing.h"
#include "runtime/Tensors.h"
#include "runtime/Watchdog.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <system_error>
#include <thread>

namespace sluice::runtime {

/// How long the ranks may take to end after an abort, in seconds, before a
/// thread is given up.
static constexpr double kGraceSeconds = 1.0;

/// Even where there is no memory for the longer sentence.
static Status outOfMemoryLoading(const Plan &plan, Id rank) {
  try {
    return Status::environment("out of memory while loading " +
                               nameOfRank(plan, rank));
  } catch (const std::bad_alloc &) {
    return Status::environment("out of memory");
  }
}

//===----------------------------------------------------------------------===//
// One rank's thread
//===----------------------------------------------------------------------===//

namespace {
class RankThread {
public:
  RankThread(JobState &sharedJob, const Plan &wholePlan, Id ownRank)
      : job(sharedJob), plan(wholePlan), rank(ownRank),
        state(sharedJob.ranks[ownRank]), progress(sharedJob.progress[ownRank]) {
  }

  void run() {
    load();
    if (awaitStart())
      runSteps();
    const std::lock_guard lock(job.mutex);
    state.ended = true;
    ++job.endedCount;
    job.changed.notify_all();
  }

private:
  void load();
  Status tryLoad();
  Status tensors(std::vector<sluice_tensor> &result) const;
  Status resume() const;
  bool awaitStart();
  void runSteps();
  bool runStep(uint64_t step);
  Outcome tryStep(uint64_t step, Failure &failure);
  void arm(uint64_t step);
  Outcome takeLoss(uint64_t step, Failure &failure);
  bool isSavedAfter(uint64_t step) const;
  Outcome save(uint64_t step, Failure &failure);
  Outcome tell(uint64_t step, Failure &failure);
  bool isGivenUp();
  void fail(uint64_t step, Failure &&failure);

  JobState &job;
  const Plan &plan;
  const Id rank;
  RankState &state;
  RankProgress &progress;
};
} // namespace

Status RankThread::tryLoad() {
  try {
    if (Status s = job.world->open(rank, state.backend); !s.ok())
      return s;
    if (Status s =
            Executor::load(plan, globalRank(plan, rank), *job.options.module,
                           *state.backend, progress, state.executor);
        !s.ok())
      return s;
    allocateResults(job, rank);
    return job.resumed ? resume() : Status();
  } catch (const std::bad_alloc &) {
    return outOfMemoryLoading(plan, rank);
  } catch (const EnvironmentFault &e) {
    return Status::environment(std::string("module ") +
                               job.options.module->name + ": " + e.what());
  }
}

/// The tensors of all stages of the rank.
Status RankThread::tensors(std::vector<sluice_tensor> &result) const {
  for (uint32_t i = 0; i < state.executor->stageCount(); ++i)
    if (Status s = addTensors(*job.options.module, state.executor->instance(i),
                              state.executor->stageId(i), result);
        !s.ok())
      return s;
  return {};
}

Status RankThread::resume() const {
  std::vector<sluice_tensor> all;
  Status status = tensors(all);
  return status.ok() ? job.resumed->read(all) : status;
}

void RankThread::load() {
  Status status = tryLoad();
  progress.enter(status.ok() ? Phase::Ready : Phase::Unloaded);
  const std::lock_guard lock(job.mutex);
  state.loaded = std::move(status);
  ++job.loadedCount;
  job.changed.notify_all();
}

bool RankThread::awaitStart() {
  std::unique_lock lock(job.mutex);
  job.changed.wait(lock,
                   [this] { return job.start != JobState::Start::Pending; });
  return job.start == JobState::Start::Go;
}

void RankThread::runSteps() {
  for (uint64_t step = job.firstStep; step < job.options.steps; ++step)
    if (!runStep(step))
      return;
  progress.enter(Phase::Finished);
}

/// Switches recording and measuring as `step` needs it.
void RankThread::arm(uint64_t step) {
  const bool recorded =
      job.options.recordLastStep && step + 1 == job.options.steps;
  state.backend->recordTimes(recorded ? state.times.data() : nullptr);
  const bool measured = step >= job.costBegin && step < job.costEnd;
  state.executor->measure(measured ? state.costs.data() : nullptr);
}

bool RankThread::runStep(uint64_t step) {
  Failure failure;
  switch (tryStep(step, failure)) {
  case Outcome::Done:
    return true;
  case Outcome::Failed:
    fail(step, std::move(failure));
    return false;
  case Outcome::Aborted:
    return false;
  }
  return false; // not reached: the switch is complete
}

Outcome RankThread::tryStep(uint64_t step, Failure &failure) {
  try {
    arm(step);
    Outcome outcome = state.executor->step(step, failure);
    if (outcome != Outcome::Done)
      return outcome;
    state.stepEnds[step % state.stepEnds.size()] = nowNanoseconds();
    if (state.lossShare != 0)
      outcome = takeLoss(step, failure);
    if (outcome == Outcome::Done && isSavedAfter(step))
      outcome = save(step, failure);
    return outcome == Outcome::Done ? tell(step, failure) : outcome;
  } catch (const std::bad_alloc &) {
    failure.message = "out of memory"; // so short that a string needs none
    return Outcome::Failed;
  } catch (const EnvironmentFault &e) {
    failure.message = e.what();
    return Outcome::Failed;
  }
}

bool RankThread::isGivenUp() {
  const std::lock_guard lock(job.mutex);
  return job.givenUp;
}

Outcome RankThread::takeLoss(uint64_t step, Failure &failure) {
  progress.enter(Phase::Reporting);
  failure.op = kNone;
  Loss loss;
  if (!state.executor->loss(loss, failure))
    return Outcome::Failed;
  if (loss.has) {
    if (!state.hasLoss) // read by who tells of an earlier step meanwhile
      state.hasLoss = true;
    state.losses[step % state.losses.size()] = loss.value;
  }
  return Outcome::Done;
}

bool RankThread::isSavedAfter(uint64_t step) const {
  const uint64_t every = job.options.checkpointEvery;
  return job.checkpoints && (step + 1 == job.options.steps ||
                             (every != 0 && (step + 1) % every == 0));
}

/// Replicas are equal, so the first one's state is that of all.
Outcome RankThread::save(uint64_t step, Failure &failure) {
  if (globalRank(plan, rank).replica != 0)
    return Outcome::Done;
  progress.enter(Phase::Saving);
  failure.op = kNone;
  std::vector<sluice_tensor> all;
  Status status = tensors(all);
  if (status.ok())
    status = job.checkpoints->write(step + 1, rank, all);
  failure.message = status.message();
  return status.ok() ? Outcome::Done : Outcome::Failed;
}

/// Tells of the step if this is the last rank to end it. No other rank can end
/// the next step for all meanwhile, so steps are told in their order.
Outcome RankThread::tell(uint64_t step, Failure &failure) {
  std::atomic<uint32_t> &ended = job.endedRanks[step % job.endedRanks.size()];
  if (ended.fetch_add(1, std::memory_order_acq_rel) + 1 != job.ranks.size())
    return Outcome::Done;
  ended.store(0, std::memory_order_relaxed);
  progress.enter(Phase::Reporting);
  failure.op = kNone;
  if (isGivenUp())
    return Outcome::Aborted;
  if (isSavedAfter(step)) // every rank has written its part
    if (Status s = job.checkpoints->complete(step + 1); !s.ok()) {
      failure.message = s.message();
      return Outcome::Failed;
    }
  if (!job.options.onStep)
    return Outcome::Done;
  StepInfo info{step, job.options.steps, 0, false, stepSeconds(job, step)};
  if (std::optional<double> loss = lossOf(job, step)) {
    info.loss = *loss;
    info.hasLoss = true;
  }
  job.options.onStep(info);
  return Outcome::Done;
}

void RankThread::fail(uint64_t step, Failure &&failure) {
  progress.enter(Phase::Failed);
  const std::lock_guard lock(job.mutex);
  if (!job.failed.set)
    job.failed = {true, rank, step, std::move(failure)};
  job.changed.notify_all();
}

//===----------------------------------------------------------------------===//
// The whole job
//===----------------------------------------------------------------------===//

namespace {
class JobRunner {
public:
  JobRunner(const Plan &wholePlan, const JobOptions &options)
      : plan(wholePlan), job(std::make_shared<JobState>(options)) {}
  JobRunner(const JobRunner &) = delete;
  JobRunner &operator=(const JobRunner &) = delete;

  ~JobRunner() {
    if (!threads.empty())
      stopThreads();
  }

  Status run(JobResult &result, WeightsSink *weights);

private:
  Status prepare();
  Status prepareSteps();
  Status startThreads();
  Status supervise(Watchdog &watchdog);
  Status endEarly(Watchdog &watchdog);
  Status whyEarly(std::span<Snapshot> snapshots);
  Status loadFailure();
  void setStart(JobState::Start start);
  void stopThreads();
  void joinThreads();
  bool allEnded() const { return job->endedCount == threads.size(); }
  bool endsEarly() const { return job->stuck != kNone || job->failed.set; }

  const Plan &plan;
  std::shared_ptr<JobState> job;
  std::vector<std::thread> threads;
};
} // namespace

/// The part of the last stage's microbatches, of all replicas, that `rank` of
/// one of them computes.
static double lossShareOf(const Plan &plan, const RankPlan &rank) {
  auto count =
      std::count_if(rank.ops.begin(), rank.ops.end(), [&](const PlanOp &op) {
        return op.op == Op::Forward && op.stage + 1 == plan.stages.size();
      });
  return static_cast<double>(count) /
         (static_cast<double>(plan.replicas) * std::max(1u, plan.microbatches));
}

Status JobRunner::prepare() {
  const JobOptions &options = job->options;
  if (!options.module)
    return Status::usage("no module was given");
  const BackendInfo *backend = findBackend(options.backend);
  if (!backend)
    return Status::usage("there is no backend " + options.backend);
  if (plan.ranks.empty())
    return Status::input("the plan has no ranks");
  if (plan.stages.empty())
    return Status::input("the plan has no stages");
  if (globalRanks(plan) > kMaxGlobalRanks)
    return Status::input("the plan has " + std::to_string(plan.replicas) +
                         " replicas of " + std::to_string(plan.ranks.size()) +
                         " ranks, together over the limit of " +
                         std::to_string(kMaxGlobalRanks));
  if (uint64_t(plan.replicas) * plan.microbatches > kMaxCount)
    return Status::input("the plan has " + std::to_string(plan.replicas) +
                         " replicas of " + std::to_string(plan.microbatches) +
                         " microbatches, together over the limit of " +
                         std::to_string(kMaxCount));
  const auto ranks = static_cast<uint32_t>(globalRanks(plan));
  const auto listOf = [this](Id rank) -> const RankPlan & {
    return plan.ranks[globalRank(plan, rank).rank];
  };
  job->progress = std::vector<RankProgress>(ranks);
  for (Id rank = 0; rank < ranks; ++rank)
    job->progress[rank].setStreams(
        static_cast<uint32_t>(listOf(rank).streams.size()));
  job->ranks.resize(ranks);
  if (Status s = prepareSteps(); !s.ok())
    return s;
  for (Id rank = 0; rank < ranks; ++rank)
    job->ranks[rank].lossShare = lossShareOf(plan, listOf(rank));
  const Paths paths = pathsOf(plan);
  if (Status s =
          backend->make(ranks, paths.channels, paths.collectives, job->world);
      !s.ok())
    return s;
  std::vector<Bytes> arenas;
  for (Id rank = 0; rank < ranks; ++rank)
    arenas.push_back(listOf(rank).arenaBytes + listOf(rank).hostArenaBytes);
  return job->world->admit(arenas);
}

/// A checkpoint has what the optimizer keeps of a tensor in one place.
static Status checkParts(const Plan &plan) {
  for (Id stage = 0; stage < plan.stages.size(); ++stage)
    if (const uint32_t parts = plan.stages[stage].optimizerParts; parts > 1)
      return Status::input(
          "checkpoints have the optimizer of a stage whole, but that of "
          "stage " +
          std::to_string(stage) + " is in " + std::to_string(parts) +
          " parts (pipeline.zero 1); run it without --checkpoint-dir");
  return {};
}

/// Which steps are run, and what is read and written around them.
Status JobRunner::prepareSteps() {
  const JobOptions &options = job->options;
  if (options.resume || !options.checkpointDirectory.empty())
    if (Status s = checkParts(plan); !s.ok())
      return s;
  if (options.resume) {
    job->firstStep = std::min(options.resume->steps, options.steps);
    if (Status s = job->resumed.emplace().open(*options.resume); !s.ok())
      return s;
  }
  if (!options.checkpointDirectory.empty()) {
    job->checkpoints.emplace(options.checkpointDirectory,
                             static_cast<uint32_t>(plan.ranks.size()));
    if (Status s = job->checkpoints->prepare(); !s.ok())
      return s;
  }
  const uint64_t steps = options.steps - job->firstStep;
  job->endedRanks = std::vector<std::atomic<uint32_t>>(keptSteps(*job) + 1);
  job->costBegin =
      job->firstStep + (steps == 0 ? 0 : std::min<uint64_t>(2, steps - 1));
  job->costEnd = job->costBegin + std::min(options.costSteps, steps);
  return {};
}

Status JobRunner::startThreads() {
  threads.reserve(job->ranks.size());
  for (Id rank = 0; rank < job->ranks.size(); ++rank) {
    try {
      threads.emplace_back([state = job, &whole = plan, rank] {
        RankThread(*state, whole, rank).run();
      });
    } catch (const std::system_error &) {
      return Status::environment("cannot start a thread for " +
                                 nameOfRank(plan, rank));
    }
  }
  return {};
}

void JobRunner::setStart(JobState::Start start) {
  const std::lock_guard lock(job->mutex);
  job->startTime = nowNanoseconds();
  job->start = start;
  job->changed.notify_all();
}

/// Ends all ranks: those that do not within the grace are given up. Allocates
/// nothing.
void JobRunner::stopThreads() {
  job->world->abort();
  {
    std::unique_lock lock(job->mutex);
    if (job->start == JobState::Start::Pending)
      job->start = JobState::Start::Cancel;
    job->changed.notify_all();
    job->changed.wait_for(lock, std::chrono::duration<double>(kGraceSeconds),
                          [this] { return allEnded(); });
    job->givenUp = true;
  }
  joinThreads();
}

/// Joins the threads that have ended and leaves the others behind.
void JobRunner::joinThreads() {
  const auto hasEnded = [this](size_t rank) {
    const std::lock_guard lock(job->mutex);
    return job->ranks[rank].ended;
  };
  for (size_t rank = 0; rank < threads.size(); ++rank) {
    if (hasEnded(rank))
      threads[rank].join();
    else
      threads[rank].detach();
  }
  threads.clear();
}

/// The first rank's, so that it does not depend on who was faster.
Status JobRunner::loadFailure() {
  const std::lock_guard lock(job->mutex);
  for (const RankState &rank : job->ranks)
    if (!rank.loaded.ok())
      return rank.loaded;
  return {};
}

static std::string atOp(const Plan &plan, Id rank, uint32_t op, uint64_t step) {
  const std::string number = "step " + std::to_string(step);
  return op == kNone
             ? " in " + number
             : " at " + describeOp(plan, globalRank(plan, rank).rank, op) +
                   " of " + number;
}

static Status describeFailure(const Plan &plan, const JobFailure &failed) {
  return Status::environment(
      nameOfRank(plan, failed.rank) + " failed" +
      atOp(plan, failed.rank, failed.failure.op, failed.step) + ": " +
      failed.failure.message);
}

/// Whom to name of the ranks that have stood still about as long as `stuck`:
/// the first that is inside a module, since the others may well wait for it,
/// else the first that stands at an operation. So it does not depend on who
/// came there a little earlier.
static Id culprit(const Plan &plan, std::span<const Snapshot> ranks, Id stuck) {
  Id first = kNone;
  for (Id rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].idleSeconds < 0.5 * ranks[stuck].idleSeconds)
      continue;
    const Standing standing = standingOf(plan, rank, ranks[rank]);
    if (standing.inModule)
      return rank;
    if (standing.op != kNone && first == kNone)
      first = rank;
  }
  return first == kNone ? stuck : first;
}

static Status describeStuck(const Plan &plan, std::span<const Snapshot> ranks,
                            Id stuck, double timeoutSeconds) {
  const Id rank = culprit(plan, ranks, stuck);
  const Standing standing = standingOf(plan, rank, ranks[rank]);
  char timeout[64];
  std::snprintf(timeout, sizeof(timeout), "%g", timeoutSeconds);
  return Status::environment(
      nameOfRank(plan, rank) + " has made no progress for " + timeout + " s" +
      (standing.op == kNone ? std::string()
                            : atOp(plan, rank, standing.op, ranks[rank].step)) +
      ": it waits for " + standing.waitsFor);
}

/// What a rank said goes before that a rank said nothing.
Status JobRunner::whyEarly(std::span<Snapshot> snapshots) {
  if (Status s = loadFailure(); !s.ok())
    return s;
  const std::lock_guard lock(job->mutex);
  if (!job->failed.set)
    return describeStuck(plan, snapshots, job->stuck,
                         job->options.timeoutSeconds);
  snapshots[job->failed.rank].failedOp = job->failed.failure.op;
  return describeFailure(plan, job->failed);
}

/// Stops all ranks, tells the caller who stood where, and says why.
Status JobRunner::endEarly(Watchdog &watchdog) {
  std::vector<Snapshot> snapshots = watchdog.snapshots();
  job->world->abort();
  Status status = whyEarly(snapshots);
  stopThreads();
  if (job->options.onStuck)
    job->options.onStuck(standingTable(plan, snapshots));
  return status;
}

/// Sees the threads through loading, steps and end.
Status JobRunner::supervise(Watchdog &watchdog) {
  std::unique_lock lock(job->mutex);
  job->changed.wait(lock, [this] {
    return job->loadedCount == job->ranks.size() || endsEarly();
  });
  const bool early = endsEarly();
  lock.unlock();
  if (early)
    return endEarly(watchdog);
  Status loaded = loadFailure();
  setStart(loaded.ok() ? JobState::Start::Go : JobState::Start::Cancel);
  lock.lock();
  job->changed.wait(lock, [this] { return allEnded() || endsEarly(); });
  const bool whole = allEnded() && !job->failed.set;
  lock.unlock();
  if (!whole)
    return endEarly(watchdog);
  joinThreads();
  return loaded;
}

Status JobRunner::run(JobResult &result, WeightsSink *weights) {
  if (Status s = prepare(); !s.ok())
    return s;
  {
    Watchdog watchdog(job->progress, job->options.timeoutSeconds,
                      [state = job](Id rank) {
                        const std::lock_guard lock(state->mutex);
                        state->stuck = rank;
                        state->changed.notify_all();
                      });
    if (Status s = startThreads(); !s.ok())
      return s;
    if (Status s = supervise(watchdog); !s.ok())
      return s;
  }
  collectResults(plan, *job, result);
  return weights ? visitWeights(*job, *weights) : Status();
}

static Status runGuarded(const Plan &plan, const JobOptions &options,
                         JobResult &result, WeightsSink *weights) {
  try {
    return JobRunner(plan, options).run(result, weights);
  } catch (const std::system_error &e) {
    return Status::environment(std::string("cannot start the watchdog: ") +
                               e.what());
  } catch (const EnvironmentFault &e) { // of weights that are handed on
    return Status::environment(std::string("module ") + options.module->name +
                               ": " + e.what());
  }
}

Status runJob(const Plan &plan, const JobOptions &options, JobResult &result,
              WeightsSink *weights) {
  try {
    return runGuarded(plan, options, result, weights);
  } catch (const std::bad_alloc &) {
    return Status::environment("out of memory"); // a string needs none for it
  }
}

} // namespace sluice::runtime
