//===- LowerBound.cpp - Bounds of makespan and span ----------------------===//
//
// Derived from what one rank must wait for; after the reasoning in Qi et al.,
// "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241) and "Pipeline
// Parallelism with Controllable Memory" (arXiv 2405.15362).
//
// Chain, one stage a rank. F, I, W: times of stage r; C: of a message; M_B: its
// saved bytes per microbatch, of which M_W stay until W; A: bytes that a rank
// has for them. L = min(m, A / M_B) microbatches fit before any backward.
// D_r = Σ_{j>r} (F_j + I_j + both messages between j-1 and j): from the end of
// a forward on r to the earliest start of its backward.
//   head   From the first forward to the first backward pass F_r + D_r at
//          least, and only forwards that fit can run: idle ≥ F_r + D_r - L·F_r.
//   tail   From the end of the last forward to the start of its backward pass
//          D_r at least, and only backwards of what is then in memory can run:
//          x microbatches before I (one of them the last itself) and y before
//          W: idle ≥ D_r - max{(x-1)(I_r+W_r) + y·W_r : x·M_B + y·M_W ≤ A,
//          x + y ≤ m}.
//   Both windows are apart if m > L (the last forward cannot come before the
//   first backward): add them; else take the larger.
//   bytes  Each microbatch holds M_B for F_r + D_r + I_r at least and M_W for
//          W_r (Little's law): A·span ≥ m·(M_B(F_r+D_r+I_r) + M_W·W_r).
//   So span_r ≥ max(m(F_r+I_r+W_r) + idle, bytes).
//   start  Rank r cannot start before Σ_{j<r} (F_j + C).
//   finish After the last I on r its gradient passes every j < r, and each of
//          these ends with the W of that microbatch. Of r's own W at most
//          min(m, A / M_W) can be put off until after its last I.
//   makespan ≥ start + span_r, and ≥ start + m(F_r+I_r) + W not put off + idle
//   + finish.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulate/LowerBound.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

Ticks clamp(__int128 time) {
  return static_cast<Ticks>(
      std::clamp<__int128>(time, 0, static_cast<__int128>(kMaxTicks)));
}

/// What a rank can hold, and the bytes of its stage.
struct Room {
  uint32_t microbatches;
  std::optional<Bytes> bytes; ///< for activations; none: unlimited
  Bytes saved;                ///< M_B
  Bytes kept;                 ///< M_W

  uint32_t fit(Bytes each) const {
    if (!bytes || each == 0)
      return microbatches;
    Bytes count = std::max<Bytes>(1, *bytes / each);
    return static_cast<uint32_t>(std::min<Bytes>(count, microbatches));
  }
};

class ChainBound {
public:
  ChainBound(const Graph &graph, const Network &network,
             std::optional<Bytes> memory)
      : graph(graph), network(network), memory(memory), m(graph.microbatches) {}

  Ticks bound(Objective objective) const;

private:
  __int128 forwardMessage(size_t edge) const { return message(edge, false); }
  __int128 backwardMessage(size_t edge) const { return message(edge, true); }
  __int128 message(size_t edge, bool back) const;
  Room room(const Stage &stage) const;
  __int128 idle(const Stage &stage, const Room &room, __int128 ahead) const;
  __int128 span(const Stage &stage, const Room &room, __int128 ahead) const;
  __int128 byteTime(const Stage &stage, const Room &room, __int128 ahead) const;

  const Graph &graph;
  const Network &network;
  std::optional<Bytes> memory;
  __int128 m;
};

/// Time of a message over edge `edge`, between ranks `edge` and `edge` + 1.
__int128 ChainBound::message(size_t edge, bool back) const {
  Id low = static_cast<Id>(edge), high = low + 1;
  Link link = back ? network.between(high, low) : network.between(low, high);
  return __int128(link.latency) +
         link.occupancy(graph.edges[edge].bytes, graph.timeUnit);
}

Room ChainBound::room(const Stage &stage) const {
  const StageBytes &bytes = stage.bytes;
  Room room{graph.microbatches, std::nullopt, bytes.activation,
            std::min(bytes.keptForWeight, bytes.activation)};
  if (memory) {
    __int128 rest = __int128(*memory) - bytes.parameters - bytes.gradients -
                    bytes.optimizer - bytes.workspace;
    // One microbatch runs in any case, or there is no schedule at all.
    room.bytes = std::max(rest < 0 ? 0 : static_cast<Bytes>(rest), room.saved);
  }
  return room;
}

