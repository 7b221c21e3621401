#include "compiler/model/Network.h"

#include <algorithm>

namespace sluice {

Ticks Link::occupancy(Bytes bytes, TimeUnit unit) const {
  if (bandwidth == 0)
    return 0;
  unsigned __int128 product = bytes;
  product *= static_cast<uint64_t>(ticksPer(unit));
  product = (product + bandwidth - 1) / bandwidth;
  return static_cast<Ticks>(
      std::min<unsigned __int128>(product, static_cast<uint64_t>(kMaxTicks)));
}

Network::Network(const Plan &plan) {
  for (const Channel &channel : plan.channels)
    explicitLinks[{channel.source, channel.destination}] = {channel.latency,
                                                            channel.bandwidth};
  for (const Collective &of : plan.collectives)
    if (of.overReplicas)
      replicas = {of.latency, of.bandwidth};
}

Link Network::between(Id from, Id to) const {
  if (!explicitLinks.empty()) {
    auto found = explicitLinks.find({from, to});
    return found == explicitLinks.end() ? Link() : found->second;
  }
  bool together = ranksPerNode == 0 || from / ranksPerNode == to / ranksPerNode;
  return together ? sameNode : betweenNodes;
}

} // namespace sluice
