//===- compiler/simulate/LowerBound.cpp - Bounds of makespan and span -----===//
//
// Derived from what one rank must wait for; after the reasoning in Qi et al.,
// "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241) and "Pipeline
// Parallelism with Controllable Memory" (arXiv 2405.15362), here for any number
// of stages on a rank.
//
// A chain of stages; rank r holds a < … < z (one stage: a = z). F, I, W: times
// of a stage, R where it recomputes, else 0; M: what its backward needs of a
// microbatch in bytes, of which K stay until W; L: what its forward leaves, M
// where it does not recompute; A: bytes that r has for them. path(x, y): time
// of the chain from the start of x to the start of y, messages between ranks
// included; the R of the last stage is on it, the others may be done while the
// gradient is on its way.
//   head   The first backward on r comes path(F_a, I_z) after its first forward
//          at least, and only forwards that fit, and R of them, can run until
//          then: idle ≥ path(F_a, I_z)
//                 - max{Σ x_c F_c + Σ y_c R_c :
//                       Σ x_c L_c + Σ y_c (M_c - L_c) ≤ A, x_c, y_c ≤ m}.
//   tail   The last forward on r is one of z. Until I_a of its microbatch pass
//          path(F_z, I_a) - F_z, and only what is in memory then can run, less
//          that I_a and its W:
//          idle ≥ path(F_z, I_a) - F_z + I_a + W_a
//                 - max{Σ x_c (R_c + I_c + W_c) + Σ y_c W_c :
//                       Σ x_c L_c + Σ y_c K_c ≤ A, x_c + y_c ≤ m}.
//   Both windows are apart if not all forwards fit (the last cannot come before
//   the first backward): add them; else take the larger.
//   bytes  Each microbatch holds L_c from F_c to R_c, M_c from there to the end
//          of I_c and K_c for W_c (Little's law):
//          A·span ≥ m·Σ_c (L_c (max(path(F_c, I_c), F_c + R_c) - R_c)
//                          + M_c (R_c + I_c) + K_c W_c).
//   So span_r ≥ max(m Σ_c (F_c+R_c+I_c+W_c) + idle, bytes).
//   start  Rank r cannot start before path(F_0, F_a).
//   finish After the last I on r its gradient passes every stage before a, and
//          each of these ends with the W of that microbatch. Of r's own W only
//          as many can be put off until after its last I as fit.
//   makespan ≥ start + span_r, and ≥ start + m Σ_c (F_c+R_c+I_c) + W not put
//   off
//   + idle + finish.
// With one stage a rank the maxima are over one kind and exact; with several
// they are bounded by filling memory with what works most per byte.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulate/LowerBound.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sluice {
namespace {

Ticks clamp(__int128 time) {
  return static_cast<Ticks>(
      std::clamp<__int128>(time, 0, static_cast<__int128>(kMaxTicks)));
}

/// A kind of thing that memory can be filled with.
struct Item {
  __int128 work;  ///< of one
  Bytes bytes;    ///< of one
  uint32_t count; ///< there are no more
};

/// The most work of items that fit in `room` bytes, or a little more: parts of
/// an item count. All fits without a limit.
__int128 mostWork(std::vector<Item> items, std::optional<Bytes> room) {
  __int128 work = 0;
  auto takesNone = [&](const Item &item) { return !room || item.bytes == 0; };
  for (const Item &item : items)
    if (takesNone(item))
      work += item.work * item.count;
  items.erase(std::remove_if(items.begin(), items.end(), takesNone),
              items.end());
  std::sort(items.begin(), items.end(), [](const Item &a, const Item &b) {
    return a.work * b.bytes > b.work * a.bytes;
  });
  __int128 left = room.value_or(0);
  for (const Item &item : items) {
    __int128 all = __int128(item.bytes) * item.count;
    if (all <= left) {
      work += item.work * item.count;
      left -= all;
      continue;
    }
    // Rounded up: the part that still fits.
    __int128 whole = left / item.bytes, rest = left % item.bytes;
    work += item.work * whole;
    return work + (item.work / item.bytes + 1) * rest;
  }
  return work;
}

/// The stages of a rank, in order, and the bytes for what they save.
struct RankStages {
  std::vector<Id> stages;
  std::optional<Bytes> room; ///< none: unlimited
};

class ChainBound {
public:
  ChainBound(const Graph &graph, const Network &network,
             std::optional<Bytes> memory, std::vector<Id> ranksOfStages)
      : graph(graph), network(network), memory(memory),
        rankOf(std::move(ranksOfStages)), m(graph.microbatches) {
    addTimes();
  }

