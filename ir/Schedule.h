//===- ir/Schedule.h - Which rank computes what, in which order ----------===//
#ifndef SLUICE_IR_SCHEDULE_H
#define SLUICE_IR_SCHEDULE_H

#include "ir/Ops.h"

#include <span>
#include <string>
#include <vector>

namespace sluice {

/// The order of compute per rank. With the graph it determines when everything
/// happens, whatever rule it came from.
struct Schedule {
  std::string name;            ///< of the schedule it came from
  std::vector<Id> order;       ///< node numbers, rank after rank
  std::vector<Id> firstOfRank; ///< ranks + 1 positions in `order`
  /// Per rank, the warmup count that the schedule's rule used; empty where it
  /// has no such rule.
  std::vector<uint32_t> warmup;

  uint32_t ranks() const {
    return firstOfRank.empty() ? 0
                               : static_cast<uint32_t>(firstOfRank.size() - 1);
  }
  std::span<const Id> rank(Id r) const {
    return std::span(order).subspan(firstOfRank[r],
                                    firstOfRank[r + 1] - firstOfRank[r]);
  }
};

} // namespace sluice

#endif // SLUICE_IR_SCHEDULE_H
