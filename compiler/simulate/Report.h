//===- compiler/simulate/Report.h - What a schedule costs, and why -------===//
//
// Everything that `sluice report` tells, as plain data; emit/ writes it as text
// and as JSON. The words are those of ir/README.md.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_SIMULATE_REPORT_H
#define SLUICE_COMPILER_SIMULATE_REPORT_H

#include "compiler/model/Network.h"
#include "compiler/model/Work.h"
#include "compiler/simulate/Simulate.h"
#include "compiler/spec/Spec.h"
#include "ir/Graph.h"
#include "ir/LiveBytes.h"
#include "ir/Plan.h"
#include "ir/Schedule.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// Kinds of buffers in the device's memory: the first ones.
inline constexpr unsigned kDeviceKinds = kindsBefore(BufferClass::Host);

/// Number of the heading in `memory{…}` that a kind of buffer counts to:
/// headings are numbered in the order in which Buffers.def first names them.
constexpr unsigned headingOf(unsigned kind) {
  unsigned heading = 0;
  for (unsigned i = 0; i < kDeviceKinds; ++i) {
    bool known = false;
    for (unsigned j = 0; j < i; ++j)
      known |= kBufferKinds[j].report == kBufferKinds[i].report;
    if (kBufferKinds[i].report == kBufferKinds[kind].report)
      return heading;
    heading += !known;
  }
  return heading;
}

constexpr unsigned countHeadings() {
  unsigned count = 0;
  for (unsigned kind = 0; kind < kDeviceKinds; ++kind)
    count = headingOf(kind) >= count ? headingOf(kind) + 1 : count;
  return count;
}

inline constexpr unsigned kHeadingCount = countHeadings();

constexpr std::string_view headingName(unsigned heading) {
  for (unsigned kind = 0; kind < kDeviceKinds; ++kind)
    if (headingOf(kind) == heading)
      return kBufferKinds[kind].report;
  return {};
}

/// Bytes per heading.
using MemoryByHeading = std::array<Bytes, kHeadingCount>;

/// All buffers of one kind and stage that are live at the peak of a rank.
struct MemoryContributor {
  BufferKind kind;
  Id stage; ///< kNone for the workspace
  uint32_t buffers;
  Bytes bytes;
};

/// The bytes of one rank when most are live. A buffer that does not live for
/// the whole run lives from the first operation of the rank's list that uses it
/// to the last.
struct MemoryPeak {
  Bytes bytes = 0;
  /// The most bytes in use at once, each buffer rounded up to what buffers are
  /// aligned to: no arena can be smaller.
  Bytes aligned = 0;
  MemoryByHeading byHeading{};
  uint32_t position = kNone; ///< in the rank's list; kNone if all is state
  /// The five largest, largest first; equal ones by kind, then stage.
  std::vector<MemoryContributor> contributors;
};

/// Linear in operands and buffers.
MemoryPeak findMemoryPeak(const RankPlan &rank);

/// So many bytes are in use from this time on, until the next point.
struct MemoryPoint {
  Ticks time;
  Bytes bytes;
};

/// Most points of a timeline.
inline constexpr size_t kMostMemoryPoints = 512;

/// The bytes in use on a rank over time, from 0 to `end`; the most is that of
/// findMemoryPeak. A buffer counts from when the first operation of the list
/// that uses it starts, or the latest before it in the list, until the same is
/// true of what follows the last. Where more than kMostMemoryPoints changes
/// are, the most in each of as many equal parts of the time. Linear.
std::vector<MemoryPoint> memoryTimeline(const RankPlan &rank,
                                        const std::vector<Ticks> &start,
                                        Ticks end);

/// The most in each of `parts` equal parts of the time from 0 to `end`.
std::vector<Bytes> mostPerPart(const std::vector<MemoryPoint> &points,
                               Ticks end, size_t parts);

