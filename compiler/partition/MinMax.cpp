#include "compiler/partition/Partition.h"

#include <algorithm>

namespace sluice {

namespace {

using Square = unsigned __int128;

/// (part, prefix) pairs that the refinement may look at; past that, parts are
/// only cut near the average.
constexpr uint64_t kMaxStates = uint64_t(1) << 22;

/// Sums of prefixes of the costs.
class Prefixes {
public:
  explicit Prefixes(const std::vector<Ticks> &costs) : sums(costs.size() + 1) {
    for (size_t i = 0; i < costs.size(); ++i)
      sums[i + 1] = sums[i] + costs[i];
  }
  uint32_t count() const { return static_cast<uint32_t>(sums.size() - 1); }
  Ticks total() const { return sums.back(); }
  Ticks cost(uint32_t from, uint32_t to) const { return sums[to] - sums[from]; }
  /// The largest end of a part from `from` that costs at most `limit`.
  uint32_t reach(uint32_t from, Ticks limit) const {
    auto end = std::upper_bound(sums.begin() + from, sums.end(), limit,
                                [base = sums[from]](Ticks most, Ticks sum) {
                                  return sum - base > most;
                                });
    return static_cast<uint32_t>(end - sums.begin() - 1);
  }
  /// The smallest start of a part up to `to` that costs at most `limit`.
  uint32_t reachBack(uint32_t to, Ticks limit) const {
    auto start = std::lower_bound(
        sums.begin(), sums.begin() + to, limit,
        [top = sums[to]](Ticks sum, Ticks most) { return top - sum > most; });
    return static_cast<uint32_t>(start - sums.begin());
  }

private:
  std::vector<Ticks> sums;
};

/// Whether parts of at most `limit` can be at most `parts`, taking as much as
/// fits each time. Needs limit >= every cost.
bool fits(const Prefixes &prefixes, uint32_t parts, Ticks limit) {
  uint32_t at = 0;
  for (uint32_t part = 0; part < parts && at < prefixes.count(); ++part)
    at = prefixes.reach(at, limit);
  return at == prefixes.count();
}

/// The smallest largest part, by binary search.
Ticks smallestLimit(const Prefixes &prefixes, Ticks largestCost,
                    uint32_t parts) {
  Ticks low = largestCost, high = prefixes.total();
  while (low < high) {
    Ticks middle = low + (high - low) / 2;
    if (fits(prefixes, parts, middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Where the k-th part may begin: [earliest[k], latest[k]], such that parts of
/// at most the limit, none empty, are possible before and after.
struct Windows {
  std::vector<uint32_t> earliest, latest;

  Windows(const Prefixes &prefixes, uint32_t parts, Ticks limit)
      : earliest(parts + 1), latest(parts + 1) {
    uint32_t n = prefixes.count();
    for (uint32_t k = 1; k <= parts; ++k)
      latest[k] =
          std::min(prefixes.reach(latest[k - 1], limit), n - (parts - k));
    earliest[parts] = n;
    for (uint32_t k = parts; k-- > 0;)
      earliest[k] = std::max(prefixes.reachBack(earliest[k + 1], limit), k);
  }
  uint32_t width(uint32_t k) const { return latest[k] - earliest[k] + 1; }
};

/// Dynamic programming from the last part to the first. The cost of a part, its
/// square or infinite past the limit, satisfies the quadrangle inequality, so
/// the best end grows with the start and each row divides and conquers.
class Refinement {
public:
  Refinement(const Prefixes &allPrefixes, const Windows &allWindows,
             Ticks largest)
      : prefixes(allPrefixes), windows(allWindows), limit(largest) {}

  std::vector<uint32_t> solve(uint32_t parts) {
    std::vector<std::vector<uint32_t>> ends(parts);
    next = {0};
    for (uint32_t k = parts; k-- > 0;) {
      part = k;
      ends[k].resize(windows.width(k));
      row.assign(windows.width(k), 0);
      fill(ends[k], windows.earliest[k], windows.latest[k],
           windows.earliest[k + 1], windows.latest[k + 1]);
      next.swap(row);
    }
    std::vector<uint32_t> counts;
    uint32_t at = 0;
    for (uint32_t k = 0; k < parts; ++k) {
      uint32_t end = ends[k][at - windows.earliest[k]];
      counts.push_back(end - at);
      at = end;
    }
    return counts;
  }

private:
  /// Finds the best end for each start in [low, high], all in [from, to].
  void fill(std::vector<uint32_t> &ends, uint32_t low, uint32_t high,
            uint32_t from, uint32_t to) {
    uint32_t start = low + (high - low) / 2;
    uint32_t end = bestEnd(start, from, to);
    ends[start - windows.earliest[part]] = end;
    if (start > low)
      fill(ends, low, start - 1, from, end);
    if (start < high)
      fill(ends, start + 1, high, end, to);
  }

  /// The best end of the part from `start`; among equals the last, which puts
  /// larger parts first.
  uint32_t bestEnd(uint32_t start, uint32_t from, uint32_t to) {
    uint32_t first = std::max(from, start + 1), last = to;
    last = std::min(last, prefixes.reach(start, limit));
    uint32_t best = last;
    Square least = ~Square(0);
    for (uint32_t end = first; end <= last; ++end) {
      Square cost = static_cast<uint64_t>(prefixes.cost(start, end));
      cost = cost * cost + next[end - windows.earliest[part + 1]];
      if (cost <= least) {
        least = cost;
        best = end;
      }
    }
    row[start - windows.earliest[part]] = least;
    return best;
  }

  const Prefixes &prefixes;
  const Windows &windows;
  Ticks limit;
  uint32_t part = 0;
  std::vector<Square> row, next; ///< least sums of squares from a start on
};

/// Cuts where the average of what is left is reached, within the windows.
std::vector<uint32_t> cutNearAverage(const Prefixes &prefixes,
                                     const Windows &windows, uint32_t parts,
                                     Ticks limit) {
  std::vector<uint32_t> counts;
  uint32_t at = 0, n = prefixes.count();
  for (uint32_t k = 0; k < parts; ++k) {
    uint32_t left = parts - k;
    Ticks average = (prefixes.cost(at, n) + left - 1) / left;
    uint32_t first = std::max(at + 1, windows.earliest[k + 1]);
    uint32_t last = std::min(prefixes.reach(at, limit), windows.latest[k + 1]);
    uint32_t end = average > 0 ? prefixes.reach(at, average - 1) + 1 : at + 1;
    end = std::clamp(end, first, last);
    counts.push_back(end - at);
    at = end;
  }
  return counts;
}

} // namespace

std::vector<uint32_t> partitionMinMax(const std::vector<Ticks> &costs,
                                      uint32_t stages) {
  if (costs.size() <= stages) {
    std::vector<uint32_t> counts(costs.size(), 1);
    counts.resize(stages, 0);
    return counts;
  }
  Prefixes prefixes(costs);
  Ticks largest = *std::max_element(costs.begin(), costs.end());
  Ticks limit = smallestLimit(prefixes, largest, stages);
  Windows windows(prefixes, stages, limit);
  uint64_t states = 0;
  for (uint32_t k = 0; k <= stages; ++k)
    states += windows.width(k);
  if (states > kMaxStates)
    return cutNearAverage(prefixes, windows, stages, limit);
  return Refinement(prefixes, windows, limit).solve(stages);
}

} // namespace sluice
