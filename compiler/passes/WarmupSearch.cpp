//===- WarmupSearch.cpp - `warmup: auto` ---------------------------------===//
//
// Counts by measure instead of by the book. A rank needs as many microbatches
// in flight as fit into the time from a forward to the end of its backward, at
// one per period of the slowest rank:
//
//   n(r) = ceil((F_r + D_r + B_r) / T),   w(r) = n(r) - 1,
//   D_r = Σ_{j>r} d_j,   d_j = F_j + B_j + both messages before j,
//   T = max_j (F_j + B_j).
//
// With equal stages and free messages that is 1F1B's count, p-1-r. Since ranks
// alternate, a hop may cost a whole period: Σ_{j>r} ceil(d_j / T) is the safe
// count. Both, twice the first, and the schedule's own are simulated, and a
// bisection between the least and the best of them finds the fewest on that
// line that are as good: eight simulations. Where these do not fit the memory
// limit, each rule is cut off and scaled down to what fits, and the best of
// those is taken: some twenty.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/WarmupSearch.h"

#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/GraphBuilder.h"
#include "compiler/passes/PassManager.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace sluice {

namespace {

using Counts = std::vector<uint32_t>; ///< along the pipeline

class WarmupSearch {
public:
  explicit WarmupSearch(Compilation &compilation)
      : c(compilation), choice(*c.choice), network(c.network()),
        ranks(choice.sizes.ranks),
        most(choice.sizes.microbatches * choice.sizes.chunks) {}

  WarmupCounts run();
  WarmupCounts runStandard();

private:
  struct Tried {
    Counts counts;
    Ticks objective;
    bool operator<(const Tried &other) const {
      return std::pair(objective, sum()) <
             std::pair(other.objective, other.sum());
    }
    uint64_t sum() const {
      return std::accumulate(counts.begin(), counts.end(), uint64_t(0));
    }
  };

  Counts standard() const;
  Counts standardThatRuns();
  void measure();
  Counts between(const Counts &low, const Counts &high, uint32_t part) const;
  Orders ordersOf(const Counts &counts) const;
  std::optional<Ticks> objectiveOf(const Counts &counts);
  void consider(const Counts &counts);
  Tried fewest(const Counts &low);
  bool isLimited() const {
    return c.spec->pipeline.memoryLimit.given || c.spec->cluster.device;
  }
  Counts fitMemory(const Counts &wanted);
  bool lowerCaps(const Counts &counts, Counts &caps);
  Bytes bytesPerCount(Id rank) const;
  WarmupCounts perRank(const Counts &counts, const Counts &wanted) const;

  Compilation &c;
  const ScheduleChoice &choice;
  Network network;
  uint32_t ranks, most;
  std::optional<Graph> graph;
  Counts book, trips, hops; ///< the rules
  std::vector<Tried> tried;
};

} // namespace

Counts WarmupSearch::standard() const {
  Counts counts;
  for (Id at = 0; at < ranks; ++at)
    counts.push_back(choice.info->warmup(choice.sizes, at));
  return counts;
}

/// The counts derived above, for one stage per rank in order.
void WarmupSearch::measure() {
  const std::vector<Stage> &stages = c.stages->stages;
  book = trips = hops = standardThatRuns();
  if (stages.size() != ranks)
    return;
  bool split = choice.info->backward == BackwardRule::Split;
  auto backward = [&](const Stage &stage) {
    return stage.backwardInput + (split ? 0 : stage.backwardWeight);
  };
  Ticks period = 1;
  for (const Stage &stage : stages)
    period = std::max(period, stage.duration(Op::Forward) +
                                  stage.duration(Op::Backward));
  auto periods = [&](__int128 time, __int128 more) {
    return static_cast<uint32_t>(
        std::clamp<__int128>((time + period - 1) / period + more, 0, most));
  };
  __int128 ahead = 0;
  uint32_t safe = 0;
  for (Id stage = ranks; stage-- > 0;) {
    const Stage &here = stages[stage];
    trips[stage] = periods(here.forward + ahead + backward(here), -1);
    hops[stage] = std::min(safe, most);
    if (stage == 0)
      break;
    __int128 hop = here.forward + backward(here);
    Id high = choice.placement.rankOf(stage, 0),
       low = choice.placement.rankOf(stage - 1, 0);
    for (Link link : {network.between(low, high), network.between(high, low)})
      hop += link.latency + link.occupancy(c.stages->edges[stage - 1].bytes,
                                           c.spec->model.timeUnit);
    ahead += hop;
    safe = periods(hop, safe);
  }
}

/// `part` eighths of the way from `low` to `high`, rounded up.
Counts WarmupSearch::between(const Counts &low, const Counts &high,
                             uint32_t part) const {
  Counts counts;
  for (auto [a, b] : llvm::zip(low, high))
    counts.push_back(a + (b > a ? (uint64_t(b - a) * part + 7) / 8 : 0));
  return counts;
}

Orders WarmupSearch::ordersOf(const Counts &counts) const {
  auto trained = [&](Id stage) { return c.stages->stages[stage].backward; };
  return listOrders({choice.sizes, choice.placement, choice.info->lanes,
                     choice.splitBackward, trained},
                    choice.info->programs(choice.sizes, counts));
}

/// None if the counts make the ranks wait for each other.
std::optional<Ticks> WarmupSearch::objectiveOf(const Counts &counts) {
  Orders orders = ordersOf(counts);
  if (!graph)
    graph = buildGraph(*c.stages, orders, c.spec->pipeline.microbatches,
                       c.spec->model.timeUnit);
  std::optional<ScheduleTiming> timing =
      simulateSchedule(*graph, findInGraph(*graph, orders), network);
  if (!timing)
    return std::nullopt;
  return c.spec->pipeline.objective.value == Objective::Span ? timing->span
                                                             : timing->makespan;
}

