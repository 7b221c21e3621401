//===- compiler/passes/Simulate.cpp - The pass `simulate` -----------------===//
//
// Needs a graph and a schedule without cycles; gives its timing under the
// cluster's cost model. Fails on a makespan beyond what a time can hold.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Parallel.h"
#include "compiler/passes/PassManager.h"

namespace sluice {

Network Compilation::network() const {
  if (spec) {
    const ClusterSpec &cluster = spec->cluster;
    Link link{cluster.link.latency, cluster.link.bandwidth};
    Link across = link;
    if (cluster.nodeLink)
      across = {cluster.nodeLink->latency, cluster.nodeLink->bandwidth};
    Network network(link, across, ranksPerNode(*spec));
    if (const std::optional<LinkSpec> &host = *cluster.hostLink)
      network.host = {host->latency, host->bandwidth};
    return network;
  }
  if (plan)
    return Network(*plan);
  return Network();
}

/// An upper bound of every time in a simulation: all operations and messages
/// one after the other.
static bool fits(const Graph &graph, const Network &network, uint32_t ranks) {
  constexpr auto kLimit = static_cast<unsigned __int128>(kMaxTicks);
  unsigned __int128 total = 0;
  for (const Node &node : graph.nodes)
    total += node.duration;
  Link slowest;
  for (Id rank = 0; rank + 1 < ranks; ++rank) {
    Link link = network.between(rank, rank + 1);
    slowest.latency = std::max(slowest.latency, link.latency);
    if (link.bandwidth != 0 &&
        (slowest.bandwidth == 0 || link.bandwidth < slowest.bandwidth))
      slowest.bandwidth = link.bandwidth;
  }
  for (const Value &value : graph.values)
    total += slowest.occupancy(value.bytes, graph.timeUnit) + slowest.latency;
  return total <= kLimit;
}

bool passes::SimulateOps(Compilation &c) {
  Network network = c.network();
  if (!fits(*c.graph, network, c.schedule->ranks())) {
    c.diagnostics.error(c.spec ? c.spec->pipeline.microbatches.where
                               : SourceLocation{},
                        "the times of all operations add up to more than " +
                            formatTime(kMaxTicks, c.graph->timeUnit));
    return false;
  }
  c.timing = simulateSchedule(*c.graph, *c.schedule, network);
  if (!c.timing)
    c.diagnostics.error({}, "the orders of the ranks contradict the "
                            "dependences (verify-schedule tells where)");
  return c.timing.has_value();
}

} // namespace sluice
