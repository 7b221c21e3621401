// What all ranks of a plan have in common.
#include "ir/PlanFile.h"
#include "ir/PlanStructure.h"
#include "ir/Words.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace sluice {

using Part = StructureFault::Part;

static bool isTime(Ticks ticks) { return ticks >= 0 && ticks <= kMaxTicks; }

static std::string stageFault(const Plan &plan, Id index) {
  const Stage &stage = plan.stages[index];
  for (Ticks ticks : {stage.forward, stage.backwardInput, stage.backwardWeight,
                      stage.recompute, stage.overlapSaving})
    if (!isTime(ticks))
      return "has a time of " + std::to_string(ticks) +
             " ticks, not between 0 and " + std::to_string(kMaxTicks);
  const StageBytes &bytes = stage.bytes;
  for (Bytes size :
       {bytes.parameters, bytes.gradients, bytes.optimizer, bytes.activation,
        bytes.keptForWeight, bytes.checkpoint, bytes.workspace, bytes.norms})
    if (size > kMaxBytes)
      return "has a size of " + number(size) + " bytes, over " +
             number(kMaxBytes);
  if (stage.firstLayer > kMaxCount || stage.layers > kMaxCount)
    return "has layers " + number(stage.firstLayer) + "+" +
           number(stage.layers) + ", over " + number(kMaxCount);
  if (std::string fault = recomputeFault(stage); !fault.empty())
    return fault;
  if (std::string fault = partsFault(stage); !fault.empty())
    return fault;
  return tieFault(plan.stages, index);
}

static std::string edgeFault(const Plan &plan, uint32_t index) {
  const StageEdge &edge = plan.edges[index];
  for (Id stage : {edge.from, edge.to})
    if (stage >= plan.stages.size())
      return tooHigh("names stage", stage, plan.stages.size());
  if (edge.from == edge.to)
    return "leads from stage " + number(edge.from) + " to itself";
  if (edge.bytes > kMaxBytes)
    return "has a size of " + number(edge.bytes) + " bytes, over " +
           number(kMaxBytes);
  if (index != 0) {
    const StageEdge &before = plan.edges[index - 1];
    if (std::tie(before.from, before.to) >= std::tie(edge.from, edge.to))
      return "stands after the edge " + number(before.from) + " -> " +
             number(before.to) + ", but edges are sorted, each given once";
  }
  return {};
}

/// Of a channel or a collective.
static std::string pathFault(const Plan &plan, Id communicator, Ticks latency) {
  size_t paths = plan.channels.size() + plan.collectives.size();
  if (communicator >= paths)
    return tooHigh("has communicator", communicator, paths) +
           (plan.collectives.empty() ? " channels"
                                     : " channels and collectives");
  if (!isTime(latency))
    return "has a latency of " + std::to_string(latency) +
           " ticks, not between 0 and " + std::to_string(kMaxTicks);
  return {};
}

static std::string channelFault(const Plan &plan, const Channel &channel) {
  for (Id rank : {channel.source, channel.destination})
    if (rank >= plan.ranks.size())
      return tooHigh("names rank", rank, plan.ranks.size());
  if (channel.source == channel.destination)
    return "leads from rank " + number(channel.source) + " to itself";
  return pathFault(plan, channel.communicator, channel.latency);
}

static std::string collectiveFault(const Plan &plan, const Collective &of) {
  if (of.ranks.empty())
    return "has no ranks";
  for (Id rank : of.ranks)
    if (rank >= plan.ranks.size())
      return tooHigh("names rank", rank, plan.ranks.size());
  for (size_t i = 1; i < of.ranks.size(); ++i)
    if (of.ranks[i - 1] >= of.ranks[i])
      return "names rank " + number(of.ranks[i]) + " after rank " +
             number(of.ranks[i - 1]) +
             ", but ranks stand in ascending order, each once";
  if (of.overReplicas && plan.replicas == 1)
    return "is over replicas, but the plan has one";
  return pathFault(plan, of.communicator, of.latency);
}

/// Two channels for one communicator and pair of ranks would be one path with
/// two orders.
static bool findTwinChannels(const Plan &plan, const FaultSink &sink) {
  std::vector<std::tuple<Id, Id, Id, Id>> paths;
  for (Id i = 0; i < plan.channels.size(); ++i) {
    const Channel &channel = plan.channels[i];
    paths.emplace_back(channel.communicator, channel.source,
                       channel.destination, i);
  }
  std::sort(paths.begin(), paths.end());
  for (size_t i = 1; i < paths.size(); ++i) {
    auto [communicator, source, destination, index] = paths[i];
    auto [communicator0, source0, destination0, first] = paths[i - 1];
    if (std::tie(communicator, source, destination) ==
            std::tie(communicator0, source0, destination0) &&
        !sink({Part::Channel, index,
               "is the same path as channel " + number(first)}))
      return false;
  }
  return true;
}

