#include "compiler/simulate/Simulate.h"
#include "ir/Words.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sluice {

static std::string titleOf(const std::string &schedule, size_t ranks,
                           uint32_t microbatches) {
  return schedule + ", " + counted(ranks, "rank") + ", " +
         counted(microbatches, "microbatch", "microbatches");
}

/// Rank after rank, each in order of start.
static void sortSpans(std::vector<TimelineSpan> &spans) {
  std::stable_sort(spans.begin(), spans.end(),
                   [](const TimelineSpan &a, const TimelineSpan &b) {
                     return std::pair(a.rank, a.start) <
                            std::pair(b.rank, b.start);
                   });
}

namespace {

/// Gives messages of a rank, in order of start, the first stream that is free.
class Lanes {
public:
  explicit Lanes(uint32_t ranks) : freeAt(ranks) {}

  uint8_t take(Id rank, Ticks start, Ticks end) {
    std::vector<Ticks> &lanes = freeAt[rank];
    size_t lane = 0;
    while (lane < lanes.size() && lanes[lane] > start)
      ++lane;
    lane = std::min<size_t>(lane, std::numeric_limits<uint8_t>::max() - 1);
    if (lane == lanes.size())
      lanes.push_back(end);
    lanes[lane] = end;
    return static_cast<uint8_t>(lane + 1);
  }

private:
  std::vector<std::vector<Ticks>> freeAt;
};

} // namespace

/// The first consumer of `value` on `rank`.
static Id consumerOn(const Graph &graph, const ScheduleTiming &timing, Id value,
                     Id rank) {
  for (Id node : graph.consumers(value))
    if (timing.rankOf[node] == rank)
      return node;
  return graph.values[value].producer;
}

static void addMessage(const Graph &graph, const ScheduleTiming &timing,
                       const Message &message, Lanes &lanes,
                       std::vector<TimelineSpan> &spans) {
  const Value &value = graph.values[message.value];
  Op send =
      value.kind == ValueKind::Gradient ? Op::SendBackward : Op::SendForward;
  auto add = [&](Id rank, Id node, Op op) {
    uint8_t lane = lanes.take(rank, message.start, message.end);
    spans.push_back({message.start, message.end, rank, graph.nodes[node].stage,
                     graph.nodes[node].microbatch, op, lane});
  };
  add(message.source, value.producer, send);
  add(message.destination,
      consumerOn(graph, timing, message.value, message.destination),
      info(send).mate);
}

Timeline timelineOf(const Graph &graph, const Schedule &schedule,
                    const ScheduleTiming &timing) {
  Timeline timeline;
  timeline.title = titleOf(schedule.name, schedule.ranks(), graph.microbatches);
  timeline.unit = graph.timeUnit;
  timeline.ranks = schedule.ranks();
  for (Id node : timing.topological) {
    const Node &computed = graph.nodes[node];
    timeline.spans.push_back(
        {timing.start[node], timing.end[node], timing.rankOf[node],
         computed.stage, computed.microbatch, computed.op, kComputeStream});
  }
  Lanes lanes(schedule.ranks());
  for (const Message &message : timing.messages)
    if (message.end > message.start)
      addMessage(graph, timing, message, lanes, timeline.spans);
  sortSpans(timeline.spans);
  return timeline;
}

Timeline timelineOf(const Plan &plan, const PlanTiming &timing) {
  Timeline timeline;
  timeline.title = titleOf(plan.schedule, plan.ranks.size(), plan.microbatches);
  timeline.unit = plan.timeUnit;
  timeline.ranks = static_cast<uint32_t>(plan.ranks.size());
  for (Id rank = 0; rank < plan.ranks.size(); ++rank)
    for (size_t i = 0; i < plan.ranks[rank].ops.size(); ++i) {
      const PlanOp &op = plan.ranks[rank].ops[i];
      timeline.spans.push_back({timing.start[rank][i], timing.end[rank][i],
                                rank, op.stage, op.microbatch, op.op,
                                op.stream});
    }
  sortSpans(timeline.spans);
  return timeline;
}

} // namespace sluice
