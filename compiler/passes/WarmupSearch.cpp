//===- compiler/passes/WarmupSearch.cpp - `warmup: auto` ------------------===//
//
// Counts by measure instead of by the book. Tried are the book's, the derived
// ones (WarmupRules.cpp) for periods from the shortest on, and twice those; a
// bisection between the least and the best of them finds the fewest on that
// line that are as good; then one rank, two, or all before or behind one get
// one more or one fewer, for as long as that helps and there are trials left.
//
// Under a memory limit every rank's counts are cut off at what it can hold
// without messages, and the derived ones also end where a longer period makes
// them fit. What is still over the limit loses as many counts on the ranks that
// are. Where then nothing fits, what is least over the limit is changed rank by
// rank, for as long as that brings it nearer.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/WarmupSearch.h"

#include "compiler/passes/WarmupBounds.h"
#include "compiler/passes/WarmupMeter.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace sluice {

namespace {

constexpr unsigned kTrials = 32;  ///< orders timed in a search
constexpr unsigned kPeriods = 12; ///< derived counts tried
/// Tried where else nothing fits: most, and forwards in all of them.
constexpr uint64_t kApproaches = 64, kApproachForwards = 1 << 19;
constexpr unsigned kRepairs = 8; ///< tries to make fit what is over the limit

class WarmupSearch {
public:
  explicit WarmupSearch(Compilation &compilation);

  /// What is found; the fewest that run where nothing fits.
  Counts run();

private:
  struct Tried {
    Counts counts;
    Ticks objective;
    uint64_t sum;
    bool operator<(const Tried &other) const {
      return std::pair(objective, sum) < std::pair(other.objective, other.sum);
    }
  };

  /// Counts that run, but do not fit.
  struct Rejected {
    Tried tried;
    Counts fewer; ///< as many as a rank is over the limit
  };

  bool consider(const Counts &counts);
  bool mayHave(const Counts &counts) const;
  bool search();

  void considerWithin(const Counts &counts);
  void tryRules();
  void tryPeriods();
  void tryFewer();
  void improve();
  bool tryChange(Counts counts, Id begin, Id end, int by, Id also = kNone,
                 int alsoBy = 0);
  bool improveOne();
  bool improveTwo();
  bool approach();
  void repair();

  WarmupMeter meter;
  uint32_t ranks, most;
  Counts book;  ///< the standard ones, if need be raised
  Counts least; ///< the fewest that run, the same on each rank
  WarmupRules rules;
  Counts caps;               ///< what each rank can hold
  std::optional<Tried> best; ///< of those that run and fit
  std::vector<Rejected> rejected;
  /// Of all that run and do not fit, what is least over the limit.
  struct Nearest {
    Counts counts;
    Bytes excess; ///< of all ranks together
  };
  std::optional<Nearest> nearest;
  std::vector<Counts> seen;
  unsigned trialsLeft = kTrials;
};

} // namespace

WarmupSearch::WarmupSearch(Compilation &c)
    : meter(c), ranks(meter.ranks()), most(meter.most()),
      book(meter.raisedThatRuns(meter.standard())),
      least(meter.raisedThatRuns(Counts(ranks, meter.standard().back()))),
      rules(c, book.back(), most), caps(meter.caps()) {}

/// Whether `counts` fall along the pipeline, within the caps.
bool WarmupSearch::mayHave(const Counts &counts) const {
  for (Id at = 0; at < ranks; ++at)
    if (counts[at] > caps[at] || (at > 0 && counts[at] > counts[at - 1]))
      return false;
  return true;
}

/// Tries `counts` if they are new; true if they are the best so far.
bool WarmupSearch::consider(const Counts &counts) {
  if (trialsLeft == 0 || !mayHave(counts) || llvm::is_contained(seen, counts))
    return false;
  seen.push_back(counts);
  Orders orders = meter.ordersOf(counts);
  if (!meter.mayFit(orders))
    return false;
  --trialsLeft;
  std::optional<Ticks> objective = meter.objectiveOf(orders);
  if (!objective)
    return false;
  Tried found{counts, *objective,
              std::accumulate(counts.begin(), counts.end(), uint64_t(0))};
  if (best && !(found < *best))
    return false;
  Counts over = meter.countsOver();
  if (llvm::any_of(over, [](uint32_t count) { return count != 0; })) {
    if (meter.followsFirst())
      over.front() = *llvm::max_element(over);
    if (Bytes excess = meter.excess(); !nearest || excess < nearest->excess)
      nearest = {counts, excess};
    rejected.push_back({std::move(found), std::move(over)});
    return false;
  }
  best = std::move(found);
  return true;
}

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

