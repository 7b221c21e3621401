//===- WarmupSearch.cpp - `warmup: auto` ---------------------------------===//
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
// are.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/WarmupSearch.h"

#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/OrderTrial.h"
#include "compiler/passes/PassManager.h"
#include "compiler/passes/WarmupRules.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace sluice {

namespace {

constexpr unsigned kTrials = 32;  ///< orders timed in a search
constexpr unsigned kPeriods = 12; ///< derived counts tried
constexpr unsigned kRepairs = 8;  ///< tries to make fit what is over the limit

class WarmupSearch {
public:
  explicit WarmupSearch(Compilation &compilation);

  WarmupCounts run();
  WarmupCounts runStandard();

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

  Counts standard() const;
  Counts standardThatRuns();
  Orders ordersOf(const Counts &counts) const {
    return ordersWith(choice, *c.stages, counts);
  }
  std::optional<Ticks> objectiveOf(const Orders &orders);
  bool mayFit(const Orders &orders) const;
  Counts countsOver() const;
  Bytes bytesPerCount(Id rank) const;
  bool consider(const Counts &counts);
  bool mayHave(const Counts &counts) const;

  void findCaps();
  void tryRules();
  void tryPeriods();
  void tryFewer();
  void improve();
  bool tryChange(Id begin, Id end, int by, Id also = kNone, int alsoBy = 0);
  bool improveOne();
  bool improveTwo();
  bool search();

  void repair();
  void readLimit();

  std::vector<std::string> explain(const Counts &counts) const;
  WarmupCounts result(const Counts &counts) const;
  std::vector<bool> boundByMemory(const Counts &counts) const;

  Compilation &c;
  const ScheduleChoice &choice;
  Network network;
  uint32_t ranks, most;
  OrderTrial trial;
  std::vector<Id> order; ///< ranks along the pipeline
  Counts book;           ///< the standard ones, if need be raised
  std::optional<WarmupRules> rules;
  std::optional<Bytes> room; ///< of an arena; none: unlimited
  Counts caps;               ///< what each rank can hold
  std::optional<Tried> best; ///< of those that run and fit
  std::vector<Rejected> rejected;
  std::vector<Counts> seen;
  unsigned trialsLeft = kTrials;
};

} // namespace

WarmupSearch::WarmupSearch(Compilation &compilation)
    : c(compilation), choice(*c.choice), network(c.network()),
      ranks(choice.sizes.ranks),
      most(choice.sizes.microbatches * choice.sizes.chunks),
      trial(*c.stages, choice.placement, choice.sizes.microbatches,
            c.spec->model.timeUnit, network),
      order(choice.placement.ranksInOrder()), caps(ranks, most) {}

Counts WarmupSearch::standard() const {
  Counts counts;
  for (Id at = 0; at < ranks; ++at)
    counts.push_back(choice.info->warmup(choice.sizes, at));
  return counts;
}

/// None if the orders make the ranks wait for each other.
std::optional<Ticks> WarmupSearch::objectiveOf(const Orders &orders) {
  if (!trial.run(orders))
    return std::nullopt;
  return c.spec->pipeline.objective.value == Objective::Span ? trial.span()
                                                             : trial.makespan();
}

/// Whether what is in flight leaves room for messages.
bool WarmupSearch::mayFit(const Orders &orders) const {
  if (!room)
    return true;
  return llvm::all_of(trial.leastBytes(orders),
                      [&](Bytes least) { return least <= *room; });
}

/// By how many counts each rank of the last trial is over the limit.
Counts WarmupSearch::countsOver() const {
  Counts over(ranks, 0);
  if (!room)
    return over;
  std::vector<Bytes> arenas = trial.arenas();
  for (auto [at, rank] : llvm::enumerate(order))
    if (arenas[rank] > *room)
      over[at] = static_cast<uint32_t>(std::min<Bytes>(
          most, (arenas[rank] - *room - 1) / bytesPerCount(rank) + 1));
  return over;
}

/// What one more microbatch in flight takes on `rank`, at least 1.
Bytes WarmupSearch::bytesPerCount(Id rank) const {
  Bytes each = 1;
  for (const Placement::Holding &held :
       choice.placement.holdingsOf(rank, choice.sizes.microbatches)) {
    const StageBytes &bytes = c.stages->stages[held.stage].bytes;
    each = std::max(each, alignedSize(bytes.activation - bytes.keptForWeight) +
                              alignedSize(bytes.keptForWeight));
  }
  return each;
}

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
  Orders orders = ordersOf(counts);
  if (!mayFit(orders))
    return false;
  --trialsLeft;
  std::optional<Ticks> objective = objectiveOf(orders);
  if (!objective)
    return false;
  Tried found{counts, *objective,
              std::accumulate(counts.begin(), counts.end(), uint64_t(0))};
  if (best && !(found < *best))
    return false;
  Counts over = countsOver();
  if (llvm::any_of(over, [](uint32_t count) { return count != 0; })) {
    rejected.push_back({std::move(found), std::move(over)});
    return false;
  }
  best = std::move(found);
  return true;
}

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

