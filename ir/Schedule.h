//===- ir/Schedule.h - Which rank computes what, in which order ----------===//
#ifndef SLUICE_IR_SCHEDULE_H
#define SLUICE_IR_SCHEDULE_H

#include "ir/Graph.h"

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
  /// Per position, whether it runs together with the next one of its rank: the
  /// two are one unit, which starts when the inputs of both are there and ends
  /// them together. Empty if nothing does.
  std::vector<bool> joined;
  /// Per rank, the warmup count that the schedule's rule used; empty where it
  /// has no such rule.
  std::vector<uint32_t> warmup;

  uint32_t ranks() const {
    return firstOfRank.empty() ? 0
                               : static_cast<uint32_t>(firstOfRank.size() - 1);
  }
  bool joins(size_t position) const {
    return position < joined.size() && joined[position];
  }
  std::span<const Id> rank(Id r) const {
    return std::span(order).subspan(firstOfRank[r],
                                    firstOfRank[r + 1] - firstOfRank[r]);
  }
};

/// The order of a rank by name, an entry at a time: `1F0`, or a pair that runs
/// together as `(1F3;2B0)OVERLAP_F_B`, as PyTorch writes it.
/// Operations of kind `left` are left out, if it is given.
std::vector<std::string> entryNames(const Graph &graph,
                                    const Schedule &schedule, Id rank,
                                    std::optional<Op> left = {});

} // namespace sluice

#endif // SLUICE_IR_SCHEDULE_H