/// `counts`, cut off at `caps`.
static Counts cutOff(const Counts &counts, const Counts &caps) {
  Counts cut;
  for (auto [count, cap] : llvm::zip(counts, caps))
    cut.push_back(std::min({count, cap, cut.empty() ? cap : cut.back()}));
  return cut;
}

/// `counts` times the largest share that keeps all within `caps`.
static Counts scaledDown(const Counts &counts, const Counts &caps) {
  uint64_t part = 1, whole = 1;
  for (auto [count, cap] : llvm::zip(counts, caps))
    if (uint64_t(cap) * whole < uint64_t(count) * part) {
      part = cap;
      whole = count;
    }
  Counts scaled;
  for (uint32_t count : counts)
    scaled.push_back(static_cast<uint32_t>(count * part / whole));
  return scaled;
}

/// `part` eighths of the way from `low` to `high`, rounded up.
static Counts between(const Counts &low, const Counts &high, uint32_t part) {
  Counts counts;
  for (auto [a, b] : llvm::zip(low, high))
    counts.push_back(a + (b > a ? (uint64_t(b - a) * part + 7) / 8 : 0));
  return counts;
}

/// Tries `counts` cut off at the caps, and at what the first rank may have
/// where that decides what the others hold.
void WarmupSearch::considerWithin(const Counts &counts) {
  Counts cut = cutOff(counts, caps);
  auto below = [&](uint32_t top) { return cutOff(cut, Counts(ranks, top)); };
  auto fits = [&](uint32_t top) {
    return meter.mayFit(meter.ordersOf(below(top)));
  };
  uint32_t good = 0, bad = cut.front();
  if (bad > 0 && !fits(bad)) {
    while (bad - good > 1) {
      uint32_t middle = good + (bad - good) / 2;
      (fits(middle) ? good : bad) = middle;
    }
    cut = below(good);
  }
  consider(cut);
}

void WarmupSearch::tryRules() {
  std::vector<Counts> all{book};
  if (rules.apply()) {
    Counts trips = rules.forTrips(rules.shortestPeriod());
    all.push_back(trips);
    all.push_back(rules.forPeriod(rules.shortestPeriod()));
    for (uint32_t &count : trips)
      count = std::min(2 * count, most);
    all.push_back(trips);
  }
  for (const Counts &rule : all) {
    considerWithin(rule);
    consider(scaledDown(rule, caps));
  }
  consider(least);
  if (meter
          .followsFirst()) // where all have the same, none holds more than that
    considerWithin(caps);
}

/// The derived counts for periods from the shortest to the least for which they
/// need not be cut off.
void WarmupSearch::tryPeriods() {
  if (!rules.apply())
    return;
  Ticks low = rules.shortestPeriod() - 1, high = rules.longestPeriod();
  constexpr unsigned kPrecision = 12; // bits
  for (unsigned i = 0; i < kPrecision && high - low > 1; ++i) {
    Ticks middle = low + (high - low) / 2;
    (mayHave(rules.forPeriod(middle)) ? high : low) = middle;
  }
  low = rules.shortestPeriod();
  for (unsigned i = 0; i <= kPeriods; ++i)
    considerWithin(rules.forPeriod(low + (high - low) / kPeriods * i));
  considerWithin(rules.forPeriod(high));
}

/// The fewest of eight steps from the least counts to the best that are as
/// good.
void WarmupSearch::tryFewer() {
  Counts to = best->counts, low = cutOff(book, to);
  if (rules.apply())
    low = cutOff(rules.forTrips(rules.shortestPeriod()), low);
  if (consider(low))
    return;
  uint32_t bad = 0, good = 8; // eighths of the way
  while (good - bad > 1 && low != to) {
    uint32_t middle = (bad + good) / 2;
    (consider(between(low, to, middle)) ? good : bad) = middle;
  }
}

/// Tries `counts`, those from `begin` to `end` changed by `by` and the one at
/// `also`, if any, by `alsoBy`; true if that is the best so far.
bool WarmupSearch::tryChange(Counts counts, Id begin, Id end, int by, Id also,
                             int alsoBy) {
  bool isLegal = true;
  auto change = [&](uint32_t &count, int step) {
    isLegal &= step > 0 || count > 0;
    count += step;
  };
  for (Id at = begin; at < end; ++at)
    change(counts[at], by);
  if (also != kNone)
    change(counts[also], alsoBy);
  return isLegal && consider(counts);
}

/// Tries one more and one fewer on single ranks, on all before and on all
/// behind.
bool WarmupSearch::improveOne() {
  bool better = false;
  for (Id at = 0; at < ranks; ++at)
    better |= tryChange(best->counts, at, at + 1, -1) ||
              tryChange(best->counts, at, ranks, -1) ||
              tryChange(best->counts, at, at + 1, +1) ||
              tryChange(best->counts, 0, at + 1, +1);
  return better;
}

