//===- compiler/passes/WarmupRules.cpp - Counts by derivation -------------===//
//
// Rank r runs F(w_r + k), B(k), F(w_r + k + 1), …. The forward goes on to rank
// j, whose order puts B(w_r + k + 1 - w_j) behind it, and the gradient comes
// back: while the round trip
//
//   L(r, j) = Σ_{r<=i<=j} (F_i + B_i) + Σ_{r<=i<j} both messages of hop i
//
// lasts, rank r gets on by 1 + w_r - w_j microbatches. It keeps a period T if
//
//   w_r - w_j >= ceil(L(r, j) / T) - 1     for all r < j.
//
// With equal stages and free messages and T = F + B that is 1F1B's j - r. With
// several chunks a rank F and B are those of one chunk, and the last rank needs
// all groups but the last of a microbatch before its first backward.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/WarmupRules.h"

#include <algorithm>

namespace sluice {

WarmupRules::WarmupRules(const Compilation &c, uint32_t lowestCount,
                         uint32_t mostCount)
    : lowest(lowestCount), most(mostCount) {
  const ScheduleChoice &choice = *c.choice;
  const std::vector<Stage> &stages = c.stages->stages;
  std::vector<Id> order = choice.placement.ranksInOrder();
  auto ranks = static_cast<Id>(order.size());
  if (stages.size() % ranks != 0)
    return;
  for (Id stage = 0; stage < stages.size(); ++stage)
    if (choice.placement.rankOf(stage, 0) != order[stage % ranks])
      return;
  auto chunks = static_cast<Ticks>(stages.size() / ranks);
  bool split = choice.info->backward == BackwardRule::Split;
  Network network = c.network();
  times.resize(ranks);
  for (Id stage = 0; stage < stages.size(); ++stage) {
    const Stage &here = stages[stage];
    RankTimes &sum = times[stage % ranks];
    sum.work = later(sum.work, later(here.forward, here.backwardInput));
    Ticks &weights = split ? sum.behind : sum.work;
    weights = later(weights, here.backwardWeight);
  }
  for (const StageEdge &edge : c.stages->edges) {
    Id from = edge.from % ranks, to = edge.to % ranks;
    if (edge.to != edge.from + 1 || to == 0)
      continue;
    for (Link link : {network.between(order[from], order[to]),
                      network.between(order[to], order[from])})
      times[from].hop =
          later(times[from].hop,
                later(link.latency,
                      link.occupancy(edge.bytes, c.spec->model.timeUnit)));
  }
  before.push_back(0);
  for (RankTimes &mean : times) {
    mean = {mean.work / chunks, mean.behind / chunks, mean.hop / chunks};
    fastest = std::max(fastest, mean.work + mean.behind);
    before.push_back(later(before.back(), later(mean.work, mean.hop)));
  }
}

Ticks WarmupRules::roundTrip(Id from, Id to) const {
  return later(before[to] - before[from],
               later(times[to].work, times[from].behind));
}

Ticks WarmupRules::longestPeriod() const {
  return roundTrip(0, static_cast<Id>(times.size() - 1));
}

/// How many more `from` must have than `to`.
uint32_t WarmupRules::ahead(Id from, Id to, Ticks period) const {
  Ticks periods = std::max<Ticks>(1, (roundTrip(from, to) - 1) / period + 1);
  return static_cast<uint32_t>(std::min<Ticks>(most, periods - 1));
}

Counts WarmupRules::forPeriod(Ticks period) const {
  auto ranks = static_cast<Id>(times.size());
  Counts counts(ranks, lowest);
  for (Id from = ranks - 1; from-- > 0;)
    for (Id to = from + 1; to < ranks && counts[from] < most; ++to)
      counts[from] = std::max(
          counts[from], std::min(most, counts[to] + ahead(from, to, period)));
  return counts;
}

Counts WarmupRules::forTrips(Ticks period) const {
  auto last = static_cast<Id>(times.size() - 1);
  Counts counts;
  for (Id from = 0; from <= last; ++from)
    counts.push_back(std::min(most, lowest + ahead(from, last, period)));
  return counts;
}

} // namespace sluice
