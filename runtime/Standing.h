//===- runtime/Standing.h - Who waits for what ---------------------------===//
#ifndef SLUICE_RUNTIME_STANDING_H
#define SLUICE_RUNTIME_STANDING_H

#include "ir/Plan.h"
#include "runtime/Progress.h"

#include <span>
#include <string>
#include <vector>

namespace sluice::runtime {

/// A copy of one RankProgress at one moment.
struct Snapshot {
  uint64_t step = 0;
  Phase phase = Phase::Loading;
  std::vector<uint32_t> done;
  double idleSeconds = 0;    ///< since the rank last made progress
  uint32_t failedOp = kNone; ///< of a rank that failed in an operation
};

/// Where a rank stands: the operation that its computing stream's next
/// operation waits for in the end, or that operation itself.
struct Standing {
  uint32_t op = kNone;   ///< in the rank's list; kNone outside of it
  bool inModule = false; ///< a module, or who listens to steps, is being called
  std::string waitsFor;  ///< for people
};

/// Finds where a rank of all replicas stands (Replicas.h). O(operations of the
/// rank and of its peer).
Standing standingOf(const Plan &plan, Id number, const Snapshot &snapshot);

/// The line of the spec that `stage` comes from: "spec.yaml:12".
std::string specPlace(const Plan &plan, Id stage);

/// "1F0 (spec.yaml:12)".
std::string describeOp(const Plan &plan, Id rank, uint32_t op);

/// A rank's line of the table, in words, so that it can be told by those who
/// do not have the rank's list.
struct StandingRow {
  uint64_t step = 0;
  std::string standsAt; ///< an operation, or what the rank is about
  std::string line;     ///< of the spec; empty where it is in no operation
  std::string waitsFor;
  double idleSeconds = 0; ///< since the rank last made progress
  bool inModule = false;  ///< as Standing::inModule
  bool atOp() const { return !line.empty(); }
};

StandingRow standingRow(const Plan &plan, Id number, const Snapshot &snapshot);

/// " at 0F3 (spec.yaml:12) of step 4"; outside of operations " in step 4".
std::string placeOf(const StandingRow &row);

/// Lines of the ranks of all replicas, by their numbers: the operation that
/// each stands at, its line of the spec, what it waits for and since when. Ends
/// with a line feed.
std::string standingTable(const Plan &plan, std::span<const StandingRow> rows);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_STANDING_H