/// The most that each rank can hold, the others' counts left aside.
void WarmupSearch::findCaps() {
  caps.assign(ranks, most);
  if (!room)
    return;
  Counts low(ranks, 0), high(ranks, most + 1); // exclusive; 0 may not fit
  while (true) {
    Counts middle;
    for (auto [a, b] : llvm::zip(low, high))
      middle.push_back(a + (b - a) / 2);
    if (middle == low)
      break;
    std::vector<Bytes> least = trial.leastBytes(ordersOf(middle));
    for (auto [at, rank] : llvm::enumerate(order))
      (least[rank] <= *room ? low : high)[at] = middle[at];
  }
  caps = low;
}

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

void WarmupSearch::tryRules() {
  std::vector<Counts> all{book};
  if (rules->apply()) {
    Counts trips = rules->forTrips(rules->shortestPeriod());
    all.push_back(trips);
    all.push_back(rules->forPeriod(rules->shortestPeriod()));
    for (uint32_t &count : trips)
      count = std::min(2 * count, most);
    all.push_back(trips);
  }
  for (const Counts &rule : all) {
    consider(cutOff(rule, caps));
    consider(scaledDown(rule, caps));
  }
  consider(Counts(ranks, book.back()));
}

/// The derived counts for periods from the shortest to the least for which they
/// need not be cut off.
void WarmupSearch::tryPeriods() {
  if (!rules->apply())
    return;
  Ticks low = rules->shortestPeriod() - 1, high = rules->longestPeriod();
  constexpr unsigned kPrecision = 12; // bits
  for (unsigned i = 0; i < kPrecision && high - low > 1; ++i) {
    Ticks middle = low + (high - low) / 2;
    (mayHave(rules->forPeriod(middle)) ? high : low) = middle;
  }
  low = rules->shortestPeriod();
  for (unsigned i = 0; i <= kPeriods; ++i)
    consider(cutOff(rules->forPeriod(low + (high - low) / kPeriods * i), caps));
  consider(cutOff(rules->forPeriod(high), caps));
}

/// The fewest of eight steps from the least counts to the best that are as
/// good.
void WarmupSearch::tryFewer() {
  Counts to = best->counts, low = cutOff(book, to);
  if (rules->apply())
    low = cutOff(rules->forTrips(rules->shortestPeriod()), low);
  if (consider(low))
    return;
  uint32_t bad = 0, good = 8; // eighths of the way
  while (good - bad > 1 && low != to) {
    uint32_t middle = (bad + good) / 2;
    (consider(between(low, to, middle)) ? good : bad) = middle;
  }
}

/// Tries the best counts, those from `begin` to `end` changed by `by` and the
/// one at `also`, if any, by `alsoBy`; true if that is better.
bool WarmupSearch::tryChange(Id begin, Id end, int by, Id also, int alsoBy) {
  Counts counts = best->counts;
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
    better |= tryChange(at, at + 1, -1) || tryChange(at, ranks, -1) ||
              tryChange(at, at + 1, +1) || tryChange(0, at + 1, +1);
  return better;
}

/// Tries the same on two ranks at once.
bool WarmupSearch::improveTwo() {
  for (Id at = 0; at < ranks; ++at)
    for (Id also = at + 1; also < ranks && trialsLeft > 0; ++also)
      for (int by : {-1, +1})
        for (int alsoBy : {-1, +1})
          if (tryChange(at, at + 1, by, also, alsoBy))
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
    auto least =
        llvm::min_element(rejected, [](const Rejected &a, const Rejected &b) {
          return a.tried < b.tried;
        });
    if (best && !(least->tried < *best))
      return;
    Counts counts = least->tried.counts;
    for (auto [count, over] : llvm::zip(counts, least->fewer))
      count -= std::min(count, over);
    rejected.erase(least);
    consider(cutOff(counts, counts));
  }
}

/// Finds `best`; false if nothing is found that fits.
bool WarmupSearch::search() {
  findCaps();
  tryRules();
  tryPeriods();
  repair();
  if (!best)
    return false;
  tryFewer();
  improve();
  return true;
}

/// Takes the limit from where every plan gets it.
void WarmupSearch::readLimit() {
  Diagnostics ignored;
  Compilation empty(ignored);
  empty.spec = c.spec;
  empty.plan.emplace();
  passes::AnnotatePlan(empty);
  const Plan &plan = *empty.plan;
  if (plan.memoryLimit != 0)
    room = plan.memoryLimit - std::min(plan.memoryLimit, plan.memoryAllowance);
}

//===----------------------------------------------------------------------===//
// Result
//===----------------------------------------------------------------------===//

