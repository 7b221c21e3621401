//===- compiler/schedules/Placement.h - Stages and copies to ranks --------===//
#ifndef SLUICE_COMPILER_SCHEDULES_PLACEMENT_H
#define SLUICE_COMPILER_SCHEDULES_PLACEMENT_H

#include "ir/Ops.h"

#include <string_view>
#include <vector>

namespace sluice {

/// The rules that have a name. V turns at both ends, for any number
/// of stages per rank: with four it is Hanayo's wave.
enum class PlacementKind : uint8_t { Linear, Loop, V, Bidirectional };
inline constexpr PlacementKind kPlacementKinds[] = {
    PlacementKind::Linear, PlacementKind::Loop, PlacementKind::V,
    PlacementKind::Bidirectional};
std::string_view placementName(PlacementKind kind);

/// Which rank computes a stage for a microbatch. With two copies of the stages
/// the second lies mirrored, and the later half of the microbatches takes it.
class Placement {
public:
  Placement() = default;
  Placement(PlacementKind kind, uint32_t ranks, uint32_t stages,
            uint32_t microbatches);
  /// The rank of each stage, one copy.
  Placement(std::vector<Id> ranksOfStages, uint32_t ranks);

  uint32_t ranks() const { return rankCount; }
  uint32_t stages() const { return static_cast<uint32_t>(rankOfStage.size()); }
  uint32_t copies() const { return secondFrom == kNone ? 1 : 2; }

  Id rankOf(Id stage, Id microbatch) const {
    return microbatch < secondFrom ? rankOfStage[stage] : mirrored(stage);
  }

  /// A stage that a rank holds, and the microbatches that it computes for it:
  /// from `first` up to `end`.
  struct Holding {
    Id stage;
    Id firstMicrobatch, endMicrobatch;
  };
  /// What `rank` holds: its stages in order, or, with two copies, the one that
  /// is nearer to its own end of the pipeline first. Linear in these.
  std::vector<Holding> holdingsOf(Id rank, uint32_t microbatches) const;

  /// The ranks in the order in which the first microbatch reaches them.
  std::vector<Id> ranksInOrder() const;

private:
  void sortByRank();
  Id mirrored(Id stage) const { return rankCount - 1 - rankOfStage[stage]; }

  std::vector<Id> rankOfStage; ///< of the first copy
  uint32_t rankCount = 0;
  std::vector<Id> stagesByRank; ///< rank after rank, each in order
  std::vector<Id> firstOfRank;  ///< ranks + 1 positions in these
  Id secondFrom = kNone;        ///< the second copy's first microbatch
};

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_PLACEMENT_H
