//===- compiler/schedules/OrdersText.h - Orders that somebody wrote -------===//
#ifndef SLUICE_COMPILER_SCHEDULES_ORDERSTEXT_H
#define SLUICE_COMPILER_SCHEDULES_ORDERSTEXT_H

#include "compiler/schedules/Orders.h"
#include "compiler/spec/Spec.h"
#include "ir/Diagnostics.h"
#include "ir/text/Actions.h"

#include <string>

namespace sluice {

/// What the numbers of orders must be below; a stage stays on one rank.
struct OrderLimits {
  uint32_t stages;
  bool given; ///< there are exactly so many; else as many as the orders name
  uint32_t microbatches;
};

/// Reads orders whose operations are parted by `separator` (ir/text/Actions.h).
/// Tells what parseActions refuses, and every operation that is out of range,
/// there twice, beside another form of the same backward, or on a second rank.
/// Messages are left out, with a warning: the compiler makes its own. `stages`
/// gets how many there are. O(n log n).
Orders parseOrders(std::span<const ActionLine> lines, char separator,
                   const OrderLimits &limits, uint32_t &stages,
                   Diagnostics &diagnostics);

/// Where the file of `schedule: {csv: …}` is: beside the spec.
std::string scheduleCsvPath(const Spec &spec);

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_ORDERSTEXT_H
