//===- compiler/schedules/Schedules.h - What a schedule is ---------------===//
//
// A schedule is data: a placement, warmup counts and a rule of order. The rule
// is a program for each rank: phases of steps, each step "the next forward of
// this lane", "the next backward"; a lane says in which order its operations
// come. One list scheduler (Orders.h) makes an order of it.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_SCHEDULES_SCHEDULES_H
#define SLUICE_COMPILER_SCHEDULES_SCHEDULES_H

#include "compiler/schedules/Placement.h"
#include "ir/Words.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

/// What a rule of order may look at. Ranks are counted along the pipeline:
/// rank 0 is the one that the first microbatch reaches first.
struct ScheduleProblem {
  uint32_t ranks = 1;
  uint32_t chunks = 1; ///< stages per rank
  uint32_t microbatches = 1;
  uint32_t groupSize = 1; ///< microbatches that a chunk runs before the next
};

/// How the operations of a rank are divided into lanes, and their order in one.
enum class Lanes : uint8_t {
  /// One: chunk after chunk, each all microbatches (backwards from the last
  /// chunk to the first).
  Whole,
  /// One: group after group of microbatches, each as in Whole.
  Groups,
  /// One for each chunk, by microbatch.
  Chunks,
  /// One for each copy, by microbatch; lane 0 is that of the copy whose
  /// pipeline starts nearer.
  Copies,
};

/// What becomes of a backward.
enum class BackwardRule : uint8_t {
  Either, ///< whole, or split if the spec says so: a W right behind its I
  Split,  ///< the rule moves W on its own
  Mixed,  ///< the rule says of each
  None,   ///< there is none
};

/// The lane of a W that may be of any: the I that has waited longest.
inline constexpr uint32_t kOldestLane = ~0u;

/// "Run the next operation of this kind." Backward is the next backward; it is
/// an I and a W where backwards are split. BackwardWeight is the W of the
/// oldest I of its lane that has none yet. A step does nothing where none is
/// left.
struct Step {
  Op op;
  uint32_t lane = 0;
  bool joined = false; ///< runs together with the next step
};

/// Steps that are repeated a number of times.
struct Phase {
  uint32_t repeat;
  llvm::SmallVector<Step, 4> steps;
};

using RankProgram = std::vector<Phase>;

/// Where a rule that is broken points to in a spec.
enum class RuleKey : uint8_t { Ranks, VirtualStages, Microbatches, GroupSize };

/// Takes what a schedule refuses (`isError`) or what it costs, and a note of
/// what would be accepted (may be empty).
using RuleSink = llvm::function_ref<void(
    bool isError, RuleKey key, std::string message, std::string note)>;

/// One row of Schedules.def.
struct ScheduleInfo {
  std::string_view text;
  PlacementKind placement;
  Lanes lanes;
  BackwardRule backward;
  uint32_t chunks; ///< stages per rank; 0: any number
  /// Where a spec does not say: what it needs; of any number two, the fewest
  /// for which it is not a schedule of one.
  uint32_t usualChunks() const { return chunks != 0 ? chunks : 2; }
  /// Whether a spec may place its stages one by one: there is one lane then,
  /// and so no chunk or copy that must lie anywhere.
  bool takesList() const {
    return lanes == Lanes::Whole || lanes == Lanes::Groups;
  }
  /// The standard count of a rank; null where the rule has none.
  uint32_t (*warmup)(const ScheduleProblem &problem, Id rank);
  bool adjustableWarmup; ///< whether a spec may give other counts
  void (*check)(const ScheduleProblem &problem, RuleSink sink);
  /// One program per rank. `warmup` has a count per rank where the rule has.
  std::vector<RankProgram> (*programs)(const ScheduleProblem &problem,
                                       llvm::ArrayRef<uint32_t> warmup);
};

llvm::ArrayRef<ScheduleInfo> allSchedules();

/// The row of this name; null if there is none.
const ScheduleInfo *findSchedule(std::string_view text);

/// A program for each rank.
std::vector<RankProgram>
eachRank(const ScheduleProblem &problem,
         llvm::function_ref<RankProgram(Id rank)> program);

/// The one-forward-one-backward program that most schedules share: `warmup`
/// forwards, then pairs while there are forwards left, then the other
/// backwards. 0 <= warmup <= forwards.
RankProgram pairedProgram(uint32_t forwards, uint32_t warmup);

/// The steps in the order of their slots, no two of which are the same.
RankProgram programInSlots(std::vector<std::pair<uint64_t, Step>> slots);

namespace schedules {
#define SLUICE_SCHEDULE(Program, ...)                                          \
  std::vector<RankProgram> Program(const ScheduleProblem &problem,             \
                                   llvm::ArrayRef<uint32_t> warmup);
#include "compiler/schedules/Schedules.def"

/// For schedules whose rule has no count.
inline constexpr uint32_t (*none)(const ScheduleProblem &, Id) = nullptr;
uint32_t gPipeWarmup(const ScheduleProblem &problem, Id rank);
uint32_t oneFOneBWarmup(const ScheduleProblem &problem, Id rank);
uint32_t eagerWarmup(const ScheduleProblem &problem, Id rank);
uint32_t interleavedWarmup(const ScheduleProblem &problem, Id rank);
uint32_t breadthFirstWarmup(const ScheduleProblem &problem, Id rank);

/// For schedules that are good for any numbers.
inline void anything(const ScheduleProblem &, RuleSink) {}
void interleavedRules(const ScheduleProblem &problem, RuleSink sink);
void dualPipeRules(const ScheduleProblem &problem, RuleSink sink);
void dualPipeVRules(const ScheduleProblem &problem, RuleSink sink);
void chimeraRules(const ScheduleProblem &problem, RuleSink sink);
void hanayoRules(const ScheduleProblem &problem, RuleSink sink);

/// The rule of schedules whose second copy lies mirrored.
void evenRanks(std::string_view schedule, const ScheduleProblem &problem,
               RuleSink sink);
/// Tells the cost of a last group of `rest` microbatches, fewer than ranks.
void shortGroup(const ScheduleProblem &problem, std::string_view group,
                uint32_t rest, std::string_view cost, RuleSink sink);
} // namespace schedules

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_SCHEDULES_H