  Ticks bound(Objective objective, uint32_t ranks) const;

private:
  const Stage &stage(Id id) const { return graph.stages[id]; }
  Bytes keptOf(Id id) const {
    return std::min(stage(id).bytes.keptForWeight, stage(id).bytes.activation);
  }
  Ticks recomputeOf(Id id) const {
    return stage(id).recomputes() ? stage(id).recompute : 0;
  }
  /// What a forward leaves, at most what its backward needs.
  Bytes leftOf(Id id) const {
    const StageBytes &bytes = stage(id).bytes;
    Bytes left = !stage(id).recomputes()     ? bytes.activation
                 : stage(id).hasCheckpoint() ? bytes.checkpoint
                                             : bytes.keptForWeight;
    return std::min(left, bytes.activation);
  }
  void addTimes();
  __int128 message(Id edge, bool back) const;
  std::optional<Bytes> roomOf(const std::vector<Id> &stages) const;
  /// From the start of F of `from` to the start of I of `to`.
  __int128 path(Id from, Id to) const {
    return turn - forwardAt[from] + backwardAt[to];
  }
  __int128 head(const RankStages &rank) const;
  __int128 tail(const RankStages &rank) const;
  __int128 idle(const RankStages &rank) const;
  __int128 byteTime(const RankStages &rank) const;
  __int128 weightsLeft(const RankStages &rank) const;
  __int128 ofRank(const RankStages &rank, Objective objective) const;

