//===- runtime/Job.cpp ---------------------------------------------------===//
#include "runtime/Job.h"

#include "ir/PlanStructure.h"
#include "runtime/Clock.h"
#include "runtime/JobState.h"
#include "runtime/ModuleCall.h"
#include "runtime/Watchdog.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>

namespace sluice::runtime {

/// How long the ranks may take to end after an abort, in seconds, before a
/// thread is given up.
static constexpr double kGraceSeconds = 1.0;
static constexpr double kShortGrace = 0.1;
/// How often a signal is looked for.
static constexpr std::chrono::milliseconds kSignalPeriod(20);

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
  void meetOthers();
  Status startThreads();
  Status supervise(Watchdog &watchdog, JobResult &result, WeightsSink *weights);
  template <typename Event> bool await(Event event);
  Status endEarly(Watchdog &watchdog, JobResult &result);
  Status whyEarly(std::span<Snapshot> snapshots);
  EarlyEnd whyEarlyHere(std::span<Snapshot> snapshots);
  std::vector<StandingRow> rowsOf(std::span<const Snapshot> snapshots) const;
  Status loadFailure(JobResult &result);
  Status loadFailureHere();
  Status finish(Watchdog &watchdog, JobResult &result, WeightsSink *weights);
  Status finishFirst(JobResult &result, WeightsSink *weights);
  void setStart(JobState::Start start);
  void stopThreads();
  void joinThreads();
  bool allEnded() const { return job->endedCount == threads.size(); }
  bool endsEarly() const {
    return job->stuck != kNone || job->failed.set ||
           (job->liaison && job->liaison->endsEarly()) || isEndedBySignal();
  }
  bool isEndedBySignal() const;
  int signal() const {
    return job->options.signal ? job->options.signal->load() : 0;
  }
  bool isHere(Id rank) const { return rank - job->firstHere < job->countHere; }

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
  job->countHere = ranks;
  if (Peers *peers = options.peers) {
    job->firstHere = peers->self();
    job->countHere = 1;
    if (peers->count() != ranks)
      return wrongCount(plan, peers->count());
  }
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
  for (Id rank = 0; options.peers && rank < ranks; ++rank)
    if (options.peers->self() == 0)
      allocateSteps(*job, rank);
  const Paths paths = pathsOf(plan);
  if (Status s =
          backend->make(ranks, paths.channels, paths.collectives, job->world);
      !s.ok())
    return s;
  if (Status s = job->world->connect(
          {.devices = options.devices,
           .timeoutSeconds = options.timeoutSeconds,
           .computesOnDevice = options.computesOnDevice,
           .graphs = options.graphs,
           .self = options.peers ? options.peers->self() : kNone,
           .token = options.token});
      !s.ok())
    return s;
  std::vector<Bytes> arenas;
  for (Id rank = 0; rank < ranks; ++rank)
    if (isHere(rank))
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
          " parts (pipeline.zero); run it without --checkpoint-dir");
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
    if (job->firstHere == 0)
      if (Status s = job->checkpoints->prepare(); !s.ok())
        return s;
    job->stop = std::make_unique<OrderlyStop>(
        options.signal, options.signalGraceSeconds, job->countHere,
        job->firstStep, options.steps);
  }
  const uint64_t steps = options.steps - job->firstStep;
  job->endedRanks = std::vector<std::atomic<uint32_t>>(keptSteps(*job) + 1);
  job->costBegin =
      job->firstStep + (steps == 0 ? 0 : std::min<uint64_t>(2, steps - 1));
  job->costEnd = job->costBegin + std::min(options.costSteps, steps);
  return {};
}

