//===- runtime/Replicas.h - The ranks of all replicas of a plan ----------===//
//
// A plan of d replicas and p ranks is run by d * p ranks, numbered replica by
// replica: rank r of replica i has the number i * p + r. Backends know them by
// these numbers only.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_REPLICAS_H
#define SLUICE_RUNTIME_REPLICAS_H

#include "ir/Plan.h"

#include <string>
#include <vector>

namespace sluice::runtime {

/// A rank of one of a plan's replicas.
struct GlobalRank {
  Id replica = 0;
  Id rank = 0;
};

/// Ranks of all replicas that a job may have.
inline constexpr uint64_t kMaxGlobalRanks = uint64_t(1) << 16;

inline uint64_t globalRanks(const Plan &plan) {
  return uint64_t(plan.replicas) * plan.ranks.size();
}

inline GlobalRank globalRank(const Plan &plan, Id number) {
  const auto ranks = static_cast<Id>(plan.ranks.size());
  return {number / ranks, number % ranks};
}

/// "rank 2", with several replicas "rank 2 of replica 1".
std::string nameOfRank(const Plan &plan, Id number);

/// What joins the ranks of all replicas, by their numbers.
struct Paths {
  std::vector<Channel> channels;
  std::vector<Collective> collectives;
};
Paths pathsOf(const Plan &plan);

/// Number of a replica's channel among all.
inline Id channelOf(const Plan &plan, Id replica, Id channel) {
  return replica * static_cast<Id>(plan.channels.size()) + channel;
}

/// Number among all of each of the plan's collectives, as a replica takes part
/// in it.
std::vector<Id> collectivesOf(const Plan &plan, Id replica);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_REPLICAS_H