  const Graph &graph;
  const Network &network;
  std::optional<Bytes> memory;
  std::vector<Id> rankOf; ///< per stage
  __int128 m;
  /// Of one microbatch alone: when F of a stage starts after that of stage 0,
  /// when the last F has ended, and when I starts after that.
  std::vector<__int128> forwardAt, backwardAt;
  /// From the end of an I of a stage to the end of the step.
  std::vector<__int128> finish;
  __int128 turn = 0;
};

void ChainBound::addTimes() {
  auto count = static_cast<Id>(graph.stages.size());
  forwardAt.assign(count, 0);
  backwardAt.assign(count, 0);
  finish.assign(count, 0);
  for (Id s = 1; s < count; ++s)
    forwardAt[s] =
        forwardAt[s - 1] + stage(s - 1).forward + message(s - 1, false);
  turn =
      forwardAt[count - 1] + stage(count - 1).forward + recomputeOf(count - 1);
  for (Id s = count - 1; s-- > 0;)
    backwardAt[s] =
        backwardAt[s + 1] + stage(s + 1).backwardInput + message(s, true);
  for (Id s = 0; s + 1 < count; ++s)
    finish[s + 1] = message(s, true) + stage(s).backwardInput +
                    std::max<__int128>(stage(s).backwardWeight, finish[s]);
}

/// Time of a message over edge `edge`, between stages `edge` and `edge` + 1.
__int128 ChainBound::message(Id edge, bool back) const {
  Id low = rankOf[edge], high = rankOf[edge + 1];
  if (low == high)
    return 0;
  Link link = back ? network.between(high, low) : network.between(low, high);
  return __int128(link.latency) +
         link.occupancy(graph.edges[edge].bytes, graph.timeUnit);
}

std::optional<Bytes> ChainBound::roomOf(const std::vector<Id> &stages) const {
  if (!memory)
    return std::nullopt;
  __int128 rest = *memory;
  Bytes one = 0, workspace = 0;
  for (Id id : stages) {
    const StageBytes &bytes = stage(id).bytes;
    rest -= __int128(bytes.parameters) + stage(id).gradientsKept() +
            bytes.optimizer;
    workspace = std::max(workspace, bytes.workspace);
    one += bytes.activation;
  }
  rest -= workspace;
  // One microbatch runs in any case, or there is no schedule at all.
  return std::max(rest < 0 ? 0 : static_cast<Bytes>(rest), one);
}

__int128 ChainBound::head(const RankStages &rank) const {
  std::vector<Item> forwards;
  for (Id id : rank.stages)
    forwards.push_back({stage(id).forward, leftOf(id), graph.microbatches});
  for (Id id : rank.stages)
    if (Ticks again = recomputeOf(id); again != 0)
      forwards.push_back(
          {again, stage(id).bytes.activation - leftOf(id), graph.microbatches});
  if (forwards.size() == 1 && rank.room && forwards[0].bytes != 0) {
    Bytes fit = *rank.room / forwards[0].bytes; // whole ones only
    return path(rank.stages.front(), rank.stages.back()) -
           __int128(std::min<Bytes>(fit, graph.microbatches)) *
               forwards[0].work;
  }
  return path(rank.stages.front(), rank.stages.back()) -
         mostWork(std::move(forwards), rank.room);
}

__int128 ChainBound::tail(const RankStages &rank) const {
  Id first = rank.stages.front(), last = rank.stages.back();
  __int128 window = path(last, first) - stage(last).forward +
                    stage(first).backwardInput + stage(first).backwardWeight;
  std::vector<Item> items;
  for (Id id : rank.stages) {
    const Stage &of = stage(id);
    items.push_back(
        {__int128(recomputeOf(id)) + of.backwardInput + of.backwardWeight,
         leftOf(id), graph.microbatches});
    items.push_back({of.backwardWeight, keptOf(id), graph.microbatches});
  }
  if (rank.stages.size() > 1 || !rank.room)
    return window - mostWork(std::move(items), rank.room);
  // One stage: x microbatches before I and y before W, whole ones.
  __int128 filled = 0;
  Bytes saved = std::max<Bytes>(1, items[0].bytes);
  auto most = static_cast<uint32_t>(
      items[0].bytes == 0
          ? graph.microbatches
          : std::min<Bytes>(*rank.room / saved, graph.microbatches));
  for (uint32_t x = 1; x <= most; ++x) {
    uint32_t y = graph.microbatches - x;
    if (items[1].bytes != 0)
      y = static_cast<uint32_t>(std::min<Bytes>(
          y, (*rank.room - x * items[0].bytes) / items[1].bytes));
    filled = std::max(filled, x * items[0].work + y * items[1].work);
  }
  return window - filled;
}

__int128 ChainBound::idle(const RankStages &rank) const {
  __int128 before = std::max<__int128>(head(rank), 0);
  __int128 after = std::max<__int128>(tail(rank), 0);
  __int128 all = 0;
  for (Id id : rank.stages)
    all += m * leftOf(id);
  bool apart = rank.room && all > __int128(*rank.room);
  return apart ? before + after : std::max(before, after);
}

/// The bound by bytes, 0 where it does not hold or its product is beyond 128
/// bits.
__int128 ChainBound::byteTime(const RankStages &rank) const {
  if (!rank.room || *rank.room == 0)
    return 0;
  __int128 product = 0;
  for (Id id : rank.stages) {
    __int128 again = recomputeOf(id);
    __int128 left = std::max(path(id, id), stage(id).forward + again) - again;
    __int128 held = 0, needed = 0, kept = 0;
    if (__builtin_mul_overflow(__int128(leftOf(id)), left, &held) ||
        __builtin_mul_overflow(__int128(stage(id).bytes.activation),
                               again + stage(id).backwardInput, &needed) ||
        __builtin_add_overflow(held, needed, &held) ||
        __builtin_mul_overflow(__int128(keptOf(id)),
                               __int128(stage(id).backwardWeight), &kept) ||
        __builtin_add_overflow(held, kept, &held) ||
        __builtin_mul_overflow(held, m, &held) ||
        __builtin_add_overflow(product, held, &product))
      return 0;
  }
  __int128 bytes = *rank.room;
  return product / bytes + (product % bytes != 0);
}

/// Weight gradients that cannot be put off until after the last I.
__int128 ChainBound::weightsLeft(const RankStages &rank) const {
  std::vector<Item> items;
  __int128 all = 0;
  for (Id id : rank.stages) {
    items.push_back({stage(id).backwardWeight, keptOf(id), graph.microbatches});
    all += m * stage(id).backwardWeight;
  }
  if (items.size() == 1 && rank.room && items[0].bytes != 0) {
    Bytes fit = std::max<Bytes>(1, *rank.room / items[0].bytes);
    return all -
           __int128(std::min<Bytes>(fit, graph.microbatches)) * items[0].work;
  }
  return std::max<__int128>(0, all - mostWork(std::move(items), rank.room));
}

__int128 ChainBound::ofRank(const RankStages &rank, Objective objective) const {
  __int128 inputs = 0, weights = 0;
  for (Id id : rank.stages) {
    inputs += m * (__int128(stage(id).forward) + recomputeOf(id) +
                   stage(id).backwardInput);
    weights += m * stage(id).backwardWeight;
  }
  __int128 waiting = idle(rank);
  __int128 span = std::max(inputs + weights + waiting, byteTime(rank));
  if (objective == Objective::Span)
    return span;
  Id first = rank.stages.front();
  return forwardAt[first] +
         std::max(span, inputs + weightsLeft(rank) + waiting + finish[first]);
}

Ticks ChainBound::bound(Objective objective, uint32_t ranks) const {
  std::vector<RankStages> held(ranks);
  for (Id s = 0; s < rankOf.size(); ++s)
    held[rankOf[s]].stages.push_back(s);
  __int128 best = 0;
  for (RankStages &rank : held) {
    if (rank.stages.empty())
      continue;
    rank.room = roomOf(rank.stages);
    best = std::max(best, ofRank(rank, objective));
  }
  return clamp(best);
}

/// How often each operation of a stage occurs.
using OpCounts = std::array<uint32_t, kOpCount>;

bool stagesAreChain(const Graph &graph) {
  size_t count = graph.stages.size();
  if (count == 0 || graph.edges.size() + 1 != count)
    return false;
  for (Id i = 0; i < graph.edges.size(); ++i)
    if (graph.edges[i].from != i || graph.edges[i].to != i + 1)
      return false;
  return true;
}

/// The rank of each stage of a chain in which each is on one rank, with one
/// forward and one backward per microbatch at its costs, and saves nothing by
/// pairs; none of anything else.
std::optional<std::vector<Id>> ranksOfChain(const Graph &graph,
                                            const ScheduleTiming &timing) {
  if (!stagesAreChain(graph))
    return std::nullopt;
  std::vector<OpCounts> counts(graph.stages.size());
  std::vector<Id> rankOf(graph.stages.size(), kNone);
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    const Node &n = graph.nodes[node];
    Id &rank = rankOf[n.stage];
    if (rank == kNone)
      rank = timing.rankOf[node];
    if (rank != timing.rankOf[node] ||
        n.duration != graph.stages[n.stage].duration(n.op) ||
        graph.stages[n.stage].overlapSaving != 0)
      return std::nullopt;
    ++counts[n.stage][static_cast<unsigned>(n.op)];
  }
  auto complete = [&](const OpCounts &of) {
    auto number = [&](Op op) { return of[static_cast<unsigned>(op)]; };
    const Stage &stage = graph.stages[&of - counts.data()];
    uint32_t m = graph.microbatches, fused = number(Op::Backward);
    return number(Op::Forward) == m &&
           number(Op::Recompute) == (stage.recomputes() ? m : 0) &&
           fused + number(Op::BackwardInput) == m &&
           fused + number(Op::BackwardWeight) == m;
  };
  if (!std::all_of(counts.begin(), counts.end(), complete))
    return std::nullopt;
  return rankOf;
}

