//===- compiler/schedules/Choice.h - What a spec asks of the scheduler ----===//
#ifndef SLUICE_COMPILER_SCHEDULES_CHOICE_H
#define SLUICE_COMPILER_SCHEDULES_CHOICE_H

#include "compiler/schedules/Orders.h"
#include "compiler/spec/Spec.h"
#include "ir/Diagnostics.h"

#include <optional>

namespace sluice {

/// The schedule of a spec, with every default filled in.
struct ScheduleChoice {
  const ScheduleInfo *info = nullptr; ///< null: the orders are the user's own
  ScheduleProblem sizes;
  uint32_t stages = 0;
  Placement placement;
  bool splitBackward = false;
  bool trains = true;           ///< false: no backward at all
  std::optional<Orders> orders; ///< the user's own
};

/// Finds the schedule and holds it against the other keys; none after telling
/// every fault. Costs of what is legal, but not as published, are warnings.
/// Linear in stages, and in the user's own orders.
std::optional<ScheduleChoice> chooseSchedule(const Spec &spec,
                                             Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_CHOICE_H
