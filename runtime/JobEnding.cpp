//===- runtime/JobEnding.cpp - Why a job ended, in a sentence ------------===//
#include "ir/Diagnostics.h"
#include "runtime/JobState.h"

#include <cstdio>

namespace sluice::runtime {

Status wrongCount(const Plan &plan, uint32_t processes) {
  const std::string ranks = std::to_string(plan.ranks.size());
  const std::string needed = std::to_string(globalRanks(plan));
  return Status::usage(
      std::to_string(processes) +
      (processes == 1 ? " process was started" : " processes were started") +
      " for a plan of " + ranks + (ranks == "1" ? " rank" : " ranks") +
      (plan.replicas > 1 ? " in " + std::to_string(plan.replicas) + " replicas"
                         : "") +
      ": start " + needed + ", as by mpirun -n " + needed +
      ", or run all ranks in one process with --backend=host");
}

Status describeFailure(const Plan &plan, const JobFailure &failed) {
  StandingRow row = {.step = failed.step};
  if (failed.failure.op != kNone) {
    const Id rank = globalRank(plan, failed.rank).rank;
    const PlanOp &op = plan.ranks[rank].ops[failed.failure.op];
    row.standsAt = nameOf(op);
    row.line = specPlace(plan, op.stage);
  }
  return Status::environment(nameOfRank(plan, failed.rank) + " failed" +
                             placeOf(row) + ": " + failed.failure.message);
}

Status describeSignal(int number) {
  return Status::environment("the job was ended from outside by signal " +
                             std::to_string(number));
}

Status describeStop(const JobState &job) {
  const uint64_t steps = job.stop->after();
  return Status::environment(describeSignal(job.stop->number()).message() +
                             "; " + escaped(job.checkpoints->folder(steps)) +
                             " holds its state after " + std::to_string(steps) +
                             (steps == 1 ? " step" : " steps"));
}

/// Whom to name of the ranks that have stood still about as long as `stuck`:
/// the first that is inside a module, since the others may well wait for it,
/// else the first that stands at an operation. So it does not depend on who
/// came there a little earlier.
static Id culprit(std::span<const StandingRow> rows, Id stuck) {
  Id first = kNone;
  for (Id rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank].idleSeconds < 0.5 * rows[stuck].idleSeconds)
      continue;
    if (rows[rank].inModule)
      return rank;
    if (rows[rank].atOp() && first == kNone)
      first = rank;
  }
  return first == kNone ? stuck : first;
}

Status describeStuck(const Plan &plan, std::span<const StandingRow> rows,
                     Id stuck, double timeoutSeconds) {
  const Id rank = culprit(rows, stuck);
  char timeout[64];
  std::snprintf(timeout, sizeof(timeout), "%g", timeoutSeconds);
  return Status::environment(
      nameOfRank(plan, rank) + " has made no progress for " + timeout + " s" +
      (rows[rank].atOp() ? placeOf(rows[rank]) : std::string()) +
      ": it waits for " + rows[rank].waitsFor);
}

/// Of a job in several processes.
Status describe(const Plan &plan, const Liaison::Verdict &verdict,
                double timeoutSeconds) {
  const StandingRow &row = verdict.rows[verdict.rank];
  switch (verdict.reason) {
  case EarlyEnd::Reason::Failed:
  case EarlyEnd::Reason::Signal:
    return Status::environment(verdict.message);
  case EarlyEnd::Reason::Stuck:
    return describeStuck(plan, verdict.rows, verdict.rank, timeoutSeconds);
  case EarlyEnd::Reason::Silent:
    return Status::environment("the process of " +
                               nameOfRank(plan, verdict.rank) +
                               " is gone or stopped: it was last seen" +
                               placeOf(row) + ", " + row.waitsFor);
  case EarlyEnd::Reason::Asked:
    break;
  }
  return Status::environment("another process has ended the job");
}

} // namespace sluice::runtime