/// Whether one more on a rank is over the limit whatever messages do.
std::vector<bool> WarmupSearch::boundByMemory(const Counts &counts) const {
  std::vector<bool> bound(ranks, false);
  if (!room)
    return bound;
  Counts more;
  for (uint32_t count : counts)
    more.push_back(std::min(count + 1, most));
  std::vector<Bytes> least = trial.leastBytes(ordersOf(more));
  for (auto [at, rank] : llvm::enumerate(order))
    bound[at] = least[rank] > *room;
  return bound;
}

/// Where and why `counts` are not the standard ones, if that is for want of
/// memory or takes more of it.
std::vector<std::string> WarmupSearch::explain(const Counts &counts) const {
  auto number = [](uint64_t of) { return std::to_string(of); };
  Counts wanted = standard();
  std::vector<bool> bound = boundByMemory(counts);
  std::vector<std::string> texts;
  std::optional<Id> first, furthest;
  for (Id at = 0; at < ranks; ++at) {
    if (!first && bound[at])
      first = at;
    if (counts[at] > wanted[at] &&
        (!furthest ||
         counts[at] - wanted[at] > counts[*furthest] - wanted[*furthest]))
      furthest = at;
    if (counts[at] >= wanted[at] || !first)
      continue;
    texts.push_back(
        "warmup of rank " + number(order[at]) + ": " + number(counts[at]) +
        " of the standard " + number(wanted[at]) +
        (bound[at]
             ? ", memory"
             : "; more are of no use while rank " + number(order[*first]) +
                   " has memory for " + number(counts[*first])));
  }
  if (furthest)
    texts.push_back("warmup: auto takes up to " +
                    number(counts[*furthest] - wanted[*furthest]) +
                    " more than the standard counts (rank " +
                    number(order[*furthest]) + ": " +
                    number(counts[*furthest]) + " instead of " +
                    number(wanted[*furthest]) + ")");
  return texts;
}

/// `counts` rank by rank.
WarmupCounts WarmupSearch::result(const Counts &counts) const {
  WarmupCounts found;
  found.perRank.resize(ranks);
  for (auto [at, rank] : llvm::enumerate(order))
    found.perRank[rank] = counts[at];
  return found;
}

WarmupCounts WarmupSearch::run() {
  book = standardThatRuns();
  rules.emplace(c, book.back(), most);
  readLimit();
  // Where nothing runs or fits, the gate says why of the least that run.
  Counts found(ranks, book.back());
  if (search())
    found = best->counts;
  else if (!trial.run(ordersOf(found)))
    found = book;
  WarmupCounts counts = result(found);
  counts.bounds = explain(found);
  return counts;
}

/// The book's counts, raised on all ranks where they make them wait for each
/// other: twice as many more each time, then back to the fewest by bisection.
Counts WarmupSearch::standardThatRuns() {
  Counts counts = standard();
  auto more = [&](uint32_t extra) {
    Counts raised;
    for (uint32_t count : counts)
      raised.push_back(std::min(count + extra, most));
    return raised;
  };
  auto runs = [&](const Counts &tested) { return trial.run(ordersOf(tested)); };
  bool isShort = choice.sizes.chunks > 1 &&
                 choice.sizes.microbatches % choice.sizes.groupSize != 0;
  if (!isShort || runs(counts))
    return counts;
  uint32_t bad = 0, good = 1;
  while (good < most && !runs(more(good))) {
    bad = good;
    good *= 2;
  }
  while (good - bad > 1) {
    uint32_t middle = bad + (good - bad) / 2;
    (runs(more(middle)) ? good : bad) = middle;
  }
  return more(good);
}

WarmupCounts WarmupSearch::runStandard() {
  Counts rule = standard(), counts = standardThatRuns();
  WarmupCounts found = result(counts);
  uint32_t furthest = 0;
  for (auto [raised, count] : llvm::zip(counts, rule))
    furthest = std::max(furthest, raised - count);
  if (furthest != 0)
    found.bounds.push_back(
        "warmup: " + std::to_string(furthest) +
        " more on each rank than the rule of " +
        std::string(choice.info->text) + " says, up to its " +
        std::to_string(most) +
        " forwards, so that the ranks do not wait for each other in the last "
        "group");
  return found;
}

Orders ordersWith(const ScheduleChoice &choice, const StageGraph &stages,
                  llvm::ArrayRef<uint32_t> counts) {
  auto trained = [&](Id stage) { return stages.stages[stage].backward; };
  return listOrders({choice.sizes, choice.placement, choice.info->lanes,
                     choice.splitBackward, trained},
                    choice.info->programs(choice.sizes, counts));
}

WarmupCounts standardWarmup(Compilation &compilation) {
  return WarmupSearch(compilation).runStandard();
}

WarmupCounts searchWarmup(Compilation &compilation) {
  return WarmupSearch(compilation).run();
}

} // namespace sluice
