//===- compiler/schedules/UnitTime.h - Orders found slot by slot ----------===//
//
// For rules that are stated in slots of equal length rather than as phases: a
// chain of stages runs in slots, F, I and W of one each, and in each slot every
// rank takes what the rule prefers of that which is ready.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_SCHEDULES_UNITTIME_H
#define SLUICE_COMPILER_SCHEDULES_UNITTIME_H

#include "compiler/schedules/Schedules.h"

#include <array>

namespace sluice {

/// A rank's part of a pattern.
struct PatternSlots {
  /// Of the first microbatch: F of chunk 0, F of chunk 1, I of chunk 1, I of
  /// chunk 0.
  std::array<uint32_t, 4> first;
  uint32_t filled; ///< until here the pipeline fills
};

/// Two chunks in a V, backward split. The k-th microbatch has its operations
/// 6k slots later; a rank keeps to the order of slots, but for the time in
/// which the pipeline fills or drains, when whatever is ready goes first that
/// leaves enough room. W fills the slots in which a rank would wait, or makes
/// room: at most `inFlight` stage-microbatches are in flight on a rank.
/// O(p·m).
std::vector<RankProgram>
repeatedPattern(const ScheduleProblem &problem, uint32_t inFlight,
                llvm::function_ref<PatternSlots(Id rank)> slots);

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_UNITTIME_H
