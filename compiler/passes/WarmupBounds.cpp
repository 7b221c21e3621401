#include "compiler/passes/WarmupBounds.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace sluice {

namespace {

constexpr unsigned kRuns = 8; ///< to find out what messages leave room for

/// One more on a rank, and on those before it that have no more than it.
class OneMore {
public:
  OneMore(WarmupMeter &ofCounts, const Counts &found)
      : meter(ofCounts), counts(found) {}

  bool hasRoom(Id at);

private:
  Id firstRaised(Id at) const {
    return static_cast<Id>(llvm::find(counts, counts[at]) - counts.begin());
  }
  Counts raised(Id at) const {
    Counts more = counts;
    for (Id each = firstRaised(at); each <= at; ++each)
      ++more[each];
    return more;
  }
  /// Whether a rank is over the limit that was not raised for another's sake.
  template <typename List> bool isOver(Id at, const List &over) const {
    for (Id each = 0; each < over.size(); ++each)
      if (over[each] && (each >= at || each < firstRaised(at)))
        return true;
    return false;
  }

  WarmupMeter &meter;
  const Counts &counts; ///< that fall
  unsigned runsLeft = kRuns;
};

} // namespace

/// False only if it is proved to have none.
bool OneMore::hasRoom(Id at) {
  if (!meter.isLimited() || counts[at] == meter.most())
    return true;
  Orders orders = meter.ordersOf(raised(at));
  if (isOver(at, meter.surelyOver(orders)))
    return false;
  if (runsLeft == 0)
    return true;
  --runsLeft;
  return !meter.objectiveOf(orders) || !isOver(at, meter.countsOver());
}

std::vector<std::string> explainWarmup(WarmupMeter &meter,
                                       const Counts &counts) {
  auto number = [](uint64_t of) { return std::to_string(of); };
  Counts wanted = meter.standard();
  OneMore more(meter, counts);
  Id end = 0; // of the ranks that have fewer
  for (Id at = 0; at < counts.size(); ++at)
    if (counts[at] < wanted[at])
      end = at + 1;
  std::vector<std::string> texts;
  std::optional<Id> first, furthest;
  for (Id at = 0; at < counts.size(); ++at) {
    bool bound =
        at < end && (counts[at] < wanted[at] || !first) && !more.hasRoom(at);
    if (!first && bound)
      first = at;
    if (counts[at] > wanted[at] &&
        (!furthest ||
         counts[at] - wanted[at] > counts[*furthest] - wanted[*furthest]))
      furthest = at;
    if (counts[at] >= wanted[at] || !first)
      continue;
    texts.push_back("warmup of rank " + number(meter.order()[at]) + ": " +
                    number(counts[at]) + " of the standard " +
                    number(wanted[at]) +
                    (bound ? ", memory"
                           : "; more are of no use while rank " +
                                 number(meter.order()[*first]) +
                                 " has memory for " + number(counts[*first])));
  }
  if (furthest)
    texts.push_back("warmup: auto takes up to " +
                    number(counts[*furthest] - wanted[*furthest]) +
                    " more than the standard counts (rank " +
                    number(meter.order()[*furthest]) + ": " +
                    number(counts[*furthest]) + " instead of " +
                    number(wanted[*furthest]) + ")");
  return texts;
}

} // namespace sluice
