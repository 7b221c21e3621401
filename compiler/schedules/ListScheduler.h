//===- compiler/schedules/ListScheduler.h - From programs to an order ----===//
#ifndef SLUICE_COMPILER_SCHEDULES_LISTSCHEDULER_H
#define SLUICE_COMPILER_SCHEDULES_LISTSCHEDULER_H

#include "compiler/schedules/Schedules.h"
#include "ir/Schedule.h"

namespace sluice {

/// Lists every node of `graph` on its rank: each step of a rank's program takes
/// the next node of its kind, in order of microbatch, then stage. `rankOfStage`
/// gives the placement. Steps beyond the last node of a kind do nothing (a
/// stage without backward); that no node is left out is for verifySchedule to
/// prove. Linear in nodes and steps.
Schedule listSchedule(const Graph &graph, llvm::ArrayRef<Id> rankOfStage,
                      llvm::ArrayRef<RankProgram> programs);

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_LISTSCHEDULER_H
