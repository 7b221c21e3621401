//===- compiler/model/Network.h - What a message between two ranks costs -===//
#ifndef SLUICE_COMPILER_MODEL_NETWORK_H
#define SLUICE_COMPILER_MODEL_NETWORK_H

#include "ir/Plan.h"
#include "ir/Units.h"

#include <map>
#include <utility>

namespace sluice {

/// Cost of a link: a message arrives latency + bytes / bandwidth after it
/// starts; the link is occupied for bytes / bandwidth only.
struct Link {
  Ticks latency = 0;
  Bytes bandwidth = 0; ///< bytes per second (per unit of time); 0: size is free

  /// Time for which a message of `bytes` occupies the link, rounded up.
  Ticks occupancy(Bytes bytes, TimeUnit unit) const;
};

/// The links between ranks and replicas: either by the cluster of a spec, or as
/// a plan's channels and collectives say.
class Network {
public:
  Network() = default;
  /// Ranks r and s share a node if r / nodeRanks == s / nodeRanks; nodeRanks 0:
  /// all on one node.
  Network(Link within, Link across, uint32_t nodeRanks)
      : sameNode(within), betweenNodes(across),
        replicas(nodeRanks == 0 ? within : across), ranksPerNode(nodeRanks) {}
  explicit Network(const Plan &plan);

  Link between(Id from, Id to) const;
  /// Between the same rank of two replicas: on different nodes, if there are
  /// any.
  Link betweenReplicas() const { return replicas; }

  Link host; ///< between a device and its host, each way

private:
  Link sameNode, betweenNodes, replicas;
  uint32_t ranksPerNode = 0;
  std::map<std::pair<Id, Id>, Link> explicitLinks;
};

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_NETWORK_H
