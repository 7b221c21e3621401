//===- compiler/passes/WarmupRules.h - Counts by derivation --------------===//
#ifndef SLUICE_COMPILER_PASSES_WARMUPRULES_H
#define SLUICE_COMPILER_PASSES_WARMUPRULES_H

#include "compiler/Compilation.h"

#include <vector>

namespace sluice {

using Counts = std::vector<uint32_t>; ///< along the pipeline

/// What counts must be for the ranks to keep a pace: see WarmupRules.cpp.
class WarmupRules {
public:
  /// `lowest` is what the last rank cannot do without. Needs stages.
  WarmupRules(const Compilation &compilation, uint32_t lowest, uint32_t most);

  /// False where a rank does not hold every p-th stage: nothing is derived.
  bool apply() const { return !times.empty(); }
  /// Time between two forwards of the slowest rank that never waits.
  Ticks shortestPeriod() const { return fastest; }
  /// Time until a microbatch is back in the first rank, its own work included:
  /// at one microbatch a period no counts make a difference.
  Ticks longestPeriod() const;
  /// The fewest counts with which no two ranks bound the period to more than
  /// `period`. O(p²).
  Counts forPeriod(Ticks period) const;
  /// The fewest with which the first and the last rank do not. O(p).
  Counts forTrips(Ticks period) const;

private:
  /// Means over the chunks of a rank.
  struct RankTimes {
    Ticks work;   ///< a forward and what hands its gradient on
    Ticks behind; ///< a W before the next forward
    Ticks hop;    ///< to the next rank and back
  };
  Ticks roundTrip(Id from, Id to) const;
  uint32_t ahead(Id from, Id to, Ticks period) const;

  std::vector<RankTimes> times;
  std::vector<Ticks> before; ///< work and hops of the ranks before
  Ticks fastest = 1;
  uint32_t lowest, most;
};

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_WARMUPRULES_H
