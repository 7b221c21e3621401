//===- compiler/simulate/Simulate.h - When everything happens ------------===//
#ifndef SLUICE_COMPILER_SIMULATE_SIMULATE_H
#define SLUICE_COMPILER_SIMULATE_SIMULATE_H

#include "compiler/model/Network.h"
#include "ir/Graph.h"
#include "ir/Plan.h"
#include "ir/Schedule.h"
#include "ir/Timeline.h"

#include <optional>
#include <vector>

namespace sluice {

/// A value on its way from one rank to another.
struct Message {
  Id value;
  Id source;      ///< rank
  Id destination; ///< rank
  Ticks start;    ///< the link begins to carry it
  Ticks end;      ///< it is there
};

/// A schedule under the spec's cost model: every operation as early as its
/// rank's order and its inputs allow.
struct ScheduleTiming {
  std::vector<Ticks> start; ///< per node
  std::vector<Ticks> end;
  std::vector<Id> rankOf;        ///< per node
  std::vector<Message> messages; ///< in an order in which they can happen
  /// All nodes in an order in which they can happen: dependences and the
  /// orders of the ranks go forward in it, and so do start times.
  std::vector<Id> topological;
  Ticks makespan = 0;
  Ticks span = 0; ///< longest single rank from its first start to its last end
};

/// Simulates `schedule`; none if its orders contradict the dependences (which
/// verify::verifySchedule explains). A message takes latency +
/// bytes/bandwidth; a link carries one at a time, in the order in which its
/// source computed them. Linear in nodes and values, plus one sort.
std::optional<ScheduleTiming> simulateSchedule(const Graph &graph,
                                               const Schedule &schedule,
                                               const Network &network);

/// Nodes from the start of the step to its end, each waiting for the one
/// before (as an input, or on the same rank), with no idle time but message
/// time between them.
std::vector<Id> criticalPath(const Graph &graph, const Schedule &schedule,
                             const ScheduleTiming &timing);

/// A plan with its own streams, events, order of communication and rendezvous:
/// per rank and op, start and end.
struct PlanTiming {
  std::vector<std::vector<Ticks>> start, end;
  Ticks makespan = 0;
};

/// Simulates `plan`; none if it deadlocks. A transfer starts when both ends
/// are at the head of their stream and the link is free; the send ends when
/// the link is free again, the receive after the latency. A collective starts
/// when all its ranks are at the head, and ends for all together; it takes the
/// time of a ring over links of its own, beside the messages.
/// Operations of one group start and end together. Logarithmic in the number
/// of messages under way, else linear in operations and waits. The lists must
/// have passed checkStructure (ir/PlanFile.h).
std::optional<PlanTiming> simulatePlan(const Plan &plan);

/// How much longer a step of `plan` takes for its copies to host memory and
/// back; 0 without any. Two simulations.
Ticks copyTime(const Plan &plan);

/// Costs other than those that a plan names: of a measurement, for example.
struct PlanCosts {
  /// Stage after stage, one time for each Op in its order.
  std::vector<Ticks> durations;
  bool freeMessages = false; ///< messages take no time
  bool overlap = true; ///< pairs save what their stages say; else they do not
};

/// The costs that `plan` names.
PlanCosts costsOf(const Plan &plan);

/// The same as simulatePlan above, with these costs.
std::optional<PlanTiming> simulatePlan(const Plan &plan,
                                       const PlanCosts &costs);

/// For traces and pictures.
Timeline timelineOf(const Graph &graph, const Schedule &schedule,
                    const ScheduleTiming &timing);
Timeline timelineOf(const Plan &plan, const PlanTiming &timing);

} // namespace sluice

#endif // SLUICE_COMPILER_SIMULATE_SIMULATE_H
