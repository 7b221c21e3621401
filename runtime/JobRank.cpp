//===- runtime/JobRank.cpp - The thread of one rank ----------------------===//
#include "runtime/Clock.h"
#include "runtime/JobState.h"
#include "runtime/ModuleCall.h"
#include "runtime/Tensors.h"

#include <new>

namespace sluice::runtime {

/// Even where there is no memory for the longer sentence.
static Status outOfMemoryLoading(const Plan &plan, Id rank) {
  try {
    return Status::environment("out of memory while loading " +
                               nameOfRank(plan, rank));
  } catch (const std::bad_alloc &) {
    return Status::environment("out of memory");
  }
}

static bool isSavedAfter(const JobState &job, uint64_t step) {
  const uint64_t every = job.options.checkpointEvery;
  return job.checkpoints &&
         (step + 1 == job.options.steps || step + 1 == job.stop->after() ||
          (every != 0 && (step + 1) % every == 0));
}

namespace {
class RankThread {
public:
  RankThread(JobState &sharedJob, const Plan &wholePlan, Id ownRank)
      : job(sharedJob), plan(wholePlan), rank(ownRank),
        state(sharedJob.ranks[ownRank]), progress(sharedJob.progress[ownRank]) {
  }

  void run() {
    load();
    if (awaitStart() && join())
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
  bool join();
  void runSteps();
  bool runStep(uint64_t step, bool &stops);
  Outcome tryStep(uint64_t step, bool &stops, Failure &failure);
  void arm(uint64_t step);
  Outcome takeLoss(StepEnd &end, Failure &failure);
  Outcome save(uint64_t step, Failure &failure);
  Outcome tell(const StepEnd &end, Failure &failure);
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
    if (!job.liaison)
      allocateSteps(job, rank);
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

/// With the ranks of other processes.
bool RankThread::join() {
  if (!job.liaison)
    return true;
  const Status status = job.world->join();
  if (!status.ok())
    fail(job.firstStep, {kNone, status.message()});
  return status.ok();
}

void RankThread::runSteps() {
  bool stops = false;
  for (uint64_t step = job.firstStep; step < job.options.steps && !stops;
       ++step)
    if (!runStep(step, stops))
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

/// `stops` is set where a signal makes it the last step.
bool RankThread::runStep(uint64_t step, bool &stops) {
  Failure failure;
  switch (tryStep(step, stops, failure)) {
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

Outcome RankThread::tryStep(uint64_t step, bool &stops, Failure &failure) {
  try {
    arm(step);
    Outcome outcome = state.executor->step(step, failure);
    if (outcome != Outcome::Done)
      return outcome;
    StepEnd end = {.step = step, .end = nowNanoseconds()};
    if (state.lossShare != 0)
      outcome = takeLoss(end, failure);
    stops = job.stop && job.stop->endsWith(rank - job.firstHere, step);
    if (outcome == Outcome::Done && isSavedAfter(job, step))
      outcome = save(step, failure);
    return outcome == Outcome::Done ? tell(end, failure) : outcome;
  } catch (const std::bad_alloc &) {
    failure.message = "out of memory"; // so short that a string needs none
    return Outcome::Failed;
  } catch (const EnvironmentFault &e) {
    failure.message = e.what();
    return Outcome::Failed;
  }
}

Outcome RankThread::takeLoss(StepEnd &end, Failure &failure) {
  progress.enter(Phase::Reporting);
  failure.op = kNone;
  Loss loss;
  if (!state.executor->loss(loss, failure))
    return Outcome::Failed;
  end.loss = loss.value;
  end.hasLoss = loss.has;
  return Outcome::Done;
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

static bool isGivenUp(JobState &job) {
  const std::lock_guard lock(job.mutex);
  return job.givenUp;
}

/// Counts that a rank has ended `step`; true if it was the last. No other rank
/// can end the next step for all meanwhile, so steps are told in their order.
static bool isLastToEnd(JobState &job, uint64_t step) {
  std::atomic<uint32_t> &ended = job.endedRanks[step % job.endedRanks.size()];
  if (ended.fetch_add(1, std::memory_order_acq_rel) + 1 != job.ranks.size())
    return false;
  ended.store(0, std::memory_order_relaxed);
  return true;
}

static void tellStep(const JobState &job, uint64_t step) {
  if (!job.options.onStep)
    return;
  StepInfo info{step, job.options.steps, 0, false, stepSeconds(job, step)};
  if (std::optional<double> loss = lossOf(job, step)) {
    info.loss = *loss;
    info.hasLoss = true;
  }
  job.options.onStep(info);
}

/// What is to do once all ranks have ended `step`, and have written their parts
/// of a checkpoint.
static Status endStep(const JobState &job, uint64_t step) {
  if (isSavedAfter(job, step))
    if (Status s = job.checkpoints->complete(step + 1); !s.ok())
      return s;
  tellStep(job, step);
  return {};
}

void countStepEnd(JobState &job, Id rank, const StepEnd &end) {
  if (isGivenUp(job))
    return;
  keepStepEnd(job, rank, end);
  if (!isLastToEnd(job, end.step))
    return;
  Status status = endStep(job, end.step);
  if (status.ok())
    return;
  const std::lock_guard lock(job.mutex);
  if (!job.failed.set)
    job.failed = {true, job.firstHere, end.step, {kNone, status.message()}};
  job.changed.notify_all();
}

/// Tells of the step if this is the last rank to end it; with other processes
/// that is process 0's.
Outcome RankThread::tell(const StepEnd &end, Failure &failure) {
  if (job.liaison) {
    StepEnd told = end;
    told.end += job.liaison->clockOffset();
    job.liaison->tellStepEnd(told);
    return Outcome::Done;
  }
  keepStepEnd(job, rank, end);
  if (!isLastToEnd(job, end.step))
    return Outcome::Done;
  progress.enter(Phase::Reporting);
  failure.op = kNone;
  if (isGivenUp(job))
    return Outcome::Aborted;
  const Status status = endStep(job, end.step);
  failure.message = status.message();
  return status.ok() ? Outcome::Done : Outcome::Failed;
}

void RankThread::fail(uint64_t step, Failure &&failure) {
  progress.enter(Phase::Failed);
  const std::lock_guard lock(job.mutex);
  if (!job.failed.set)
    job.failed = {true, rank, step, std::move(failure)};
  job.changed.notify_all();
}

void runRank(JobState &job, const Plan &plan, Id rank) {
  RankThread(job, plan, rank).run();
}

} // namespace sluice::runtime