void WarmupSearch::consider(const Counts &counts) {
  for (const Tried &other : tried)
    if (other.counts == counts)
      return;
  if (std::optional<Ticks> objective = objectiveOf(counts))
    tried.push_back({counts, *objective});
}

/// The best counts, or the fewest of eight steps from `low` to them that are as
/// good.
WarmupSearch::Tried WarmupSearch::fewest(const Counts &low) {
  Tried best = *std::min_element(tried.begin(), tried.end());
  Counts from = low, to = best.counts;
  consider(low);
  if (Tried least = *std::min_element(tried.begin(), tried.end());
      least.counts == low)
    return least;
  uint32_t bad = 0, good = 8; // eighths of the way
  while (good - bad > 1 && from != to) {
    uint32_t middle = (bad + good) / 2;
    Counts counts = between(from, to, middle);
    std::optional<Ticks> objective = objectiveOf(counts);
    bool isGood = objective && *objective <= best.objective;
    (isGood ? good : bad) = middle;
    if (isGood)
      best = {counts, *objective};
  }
  return best;
}

WarmupCounts WarmupSearch::run() {
  measure();
  Counts twice;
  for (uint32_t count : trips)
    twice.push_back(std::min(2 * count, most));
  for (const Counts &counts : {book, trips, hops, twice})
    consider(counts);
  if (tried.empty()) // let the gate say why
    return perRank(book, book);
  Counts low;
  for (auto [a, b] : llvm::zip(book, trips))
    low.push_back(std::min(a, b));
  Counts wanted = fewest(low).counts;
  return perRank(isLimited() ? fitMemory(wanted) : wanted, wanted);
}

WarmupCounts WarmupSearch::perRank(const Counts &counts,
                                   const Counts &wanted) const {
  WarmupCounts result;
  result.perRank.resize(ranks);
  for (auto [at, rank] : llvm::enumerate(choice.placement.ranksInOrder())) {
    result.perRank[rank] = counts[at];
    if (counts[at] < wanted[at])
      result.bounds.push_back("warmup of rank " + std::to_string(rank) + ": " +
                              std::to_string(counts[at]) + " of " +
                              std::to_string(wanted[at]) + " wanted, memory");
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

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

/// Lowers `caps` to what would fit where a plan with `counts` is over the
/// limit; false if it is nowhere.
bool WarmupSearch::lowerCaps(const Counts &counts, Counts &caps) {
  Diagnostics ignored;
  Compilation trial(ignored);
  trial.spec = c.spec;
  trial.stages = c.stages;
  trial.orders = ordersOf(counts);
  trial.graph = graph;
  for (bool (*pass)(Compilation &) :
       {passes::ScheduleOps, passes::SimulateOps, passes::LowerToPlan,
        passes::AnnotatePlan, passes::AssignBuffers})
    if (!pass(trial))
      return false;
  const Plan &plan = *trial.plan;
  bool lowered = false;
  for (auto [at, rank] : llvm::enumerate(choice.placement.ranksInOrder())) {
    Bytes needed = plan.ranks[rank].arenaBytes + plan.memoryAllowance;
    if (plan.memoryLimit == 0 || needed <= plan.memoryLimit || counts[at] == 0)
      continue;
    Bytes fewer = (needed - plan.memoryLimit - 1) / bytesPerCount(rank) + 1;
    caps[at] =
        counts[at] - static_cast<uint32_t>(std::min<Bytes>(counts[at], fewer));
    lowered = true;
  }
  return lowered;
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

/// The best of the rules within what fits; the book's own where nothing does,
/// so that the gate says what is missing.
Counts WarmupSearch::fitMemory(const Counts &wanted) {
  Counts caps(ranks, most), none(ranks, most), counts = wanted;
  if (!lowerCaps(wanted, caps))
    return wanted;
  tried.clear();
  if (!lowerCaps(book, none))
    consider(book);
  for (unsigned round = 0; round < 4; ++round) {
    for (const Counts &rule : {book, trips, wanted}) {
      consider(cutOff(rule, caps));
      consider(scaledDown(rule, caps));
    }
    consider(Counts(ranks, 0));
    if (tried.empty())
      return book;
    counts = std::min_element(tried.begin(), tried.end())->counts;
    if (!lowerCaps(counts, caps))
      return counts;
    llvm::erase_if(tried, [&](const Tried &of) { return of.counts == counts; });
  }
  return choice.sizes.chunks == 1 ? Counts(ranks, 0) : counts;
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
  bool isShort = choice.sizes.chunks > 1 &&
                 choice.sizes.microbatches % choice.sizes.groupSize != 0;
  if (!isShort || objectiveOf(counts))
    return counts;
  uint32_t bad = 0, good = 1;
  while (good < most && !objectiveOf(more(good))) {
    bad = good;
    good *= 2;
  }
  while (good - bad > 1) {
    uint32_t middle = bad + (good - bad) / 2;
    (objectiveOf(more(middle)) ? good : bad) = middle;
  }
  return more(good);
}

WarmupCounts WarmupSearch::runStandard() {
  Counts rule = standard(), counts = standardThatRuns();
  WarmupCounts result = perRank(counts, counts);
  if (uint32_t most = counts.front() - rule.front())
    result.bounds.push_back("warmup: " + std::to_string(most) +
                            " more on each rank than the rule of " +
                            std::string(choice.info->text) +
                            " says, so that the ranks do not wait for each "
                            "other in the last group");
  return result;
}

WarmupCounts standardWarmup(Compilation &compilation) {
  return WarmupSearch(compilation).runStandard();
}

WarmupCounts searchWarmup(Compilation &compilation) {
  return WarmupSearch(compilation).run();
}

} // namespace sluice