struct RankReport {
  std::vector<Id> stages; ///< in order
  uint32_t layers = 0;
  std::optional<uint32_t> warmup;
  uint32_t forwardsBeforeBackward = 0;
  uint32_t peakInFlight = 0; ///< stage-microbatches
  /// The same weighted by what each holds for its backward, in microbatches of
  /// the whole rank (the mean of what one needs there); where no stage needs
  /// any, each counts alike.
  double peakActivation = 0;
  Ticks busy = 0;
  Ticks idle = 0;
  MemoryPeak memory;
  std::string peakOperation; ///< its name; empty if there is none
  /// By the plan's own times; empty where it has none.
  std::vector<MemoryPoint> memoryTimeline;
  Bytes arenaBytes = 0; ///< what the runtime allocates
  /// What the arena has more than is in use at once (MemoryPeak::aligned).
  Bytes fragmentation = 0;
  /// The most bytes of host memory in use at once, and what the runtime
  /// allocates of it; the most in use on the device if nothing were moved
  /// there.
  Bytes hostPeak = 0, hostArena = 0, unmovedPeak = 0;
};

/// An operation of the critical path.
struct PathStep {
  Id rank;
  Id stage;
  Id microbatch;
  Op op;
  Ticks start;
  Ticks end;
  std::optional<OpRef> with = {}; ///< what runs together with it
};

struct Report {
  std::string model;
  uint32_t layers = 0;
  uint64_t parameters = 0;
  uint64_t activeParameters = 0;
  std::vector<CostRow> costs; ///< of a transformer's layers, if they are known
  std::vector<SizeRow> sizes; ///< the same
  std::string schedule;
  uint32_t ranks = 0;
  uint32_t virtualStages = 0; ///< stages per rank, rounded up
  uint32_t stages = 0;
  uint32_t microbatches = 0;
  TimeUnit timeUnit = TimeUnit::Unit;
  Ticks makespan = 0;
  Ticks span = 0;
  std::optional<Ticks> planMakespan; ///< none without a plan, or if it hangs
  double bubbleFraction = 0;
  Objective objective = Objective::Makespan;
  Ticks lowerBound = 0;
  Bytes memoryLimit = 0; ///< 0: unlimited
  Bytes memoryAllowance = 0;
  bool hasMemory = false; ///< false without a plan: bytes are all 0
  std::vector<RankReport> perRank;
  std::vector<PathStep> criticalPath;
  std::vector<std::string> warnings;
  /// What is no fault, but must be known to read the numbers: sentences.
  std::vector<std::string> notes;

  /// Pairs of operations that run together, and what they take less than one
  /// after the other.
  uint32_t pairs = 0;
  Ticks pairsSaved = 0;

  std::vector<RecomputePolicy> recompute; ///< per stage
  Ticks recomputeTime = 0;                ///< of all ranks

  /// What bounds the throughput: the stage and the rank that compute most.
  Id slowestStage = kNone;
  Ticks slowestStageTime = 0; ///< all its operations, per microbatch
  uint32_t slowestStageFirstLayer = 0, slowestStageLayers = 0;
  Id slowestStageRank = kNone;
  Id busiestRank = kNone;
  Ticks meanBusy = 0; ///< of all ranks
  /// Each stage computes its weight gradients in the order of microbatches, on
  /// one rank, so sums are made in the same order in every such schedule.
  bool weightsInOrder = true;
};

struct ReportInput {
  std::string model;
  const Graph &graph;
  const Schedule &schedule;
  const ScheduleTiming &timing;
  const Network &network;
  const Plan *plan = nullptr; ///< none: no bytes and no plan_makespan
  Objective objective = Objective::Makespan;
  std::vector<std::string> warnings = {};
  std::vector<CostRow> costs = {}; ///< Model::costs
  std::vector<SizeRow> sizes = {}; ///< Model::sizes
};

std::string_view objectiveName(Objective objective);

/// Linear in the graph and the plan, but for sorting each rank's operations.
Report buildReport(const ReportInput &input);

} // namespace sluice

#endif // SLUICE_COMPILER_SIMULATE_REPORT_H