Status JobRunner::startThreads() {
  threads.reserve(job->countHere);
  for (Id rank = job->firstHere; rank < job->firstHere + job->countHere;
       ++rank) {
    try {
      threads.emplace_back(
          [state = job, &whole = plan, rank] { runRank(*state, whole, rank); });
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
  if (job->stop)
    job->stop->cancel();
  {
    std::unique_lock lock(job->mutex);
    if (job->start == JobState::Start::Pending)
      job->start = JobState::Start::Cancel;
    job->changed.notify_all();
    // With other processes this one ends at once: whoever started them may
    // not wait for long.
    job->changed.wait_for(lock,
                          std::chrono::duration<double>(
                              job->liaison ? kShortGrace : kGraceSeconds),
                          [this] { return allEnded(); });
    job->givenUp = true;
  }
  joinThreads();
}

/// Joins the threads that have ended and leaves the others behind.
void JobRunner::joinThreads() {
  const auto hasEnded = [this](size_t thread) {
    const std::lock_guard lock(job->mutex);
    return job->ranks[job->firstHere + thread].ended;
  };
  for (size_t i = 0; i < threads.size(); ++i) {
    if (hasEnded(i))
      threads[i].join();
    else
      threads[i].detach();
  }
  threads.clear();
}

/// Under the lock, again and again: a signal that came ends the job, at once
/// unless ranks run and can write a checkpoint first.
bool JobRunner::isEndedBySignal() const {
  return job->stop ? job->stop->look(job->start == JobState::Start::Go,
                                     job->liaison.get())
                   : signal() != 0;
}

/// Of this process: the first rank's, so that it does not depend on who was
/// faster.
Status JobRunner::loadFailureHere() {
  const std::lock_guard lock(job->mutex);
  for (const RankState &rank : job->ranks)
    if (!rank.loaded.ok())
      return rank.loaded;
  return {};
}

/// Of all processes, once all have loaded.
Status JobRunner::loadFailure(JobResult &result) {
  if (!job->liaison)
    return loadFailureHere();
  Id whose = 0;
  Status status = job->liaison->loadVerdict(whose);
  result.speaks = whose == job->firstHere;
  result.orderly = !status.ok();
  return status;
}

//===----------------------------------------------------------------------===//
// Ending early
//===----------------------------------------------------------------------===//

std::vector<StandingRow>
JobRunner::rowsOf(std::span<const Snapshot> snapshots) const {
  std::vector<StandingRow> rows;
  for (Id i = 0; i < snapshots.size(); ++i)
    rows.push_back(standingRow(plan, job->firstHere + i, snapshots[i]));
  return rows;
}

/// What a rank said goes before that a rank said nothing.
Status JobRunner::whyEarly(std::span<Snapshot> snapshots) {
  if (Status s = loadFailureHere(); !s.ok())
    return s;
  const std::lock_guard lock(job->mutex);
  if (!job->failed.set && job->stuck == kNone)
    return describeSignal(signal());
  if (!job->failed.set)
    return describeStuck(plan, rowsOf(snapshots), job->stuck,
                         job->options.timeoutSeconds);
  snapshots[job->failed.rank - job->firstHere].failedOp =
      job->failed.failure.op;
  return describeFailure(plan, job->failed);
}

/// The same of this process alone, for the others.
EarlyEnd JobRunner::whyEarlyHere(std::span<Snapshot> snapshots) {
  EarlyEnd end;
  const std::lock_guard lock(job->mutex);
  if (job->failed.set) {
    end.reason = EarlyEnd::Reason::Failed;
    end.message = describeFailure(plan, job->failed).message();
    snapshots[0].failedOp = job->failed.failure.op;
  } else if (job->stuck != kNone) {
    end.reason = EarlyEnd::Reason::Stuck;
  } else if (const int number = signal()) {
    end.reason = EarlyEnd::Reason::Signal;
    end.message = describeSignal(number).message();
  }
  end.row = rowsOf(snapshots)[0];
  return end;
}

/// Stops all ranks, tells the caller who stood where, and says why.
Status JobRunner::endEarly(Watchdog &watchdog, JobResult &result) {
  std::vector<Snapshot> snapshots = watchdog.snapshots();
  job->world->abort();
  std::vector<StandingRow> rows;
  Status status;
  Liaison::Verdict verdict;
  if (job->liaison) {
    verdict = job->liaison->end(whyEarlyHere(snapshots));
    rows = verdict.rows;
    result.speaks = verdict.speaks;
    status = describe(plan, verdict, job->options.timeoutSeconds);
  } else {
    reportFlight(plan, *job);
    collectFlight(plan, *job, result);
    status = whyEarly(snapshots);
    rows = rowsOf(snapshots);
    stopThreads();
  }
  if (job->options.onStuck && result.speaks)
    job->options.onStuck(standingTable(plan, rows));
  if (job->liaison) {
    passFlight(plan, *job, verdict, result);
    stopThreads();
    if (!result.speaks)
      job->liaison->awaitDismissal();
  }
  return status;
}

//===----------------------------------------------------------------------===//
// The walk of a job
//===----------------------------------------------------------------------===//

/// Waits for `event`, which is looked at under the lock; false if the job ends
/// early instead. Nothing but looking tells of a signal.
template <typename Event> bool JobRunner::await(Event event) {
  std::unique_lock lock(job->mutex);
  bool early = false;
  const auto isOver = [&] { return (early = endsEarly()) || event(); };
  if (!job->options.signal)
    job->changed.wait(lock, isOver);
  else
    while (!job->changed.wait_for(lock, kSignalPeriod, isOver)) {
    }
  return !early;
}

/// Sees the threads through loading, steps and end.
Status JobRunner::supervise(Watchdog &watchdog, JobResult &result,
                            WeightsSink *weights) {
  if (!await([this] { return job->loadedCount == threads.size(); }))
    return endEarly(watchdog, result);
  if (job->liaison) {
    job->liaison->tellLoaded(loadFailureHere(), job->options.identity);
    if (!await([this] { return job->liaison->allLoaded(); }))
      return endEarly(watchdog, result);
  }
  Status loaded = loadFailure(result);
  setStart(loaded.ok() ? JobState::Start::Go : JobState::Start::Cancel);
  if (!await([this] { return allEnded(); }))
    return endEarly(watchdog, result);
  joinThreads();
  return loaded.ok() ? finish(watchdog, result, weights) : loaded;
}

/// Process 0, once all others have told what they leave.
Status JobRunner::finishFirst(JobResult &result, WeightsSink *weights) {
  if (job->stop && job->stop->isEarly()) {
    collectFlight(plan, *job, result);
    return describeStop(*job);
  }
  collectResults(plan, *job, result);
  collectFlight(plan, *job, result);
  return weights ? visitWeights(*job, *weights) : Status();
}

/// After the last step, all ranks of this process being through.
Status JobRunner::finish(Watchdog &watchdog, JobResult &result,
                         WeightsSink *weights) {
  for (Id rank = job->firstHere; rank < job->firstHere + job->countHere; ++rank)
    job->ranks[rank].report = reportOf(*job, rank);
  reportFlight(plan, *job);
  Liaison *const liaison = job->liaison.get();
  if (!liaison)
    return finishFirst(result, weights);
  if (job->stop && job->stop->isEarly())
    weights = nullptr; // they are not trained
  if (weights) {
    std::vector<HeldTensor> tensors;
    if (Status s = tensorsHere(*job, tensors); !s.ok()) {
      const std::lock_guard lock(job->mutex);
      job->failed = {
          true, job->firstHere, job->options.steps - 1, {kNone, s.message()}};
    }
    liaison->offer(std::move(tensors));
  }
  liaison->tellReport(job->ranks[job->firstHere].report);
  Status status;
  if (liaison->isFirst()) {
    if (!await([&] { return liaison->allReported(weights != nullptr); }))
      return endEarly(watchdog, result);
    status = finishFirst(result, weights);
    liaison->tellOver(status);
  } else {
    if (!await([&] { return liaison->isOver(); }) && !liaison->isOver())
      return endEarly(watchdog, result);
    status = liaison->over();
    result.speaks = false;
  }
  result.orderly = true;
  return status;
}

/// Hears of the other processes from here on.
void JobRunner::meetOthers() {
  Peers *peers = job->options.peers;
  if (!peers)
    return;
  JobState *const state = job.get();
  job->liaison = std::make_unique<Liaison>(
      *peers, job->options.timeoutSeconds, job->options.signal,
      Liaison::Hooks{.changed =
                         [state] {
                           const std::lock_guard lock(state->mutex);
                           state->changed.notify_all();
                         },
                     .standing = [state] { return state->standing(); },
                     .stepEnded =
                         [state](Id rank, const StepEnd &end) {
                           countStepEnd(*state, rank, end);
                         },
                     .reported =
                         [state](Id rank, RankReport &&report) {
                           const std::lock_guard lock(state->mutex);
                           state->ranks[rank].report = std::move(report);
                         }});
}

Status JobRunner::run(JobResult &result, WeightsSink *weights) {
  if (Status s = prepare(); !s.ok()) {
    if (!job->options.peers)
      return s;
    const Departure departure =
        leave(*job->options.peers, s, job->options.timeoutSeconds,
              job->options.signal);
    result.speaks = departure.speaks;
    result.orderly = departure.orderly;
    return departure.status;
  }
  Watchdog watchdog(
      std::span(job->progress).subspan(job->firstHere, job->countHere),
      job->options.timeoutSeconds, [state = job](Id rank) {
        const std::lock_guard lock(state->mutex);
        state->stuck = state->firstHere + rank;
        state->changed.notify_all();
      });
  job->standing = [this, &watchdog] { return rowsOf(watchdog.snapshots())[0]; };
  meetOthers();
  const auto hearNoMore = [](Liaison *liaison) { liaison->stopHearing(); };
  const std::unique_ptr<Liaison, decltype(hearNoMore)> hearing(
      job->liaison.get(), hearNoMore);
  if (Status s = startThreads(); !s.ok())
    return s;
  return supervise(watchdog, result, weights);
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
