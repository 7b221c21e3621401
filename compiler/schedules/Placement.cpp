#include "compiler/schedules/Placement.h"

#include <algorithm>
#include <numeric>

namespace sluice {

std::string_view placementName(PlacementKind kind) {
  switch (kind) {
  case PlacementKind::Linear:
    return "linear";
  case PlacementKind::Loop:
    return "loop";
  case PlacementKind::V:
    return "v";
  case PlacementKind::Bidirectional:
    return "bidirectional";
  }
  return "";
}

static Id placed(PlacementKind kind, Id stage, uint32_t ranks,
                 uint32_t stages) {
  switch (kind) {
  case PlacementKind::Linear:
    return static_cast<Id>(stage * uint64_t(ranks) / stages);
  case PlacementKind::Loop:
  case PlacementKind::Bidirectional:
    return stage % ranks;
  case PlacementKind::V: {
    bool back = stage / ranks % 2 == 1;
    return back ? ranks - 1 - stage % ranks : stage % ranks;
  }
  }
  return 0;
}

Placement::Placement(PlacementKind kind, uint32_t ranks, uint32_t stages,
                     uint32_t microbatches)
    : rankOfStage(stages), rankCount(ranks) {
  for (Id stage = 0; stage < stages; ++stage)
    rankOfStage[stage] = placed(kind, stage, ranks, stages);
  if (kind == PlacementKind::Bidirectional)
    secondFrom = (microbatches + 1) / 2;
  sortByRank();
}

Placement::Placement(std::vector<Id> ranksOfStages, uint32_t ranks)
    : rankOfStage(std::move(ranksOfStages)), rankCount(ranks) {
  sortByRank();
}

void Placement::sortByRank() {
  firstOfRank.assign(rankCount + 1, 0);
  for (Id rank : rankOfStage)
    ++firstOfRank[rank + 1];
  std::partial_sum(firstOfRank.begin(), firstOfRank.end(), firstOfRank.begin());
  std::vector<Id> next(firstOfRank.begin(), firstOfRank.end() - 1);
  stagesByRank.resize(rankOfStage.size());
  for (Id stage = 0; stage < stages(); ++stage)
    stagesByRank[next[rankOfStage[stage]]++] = stage;
}

std::vector<Placement::Holding>
Placement::holdingsOf(Id rank, uint32_t microbatches) const {
  std::vector<Holding> holdings;
  auto add = [&](Id of, Id first, Id end) {
    for (Id at = firstOfRank[of]; at < firstOfRank[of + 1]; ++at)
      holdings.push_back({stagesByRank[at], first, end});
  };
  Id cut = std::min(secondFrom, microbatches);
  add(rank, 0, cut);
  if (secondFrom == kNone)
    return holdings;
  add(rankCount - 1 - rank, cut, microbatches); // mirrored
  if (rank >= rankCount / 2)
    std::rotate(holdings.begin(), holdings.begin() + holdings.size() / 2,
                holdings.end());
  return holdings;
}

std::vector<Id> Placement::ranksInOrder() const {
  std::vector<Id> order;
  std::vector<bool> seen(rankCount);
  auto add = [&](Id rank) {
    if (!seen[rank])
      order.push_back(rank);
    seen[rank] = true;
  };
  for (Id rank : rankOfStage)
    add(rank);
  for (Id rank = 0; rank < rankCount; ++rank)
    add(rank);
  return order;
}

} // namespace sluice