/// Part of `node`'s time after which what depends on it can start, if its
/// backward is split.
Ticks timeToOutput(const Graph &graph, const Node &node) {
  if (node.op == Op::Backward)
    return std::min(node.duration, graph.stages[node.stage].backwardInput);
  return node.duration;
}

/// Longest path, and for each rank its earliest start and its work.
Ticks generalBound(const Graph &graph, const Schedule &schedule,
                   const ScheduleTiming &timing, Objective objective) {
  std::vector<Ticks> earliest(graph.nodes.size(), 0);
  std::vector<Ticks> first(schedule.ranks(), kMaxTicks);
  std::vector<__int128> work(schedule.ranks(), 0);
  Ticks longest = 0;
  for (Id node : timing.topological) {
    const Node &n = graph.nodes[node];
    Id rank = timing.rankOf[node];
    first[rank] = std::min(first[rank], earliest[node]);
    work[rank] += n.duration;
    if (n.op == Op::Forward) // it may run together with a backward
      work[rank] -= graph.stages[n.stage].overlapSaving;
    longest = std::max(longest, clamp(__int128(earliest[node]) + n.duration));
    Ticks out = clamp(__int128(earliest[node]) + timeToOutput(graph, n));
    auto [begin, end] = graph.outputs(node);
    for (Id value = begin; value < end; ++value)
      for (Id consumer : graph.consumers(value))
        earliest[consumer] = std::max(earliest[consumer], out);
  }
  bool makespan = objective == Objective::Makespan;
  Ticks bound = makespan ? longest : 0;
  for (Id rank = 0; rank < schedule.ranks(); ++rank)
    bound = std::max(bound, clamp(work[rank] + (makespan && work[rank] != 0
                                                    ? __int128(first[rank])
                                                    : 0)));
  return bound;
}

} // namespace

Ticks lowerBound(const Graph &graph, const Schedule &schedule,
                 const ScheduleTiming &timing, const Network &network,
                 Objective objective, std::optional<Bytes> memory) {
  Ticks bound = generalBound(graph, schedule, timing, objective);
  if (std::optional<std::vector<Id>> ranks = ranksOfChain(graph, timing))
    bound =
        std::max(bound, ChainBound(graph, network, memory, std::move(*ranks))
                            .bound(objective, schedule.ranks()));
  return bound;
}

} // namespace sluice