__int128 ChainBound::idle(const Stage &stage, const Room &room,
                          __int128 ahead) const {
  uint32_t fit = room.fit(room.saved);
  __int128 head = stage.forward + ahead - __int128(fit) * stage.forward;
  __int128 filled = 0;
  for (uint32_t x = 1; x <= fit; ++x) {
    uint32_t y = room.microbatches - x;
    if (room.bytes && room.kept != 0)
      y = static_cast<uint32_t>(
          std::min<Bytes>(y, (*room.bytes - x * room.saved) / room.kept));
    filled = std::max(
        filled, __int128(x - 1) * (stage.backwardInput + stage.backwardWeight) +
                    __int128(y) * stage.backwardWeight);
  }
  head = std::max<__int128>(head, 0);
  __int128 tail = std::max<__int128>(ahead - filled, 0);
  return room.microbatches > fit ? head + tail : std::max(head, tail);
}

__int128 ChainBound::span(const Stage &stage, const Room &room,
                          __int128 ahead) const {
  __int128 work =
      m * (stage.forward + stage.backwardInput + stage.backwardWeight) +
      idle(stage, room, ahead);
  return std::max(work, byteTime(stage, room, ahead));
}

/// The bound by bytes, 0 where it does not hold or its product is beyond 128
/// bits.
__int128 ChainBound::byteTime(const Stage &stage, const Room &room,
                              __int128 ahead) const {
  if (!room.bytes || *room.bytes == 0)
    return 0;
  __int128 held = 0, kept = 0, product = 0;
  if (__builtin_mul_overflow(__int128(room.saved),
                             stage.forward + ahead + stage.backwardInput,
                             &held) ||
      __builtin_mul_overflow(__int128(room.kept),
                             __int128(stage.backwardWeight), &kept) ||
      __builtin_add_overflow(held, kept, &held) ||
      __builtin_mul_overflow(held, m, &product))
    return 0;
  __int128 bytes = *room.bytes;
  return product / bytes + (product % bytes != 0);
}

Ticks ChainBound::bound(Objective objective) const {
  size_t ranks = graph.stages.size();
  __int128 ahead = 0;
  for (size_t r = 1; r < ranks; ++r)
    ahead += graph.stages[r].forward + graph.stages[r].backwardInput +
             forwardMessage(r - 1) + backwardMessage(r - 1);
  __int128 start = 0, finish = 0, best = 0;
  for (size_t r = 0; r < ranks; ++r) {
    const Stage &stage = graph.stages[r];
    Room here = room(stage);
    __int128 longest = span(stage, here, ahead);
    best = std::max(best, longest);
    if (objective == Objective::Makespan) {
      __int128 notPutOff = m - here.fit(here.kept);
      __int128 through = m * (stage.forward + stage.backwardInput) +
                         notPutOff * stage.backwardWeight +
                         idle(stage, here, ahead) + finish;
      best = std::max(best, start + std::max(longest, through));
    }
    if (r + 1 == ranks)
      break;
    start += stage.forward + forwardMessage(r);
    finish = backwardMessage(r) + stage.backwardInput +
             std::max<__int128>(stage.backwardWeight, finish);
    const Stage &next = graph.stages[r + 1];
    ahead -= next.forward + next.backwardInput + forwardMessage(r) +
             backwardMessage(r);
  }
  return clamp(best);
}

/// How often each operation of a stage occurs.
using OpCounts = std::array<uint32_t, kOpCount>;

bool stagesAreChain(const Graph &graph, const Schedule &schedule) {
  size_t count = graph.stages.size();
  if (count == 0 || count != schedule.ranks() ||
      graph.edges.size() + 1 != count)
    return false;
  for (Id i = 0; i < graph.edges.size(); ++i)
    if (graph.edges[i].from != i || graph.edges[i].to != i + 1)
      return false;
  return true;
}

/// One stage a rank in order, each with one forward and one backward per
/// microbatch at its stage's costs.
bool isChain(const Graph &graph, const Schedule &schedule,
             const ScheduleTiming &timing) {
  if (!stagesAreChain(graph, schedule))
    return false;
  std::vector<OpCounts> counts(graph.stages.size());
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    const Node &n = graph.nodes[node];
    if (n.stage != timing.rankOf[node] ||
        n.duration != graph.stages[n.stage].duration(n.op))
      return false;
    ++counts[n.stage][static_cast<unsigned>(n.op)];
  }
  auto complete = [&](const OpCounts &of) {
    auto number = [&](Op op) { return of[static_cast<unsigned>(op)]; };
    uint32_t m = graph.microbatches, fused = number(Op::Backward);
    return number(Op::Forward) == m && number(Op::Recompute) == 0 &&
           fused + number(Op::BackwardInput) == m &&
           fused + number(Op::BackwardWeight) == m;
  };
  return std::all_of(counts.begin(), counts.end(), complete);
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
  if (isChain(graph, schedule, timing))
    bound =
        std::max(bound, ChainBound(graph, network, memory).bound(objective));
  return bound;
}

} // namespace sluice