/// A communicator has one set of ranks: that of its collective, if it has one.
static bool findTwinCollectives(const Plan &plan, const FaultSink &sink) {
  std::vector<Id> collectiveOf; // per communicator
  collectiveOf.assign(plan.channels.size() + plan.collectives.size(), kNone);
  for (Id i = 0; i < plan.collectives.size(); ++i) {
    Id &first = collectiveOf[plan.collectives[i].communicator];
    if (first == kNone)
      first = i;
    else if (!sink({Part::Collective, i,
                    "has the communicator of collective " + number(first)}))
      return false;
  }
  for (Id i = 0; i < plan.channels.size(); ++i) {
    const Channel &channel = plan.channels[i];
    Id collective = collectiveOf[channel.communicator];
    if (collective == kNone)
      continue;
    const std::vector<Id> &ranks = plan.collectives[collective].ranks;
    for (Id rank : {channel.source, channel.destination})
      if (!std::binary_search(ranks.begin(), ranks.end(), rank) &&
          !sink({Part::Channel, i,
                 "names rank " + number(rank) +
                     ", which is not one of its communicator's, those of "
                     "collective " +
                     number(collective)}))
        return false;
  }
  return true;
}

static std::string planFault(const Plan &plan) {
  if (plan.timeUnit != TimeUnit::Unit && plan.timeUnit != TimeUnit::Seconds)
    return "has an unknown time unit " +
           number(static_cast<unsigned>(plan.timeUnit));
  if (plan.ranks.empty())
    return "has no ranks";
  if (plan.stages.empty())
    return "has no stages";
  if (plan.ranks.size() > kMaxCount)
    return "has " + number(plan.ranks.size()) + " ranks, over " +
           number(kMaxCount);
  if (plan.stages.size() > kMaxCount)
    return "has " + number(plan.stages.size()) + " stages, over " +
           number(kMaxCount);
  if (plan.microbatches > kMaxCount)
    return "has " + number(plan.microbatches) + " microbatches, over " +
           number(kMaxCount);
  if (plan.replicas == 0 || plan.replicas > kMaxCount)
    return "has " + number(plan.replicas) + " replicas, not between 1 and " +
           number(kMaxCount);
  if (!plan.warmup.empty() && plan.warmup.size() != plan.ranks.size())
    return "has " + number(plan.warmup.size()) + " warmup counts for " +
           number(plan.ranks.size()) + " ranks";
  if (plan.memoryAllowance > kMaxBytes)
    return "has a memory allowance of " + number(plan.memoryAllowance) +
           " bytes, over " + number(kMaxBytes);
  if (!isTime(plan.hostLink.latency))
    return "has a host link with a latency of " +
           std::to_string(plan.hostLink.latency) +
           " ticks, not between 0 and " + std::to_string(kMaxTicks);
  for (size_t i = 1; i < plan.run.size(); ++i)
    if (plan.run[i - 1].first >= plan.run[i].first)
      return "has a run section that is not sorted, each key once";
  return {};
}

void findHeaderFaults(const Plan &plan, const FaultSink &sink) {
  auto tell = [&](Part part, uint32_t index, std::string message) {
    return message.empty() || sink({part, index, std::move(message)});
  };
  if (!tell(Part::Plan, 0, planFault(plan)))
    return;
  for (uint32_t i = 0; i < plan.stages.size(); ++i)
    if (!tell(Part::Stage, i, stageFault(plan, i)))
      return;
  for (uint32_t i = 0; i < plan.edges.size(); ++i)
    if (!tell(Part::Edge, i, edgeFault(plan, i)))
      return;
  bool paths = true; // all in range
  auto tellPath = [&](Part part, uint32_t index, std::string message) {
    paths &= message.empty();
    return tell(part, index, std::move(message));
  };
  for (uint32_t i = 0; i < plan.channels.size(); ++i)
    if (!tellPath(Part::Channel, i, channelFault(plan, plan.channels[i])))
      return;
  for (uint32_t i = 0; i < plan.collectives.size(); ++i)
    if (!tellPath(Part::Collective, i,
                  collectiveFault(plan, plan.collectives[i])))
      return;
  if (findTwinChannels(plan, sink) && paths)
    findTwinCollectives(plan, sink);
}

} // namespace sluice
