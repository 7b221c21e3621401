//===- tests/ir/Unfold.h - A plan of replicas as one without --------------===//
#ifndef SLUICE_TESTS_IR_UNFOLD_H
#define SLUICE_TESTS_IR_UNFOLD_H

#include "ir/Plan.h"

#include <map>
#include <utility>

namespace sluice::testing {

/// The plan that all replicas of `plan` are together: as many lists, channels
/// and collectives as there are ranks, and the microbatches of all. Every stage
/// then has a copy in each replica.
inline Plan unfold(const Plan &plan) {
  Plan whole = plan;
  whole.replicas = 1;
  whole.microbatches = plan.microbatches * plan.replicas;
  whole.warmup.clear();
  whole.ranks.clear();
  whole.channels.clear();
  whole.collectives.clear();
  auto ranks = static_cast<Id>(plan.ranks.size());
  auto channels = static_cast<Id>(plan.channels.size());
  auto collectives = static_cast<Id>(plan.collectives.size());
  std::map<std::pair<Id, Id>, Id> communicators; // of a replica's
  auto communicator = [&](Id replica, Id number) {
    return communicators
        .try_emplace({replica, number}, static_cast<Id>(communicators.size()))
        .first->second;
  };
  std::vector<Id> paths(collectives); ///< of the replica at hand
  for (Id replica = 0; replica < plan.replicas; ++replica) {
    for (Channel channel : plan.channels) {
      channel.communicator = communicator(replica, channel.communicator);
      channel.source += replica * ranks;
      channel.destination += replica * ranks;
      whole.channels.push_back(channel);
    }
    for (Id c = 0; c < collectives; ++c) {
      Collective of = plan.collectives[c];
      if (of.overReplicas && replica != 0)
        continue; // all are in that of the first
      of.communicator = communicator(replica, of.communicator);
      of.ranks.clear();
      for (Id r = 0; r < plan.replicas; ++r)
        for (Id rank : plan.collectives[c].ranks)
          if (of.overReplicas || r == replica)
            of.ranks.push_back(r * ranks + rank);
      of.overReplicas = false;
      paths[c] = static_cast<Id>(whole.collectives.size());
      whole.collectives.push_back(of);
    }
    for (RankPlan list : plan.ranks) {
      for (PlanOp &op : list.ops) {
        if (op.microbatch != kNone)
          op.microbatch += replica * plan.microbatches;
        if (isMessage(op.op))
          op.channel += replica * channels;
        else if (isCollective(op.op))
          op.channel = paths[op.channel];
      }
      whole.ranks.push_back(list);
    }
  }
  return whole;
}

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_UNFOLD_H
