//===- compiler/schedules/Schedules.h - What a schedule is ---------------===//
//
// A schedule is data: a placement, warmup counts and a rule of order. The rule
// is a program for each rank: phases of steps, each step "the next forward",
// "the next backward"; which operation is next is told by the rank's sequence
// of that kind. One list scheduler (ListScheduler.h) makes an order of it.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_SCHEDULES_SCHEDULES_H
#define SLUICE_COMPILER_SCHEDULES_SCHEDULES_H

#include "ir/Graph.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <string_view>
#include <vector>

namespace sluice {

/// stage -> rank.
enum class PlacementKind : uint8_t { Linear };
std::string_view placementName(PlacementKind kind);

/// What a rule of order may look at.
struct ScheduleProblem {
  uint32_t ranks;
  uint32_t microbatches;
};

/// "Run the next operation of this kind." On a graph with a split backward,
/// Backward means the next BackwardInput and its BackwardWeight.
using Step = Op;

/// Steps that are repeated a number of times.
struct Phase {
  uint32_t repeat;
  llvm::SmallVector<Step, 4> steps;
};

using RankProgram = llvm::SmallVector<Phase, 4>;

/// One row of Schedules.def.
struct ScheduleInfo {
  std::string_view text;
  PlacementKind placement;
  /// The standard count of a rank; null where the rule has none.
  uint32_t (*warmup)(const ScheduleProblem &problem, Id rank);
  bool adjustableWarmup; ///< whether a spec may give other counts
  RankProgram (*program)(const ScheduleProblem &problem, Id rank,
                         uint32_t warmup);
};

llvm::ArrayRef<ScheduleInfo> allSchedules();

/// The row of this name; null if there is none.
const ScheduleInfo *findSchedule(std::string_view text);

/// The one-forward-one-backward program that most schedules share: `warmup`
/// forwards, then pairs while there are forwards left, then the other
/// backwards. 0 <= warmup <= microbatches.
RankProgram pairedProgram(uint32_t microbatches, uint32_t warmup);

namespace schedules {
#define SLUICE_SCHEDULE(Name, ...)                                             \
  RankProgram Name(const ScheduleProblem &problem, Id rank, uint32_t warmup);
#include "compiler/schedules/Schedules.def"

/// For schedules whose rule has no count.
inline constexpr uint32_t (*none)(const ScheduleProblem &, Id) = nullptr;
uint32_t gPipeWarmup(const ScheduleProblem &problem, Id rank);
uint32_t oneFOneBWarmup(const ScheduleProblem &problem, Id rank);
} // namespace schedules

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_SCHEDULES_H
