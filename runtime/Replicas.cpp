//===- runtime/Replicas.cpp ----------------------------------------------===//
#include "runtime/Replicas.h"

namespace sluice::runtime {

std::string nameOfRank(const Plan &plan, Id number) {
  const GlobalRank self = globalRank(plan, number);
  std::string name = "rank " + std::to_string(self.rank);
  if (plan.replicas > 1)
    name += " of replica " + std::to_string(self.replica);
  return name;
}

/// The members of `of` in `replicas` replicas from `first` on.
static std::vector<Id> membersIn(const Plan &plan, const Collective &of,
                                 Id first, Id replicas) {
  std::vector<Id> members;
  for (Id replica = first; replica < first + replicas; ++replica)
    for (const Id rank : of.ranks)
      members.push_back(replica * static_cast<Id>(plan.ranks.size()) + rank);
  return members;
}

Paths pathsOf(const Plan &plan) {
  Paths paths;
  const auto ranks = static_cast<Id>(plan.ranks.size());
  for (Id replica = 0; replica < plan.replicas; ++replica)
    for (Channel channel : plan.channels) {
      channel.source += replica * ranks;
      channel.destination += replica * ranks;
      paths.channels.push_back(channel);
    }
  for (const Collective &of : plan.collectives) {
    const Id each = of.overReplicas ? plan.replicas : 1;
    for (Id replica = 0; replica < plan.replicas; replica += each) {
      paths.collectives.push_back(of);
      paths.collectives.back().ranks = membersIn(plan, of, replica, each);
    }
  }
  return paths;
}

std::vector<Id> collectivesOf(const Plan &plan, Id replica) {
  std::vector<Id> numbers;
  Id next = 0;
  for (const Collective &of : plan.collectives) {
    numbers.push_back(next + (of.overReplicas ? 0 : replica));
    next += of.overReplicas ? 1 : plan.replicas;
  }
  return numbers;
}

} // namespace sluice::runtime