/// Tries the same on two ranks at once.
bool WarmupSearch::improveTwo() {
  for (Id at = 0; at < ranks; ++at)
    for (Id also = at + 1; also < ranks && trialsLeft > 0; ++also)
      for (int by : {-1, +1})
        for (int alsoBy : {-1, +1})
          if (tryChange(best->counts, at, at + 1, by, also, alsoBy))
            return true;
  return false;
}

void WarmupSearch::improve() {
  while (trialsLeft > 0 && (improveOne() || improveTwo()))
    continue;
}

/// Takes counts from the best that do not fit until they do or are no longer
/// the best.
void WarmupSearch::repair() {
  for (unsigned i = 0; i < kRepairs && !rejected.empty(); ++i) {
    auto closest =
        llvm::min_element(rejected, [](const Rejected &a, const Rejected &b) {
          return a.tried < b.tried;
        });
    if (best && !(closest->tried < *best))
      return;
    Counts counts = closest->tried.counts;
    for (auto [count, over] : llvm::zip(counts, closest->fewer))
      count -= std::min(count, over);
    rejected.erase(closest);
    consider(cutOff(counts, counts));
  }
}

/// Where nothing fits yet, changes what is least over the limit for as long as
/// that brings it nearer; true if it ends within.
bool WarmupSearch::approach() {
  trialsLeft = static_cast<unsigned>(std::clamp<uint64_t>(
      kApproachForwards / (uint64_t(ranks) * most), 8, kApproaches));
  Bytes before = std::numeric_limits<Bytes>::max();
  while (nearest && nearest->excess < before) {
    before = nearest->excess;
    Counts from = nearest->counts;
    for (Id at = 0; at < ranks; ++at)
      for (auto [begin, end] : {std::pair(at, at + 1), std::pair(at, ranks),
                                std::pair(Id(0), at + 1)})
        for (int by : {-1, +1})
          if (tryChange(from, begin, end, by))
            return true;
  }
  return false;
}

/// Finds `best`; false if nothing is found that fits.
bool WarmupSearch::search() {
  tryRules();
  tryPeriods();
  repair();
  if (!best && !approach())
    return false;
  tryFewer();
  improve();
  return true;
}

Counts WarmupSearch::run() {
  if (search())
    return best->counts;
  return least; // the gate says why
}

//===----------------------------------------------------------------------===//
// What is asked of it
//===----------------------------------------------------------------------===//

Orders ordersWith(const ScheduleChoice &choice, const StageGraph &stages,
                  llvm::ArrayRef<uint32_t> counts) {
  auto trained = [&](Id stage) { return stages.stages[stage].backward; };
  Orders orders =
      listOrders({choice.sizes, choice.placement, choice.info->lanes,
                  choice.splitBackward, trained},
                 choice.info->programs(choice.sizes, counts));
  addRecomputes(orders, stages.stages);
  return orders;
}

/// `counts` rank by rank.
static std::vector<uint32_t> perRank(const WarmupMeter &meter,
                                     const Counts &counts) {
  std::vector<uint32_t> found(meter.ranks());
  for (auto [at, rank] : llvm::enumerate(meter.order()))
    found[rank] = counts[at];
  return found;
}

WarmupCounts standardWarmup(Compilation &c) {
  WarmupMeter meter(c);
  Counts rule = meter.standard(), counts = meter.standardThatRuns();
  WarmupCounts found{perRank(meter, counts), {}};
  uint32_t furthest = 0;
  for (auto [raised, count] : llvm::zip(counts, rule))
    furthest = std::max(furthest, raised - count);
  if (furthest != 0)
    found.bounds.push_back(
        "warmup: " + std::to_string(furthest) +
        " more on each rank than the rule of " +
        std::string(c.choice->info->text) + " says, up to its " +
        std::to_string(meter.most()) +
        " forwards, so that the ranks do not wait for each other in the last "
        "group");
  return found;
}

WarmupCounts searchWarmup(Compilation &c) {
  Counts found = WarmupSearch(c).run();
  WarmupMeter meter(c);
  return {perRank(meter, found), explainWarmup(meter, found)};
}

std::vector<uint32_t> warmupThatRuns(Compilation &c,
                                     llvm::ArrayRef<uint32_t> counts) {
  WarmupMeter meter(c);
  Counts along;
  for (Id rank : meter.order())
    along.push_back(counts[rank]);
  return perRank(meter, meter.raisedThatRuns(along));
}

} // namespace sluice
