//===- compiler/passes/WarmupMeter.h - What counts come to ---------------===//
#ifndef SLUICE_COMPILER_PASSES_WARMUPMETER_H
#define SLUICE_COMPILER_PASSES_WARMUPMETER_H

#include "compiler/passes/OrderTrial.h"
#include "compiler/passes/WarmupRules.h"

#include <optional>
#include <vector>

namespace sluice {

/// Measures lists of warmup counts for the choice of a schedule whose rule has
/// counts: whether they run, how long they take and what they hold against the
/// memory limit. Needs stages; the compilation must outlive it.
class WarmupMeter {
public:
  explicit WarmupMeter(Compilation &compilation);

  uint32_t ranks() const { return choice.sizes.ranks; }
  /// Forwards of a rank.
  uint32_t most() const { return mostForwards; }
  /// The ranks along the pipeline: what counts are listed by.
  const std::vector<Id> &order() const { return along; }
  /// Whether what a rank holds also depends on the first one's count: it puts
  /// off W.
  bool followsFirst() const {
    return choice.info->backward == BackwardRule::Split;
  }
  bool isLimited() const { return room.has_value(); }

  /// The book's.
  Counts standard() const;
  /// The book's; where a last group is short and they make the ranks wait for
  /// each other, as many more on each as end that.
  Counts standardThatRuns();
  /// `counts` with the same number more on each rank, as few as make them run.
  /// Logarithmic in orders.
  Counts raisedThatRuns(const Counts &counts);

  Orders ordersOf(const Counts &counts) const;
  bool runs(const Counts &counts) { return trial.run(ordersOf(counts)); }
  /// None if the orders make the ranks wait for each other.
  std::optional<Ticks> objectiveOf(const Orders &orders);

  /// Which ranks are over the limit whatever messages do.
  std::vector<bool> surelyOver(const Orders &orders) const;
  bool mayFit(const Orders &orders) const;
  /// By how many counts each rank of the last run is over the limit.
  Counts countsOver() const;
  /// By how many bytes all ranks of the last run are over it together.
  Bytes excess() const;
  /// The most that each rank can hold in any list that falls.
  Counts caps() const;

private:
  Orders ordersAlone(const Counts &counts) const;
  Orders listed(const std::vector<RankProgram> &programs) const;
  Bytes bytesPerCount(Id rank) const;
  void readLimit();

  Compilation &c;
  const ScheduleChoice &choice;
  Network network;
  uint32_t mostForwards;
  OrderTrial trial;
  std::vector<Id> along;
  std::optional<Bytes> room; ///< of an arena; none: unlimited
};

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_WARMUPMETER_H
