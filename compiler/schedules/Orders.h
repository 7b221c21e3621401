//===- compiler/schedules/Orders.h - The order of each rank, by name ------===//
#ifndef SLUICE_COMPILER_SCHEDULES_ORDERS_H
#define SLUICE_COMPILER_SCHEDULES_ORDERS_H

#include "compiler/schedules/Schedules.h"
#include "ir/Graph.h"
#include "ir/Schedule.h"

#include <span>

namespace sluice {

/// An operation in a rank's order.
struct OrderEntry {
  Id stage;
  Id microbatch;
  Op op;
  bool joined; ///< runs together with the next one
};

/// What each rank computes, in order: made by a rule, or by somebody else. The
/// graph takes from it which backwards are split.
struct Orders {
  std::string name;                ///< of the schedule
  std::vector<uint32_t> warmup;    ///< as Schedule::warmup
  std::vector<OrderEntry> entries; ///< rank after rank
  std::vector<Id> firstOfRank;     ///< ranks + 1 positions in `entries`

  std::span<const OrderEntry> rank(Id r) const {
    return std::span(entries).subspan(firstOfRank[r],
                                      firstOfRank[r + 1] - firstOfRank[r]);
  }
};

/// What a list scheduler needs to know besides the programs.
struct ListProblem {
  const ScheduleProblem &sizes;
  const Placement &placement;
  Lanes lanes;
  bool splitBackward;                   ///< a Backward step is an I and a W
  llvm::function_ref<bool(Id)> trained; ///< whether a stage has a backward
};

/// Runs `programs`, one per rank along the pipeline. That no operation is left
/// out is for verifySchedule to prove. Linear in steps.
Orders listOrders(const ListProblem &problem,
                  llvm::ArrayRef<RankProgram> programs);

/// Adds the R of every stage that recomputes: directly before its B or I, or
/// before the pair that this is part of. So it may run while the gradient is
/// still on its way. Linear.
void addRecomputes(Orders &orders, llvm::ArrayRef<Stage> stages);

/// `orders` in nodes of `graph`; what it lacks becomes kNone, which
/// verifySchedule refuses. Linear.
Schedule findInGraph(const Graph &graph, const Orders &orders);

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_ORDERS_H
