//===- compiler/schedules/OrdersText.h - Orders that somebody wrote -------===//
//
// One line a rank. Operations are named as everywhere, `<stage><F|B|I|W>
// <microbatch>`; a pair that runs together is `(0F3;7B1)OVERLAP_F_B`, as in
// PyTorch's CSV.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_SCHEDULES_ORDERSTEXT_H
#define SLUICE_COMPILER_SCHEDULES_ORDERSTEXT_H

#include "compiler/schedules/Orders.h"
#include "ir/Diagnostics.h"

#include "llvm/ADT/StringRef.h"

#include <vector>

namespace sluice {

/// The line of one rank and where its characters stand.
struct OrderLine {
  llvm::StringRef text;
  SourceLocation where;     ///< of the first character
  bool columnsKnown = true; ///< false: faults point to `where`
};

/// What the numbers of orders must be below; a stage stays on one rank.
struct OrderLimits {
  uint32_t stages;
  bool given; ///< there are exactly so many; else as many as the orders name
  uint32_t microbatches;
};

/// Reads orders whose operations are parted by `separator` (blanks count as
/// nothing). Tells every cell that is not an operation, out of range, there
/// twice, beside another form of the same backward, or on a second rank.
/// `stages` gets how many there are. O(n log n).
Orders parseOrders(llvm::ArrayRef<OrderLine> lines, char separator,
                   const OrderLimits &limits, uint32_t &stages,
                   Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_ORDERSTEXT_H
