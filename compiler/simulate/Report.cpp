#include "compiler/simulate/Report.h"

#include "compiler/simulate/LowerBound.h"
#include "compiler/simulate/PartNotes.h"

#include "llvm/ADT/DenseMap.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

bool isBackward(Op op) {
  Flight flight = info(op).flight;
  return flight == Flight::ClosesInput || flight == Flight::ClosesWeight ||
         flight == Flight::ClosesBoth;
}

/// A stage-microbatch on its way through a rank.
struct Sample {
  Id stage;
  Id microbatch;
  uint32_t openers = 0; ///< operations that open it and that close it
  uint32_t closers = 0;
  Bytes held = 0;
  bool operator<(const Sample &other) const {
    return std::pair(stage, microbatch) <
           std::pair(other.stage, other.microbatch);
  }
};

/// Walks the order of a rank and counts what is in flight.
class FlightCount {
public:
  FlightCount(const Graph &graph, std::span<const Id> order,
              const std::vector<Id> &stages)
      : graph(graph), order(order) {
    for (Id stage : stages)
      weighted |= graph.stages[stage].bytes.activation != 0;
  }

  void walk(RankReport &report);

private:
  void collect();
  Sample &sampleOf(const Node &node);
  void take(const Node &node);
  void close(const Node &node);
  Bytes weightOf(Id stage) const {
    return weighted ? graph.stages[stage].bytes.activation : 1;
  }

  const Graph &graph;
  std::span<const Id> order;
  std::vector<Sample> samples; ///< sorted
  bool weighted = false;
  uint32_t count = 0;
  Bytes held = 0, mostHeld = 0;
};

void FlightCount::collect() {
  samples.reserve(order.size());
  for (Id node : order)
    samples.push_back({graph.nodes[node].stage, graph.nodes[node].microbatch});
  std::sort(samples.begin(), samples.end());
  auto same = [](const Sample &a, const Sample &b) {
    return !(a < b) && !(b < a);
  };
  samples.erase(std::unique(samples.begin(), samples.end(), same),
                samples.end());
  for (Id node : order)
    if (isBackward(graph.nodes[node].op))
      ++sampleOf(graph.nodes[node]).closers;
}

Sample &FlightCount::sampleOf(const Node &node) {
  return *std::lower_bound(samples.begin(), samples.end(),
                           Sample{node.stage, node.microbatch});
}

/// What F leaves for its backward, or R makes of that.
void FlightCount::take(const Node &node) {
  const Stage &stage = graph.stages[node.stage];
  bool forward = node.op == Op::Forward;
  Bytes kept = stage.bytes.keptForWeight, taken = 0;
  if (!weighted)
    taken = forward ? 1 : 0;
  else
    taken = (node.op == stage.savedBy() ? stage.bytes.activation - kept : 0) +
            (node.op == stage.keptBy() ? kept : 0) +
            (forward && stage.hasCheckpoint() ? stage.bytes.checkpoint : 0);
  Sample &sample = sampleOf(node);
  sample.held += taken;
  held += taken;
  mostHeld = std::max(mostHeld, held);
  if (weighted && !forward && stage.hasCheckpoint()) {
    Bytes gone = std::min(stage.bytes.checkpoint, sample.held);
    sample.held -= gone;
    held -= gone;
  }
}

/// I gives back what W does not need; the last that closes gives all.
void FlightCount::close(const Node &node) {
  Sample &sample = sampleOf(node);
  if (sample.closers > 0)
    --sample.closers;
  Bytes kept = 0;
  if (sample.closers > 0) {
    const StageBytes &bytes = graph.stages[node.stage].bytes;
    bool input = info(node.op).flight == Flight::ClosesInput;
    kept = weighted && input ? std::min(bytes.keptForWeight, sample.held)
                             : sample.held;
  }
  held -= sample.held - kept;
  sample.held = kept;
  if (sample.closers == 0 && sample.openers > 0) {
    --sample.openers;
    --count;
  }
}

void FlightCount::walk(RankReport &report) {
  collect();
  for (Id id : order) {
    const Node &node = graph.nodes[id];
    if (info(node.op).flight == Flight::Opens) {
      Sample &sample = sampleOf(node);
      ++sample.openers;
      take(node);
      report.peakInFlight = std::max(report.peakInFlight, ++count);
      // Without a backward, nothing is kept past the forward.
      if (sample.closers == 0)
        close(node);
    } else if (node.op == Op::Recompute) {
      take(node);
    } else if (isBackward(node.op)) {
      close(node);
    }
  }
  // A microbatch on the whole rank: the mean, as two copies of the stages share
  // the microbatches.
  double all = 0;
  for (const Sample &sample : samples)
    all += static_cast<double>(weightOf(sample.stage));
  if (all != 0)
    report.peakActivation =
        static_cast<double>(mostHeld) * graph.microbatches / all;
}

/// Fills a report from its input, part by part.
class ReportBuilder {
public:
  explicit ReportBuilder(const ReportInput &input)
      : in(input), graph(input.graph) {}

  Report build();

private:
  void names();
  void rank(Id number);
  void memory(Id number);
  void bounds();
  void slowest();
  void weightOrder();
  void pairs();
  void path();
  void recomputes();
  void moves();
  void notes();

  const ReportInput &in;
  const Graph &graph;
  Report report;
  bool offloads = false;        ///< some stage does
  std::vector<Ticks> stageWork; ///< per stage: time of all its operations
  std::vector<Id> stageRank;
  llvm::DenseMap<Id, Id> partner; ///< nodes that run together, both ways
};

void ReportBuilder::names() {
  report.model = in.model;
  report.costs = in.costs;
  report.sizes = in.sizes;
  report.schedule = in.schedule.name;
  report.ranks = in.schedule.ranks();
  report.stages = static_cast<uint32_t>(graph.stages.size());
  if (report.ranks != 0)
    report.virtualStages = (report.stages + report.ranks - 1) / report.ranks;
  report.microbatches = graph.microbatches;
  report.timeUnit = graph.timeUnit;
  report.makespan = in.timing.makespan;
  report.span = in.timing.span;
  report.objective = in.objective;
  report.warnings = in.warnings;
  for (const Stage &stage : graph.stages) {
    report.layers += stage.layers;
    report.parameters += stage.parameterCount;
    report.activeParameters += stage.activeParameterCount;
    offloads |= stage.offload;
  }
}

void ReportBuilder::rank(Id number) {
  RankReport &out = report.perRank[number];
  std::span<const Id> order = in.schedule.rank(number);
  const ScheduleTiming &timing = in.timing;
  bool backwardSeen = false;
  Ticks busyUntil = 0;
  for (Id id : order) {
    const Node &node = graph.nodes[id];
    out.stages.push_back(node.stage);
    stageWork[node.stage] += node.duration;
    if (stageRank[node.stage] == kNone)
      stageRank[node.stage] = number;
    backwardSeen |= isBackward(node.op);
    if (timing.start[id] >= busyUntil) { // else of the pair before
      out.busy += timing.end[id] - timing.start[id];
      busyUntil = timing.end[id];
    }
    if (!backwardSeen && info(node.op).flight == Flight::Opens)
      ++out.forwardsBeforeBackward;
  }
  std::sort(out.stages.begin(), out.stages.end());
  out.stages.erase(std::unique(out.stages.begin(), out.stages.end()),
                   out.stages.end());
  for (Id stage : out.stages)
    out.layers += graph.stages[stage].layers;
  out.idle = report.makespan - out.busy;
  if (number < in.schedule.warmup.size())
    out.warmup = in.schedule.warmup[number];
  FlightCount(graph, order, out.stages).walk(out);
}

void ReportBuilder::memory(Id number) {
  const RankPlan &list = in.plan->ranks[number];
  RankReport &out = report.perRank[number];
  out.arenaBytes = list.arenaBytes;
  out.memory = findMemoryPeak(list);
  auto most = [](const std::vector<Bytes> &live) {
    return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
  };
  out.hostArena = list.hostArenaBytes;
  out.hostPeak = most(liveHostBytes(list));
  out.unmovedPeak = most(liveBytesUnmoved(list));
  out.fragmentation =
      out.arenaBytes - std::min(out.arenaBytes, out.memory.aligned);
  if (out.memory.position != kNone) {
    const PlanOp &op = list.ops[out.memory.position];
    out.peakOperation = opName(op.op, op.stage, op.microbatch);
  }
}

void ReportBuilder::bounds() {
  report.memoryLimit = in.plan ? in.plan->memoryLimit : 0;
  report.memoryAllowance = in.plan ? in.plan->memoryAllowance : 0;
  std::optional<Bytes> room; // none where bytes can go elsewhere
  if (report.memoryLimit != 0 && !offloads)
    room = report.memoryLimit -
           std::min(report.memoryLimit, report.memoryAllowance);
  report.lowerBound =
      lowerBound(graph, in.schedule, in.timing, in.network, in.objective, room);
  if (!in.plan)
    return;
  std::optional<PlanTiming> timing = simulatePlan(*in.plan);
  if (!timing)
    return;
  report.planMakespan = timing->makespan;
  if (report.hasMemory)
    for (Id number = 0; number < report.ranks; ++number)
      report.perRank[number].memoryTimeline = memoryTimeline(
          in.plan->ranks[number], timing->start[number], timing->makespan);
}

void ReportBuilder::slowest() {
  double busy = 0, possible = 0;
  for (Id number = 0; number < report.ranks; ++number) {
    const RankReport &out = report.perRank[number];
    busy += static_cast<double>(out.busy);
    possible += static_cast<double>(report.makespan);
    if (report.busiestRank == kNone ||
        out.busy > report.perRank[report.busiestRank].busy)
      report.busiestRank = number;
  }
  if (possible > 0) {
    report.bubbleFraction = (possible - busy) / possible;
    report.meanBusy = static_cast<Ticks>(busy / report.ranks);
  }
  auto most = std::max_element(stageWork.begin(), stageWork.end());
  if (most == stageWork.end())
    return;
  report.slowestStage = static_cast<Id>(most - stageWork.begin());
  const Stage &stage = graph.stages[report.slowestStage];
  report.slowestStageTime = *most / std::max(1u, graph.microbatches);
  report.slowestStageFirstLayer = stage.firstLayer;
  report.slowestStageLayers = stage.layers;
  report.slowestStageRank = stageRank[report.slowestStage];
}

void ReportBuilder::weightOrder() {
  // Of I too: what has no product of matrices, such as the gradient of a norm,
  // is summed there. A whole backward is part of both sequences. Per stage, the
  // last microbatch of each.
  std::vector<std::array<Id, 2>> last(graph.stages.size(), {0, 0});
  for (Id node : in.schedule.order) {
    const Node &n = graph.nodes[node];
    Flight flight = info(n.op).flight;
    if (flight == Flight::Opens || flight == Flight::Keeps)
      continue;
    bool input = flight != Flight::ClosesWeight;
    bool weight = flight != Flight::ClosesInput;
    for (auto [is, before] : {std::pair(input, &last[n.stage][0]),
                              std::pair(weight, &last[n.stage][1])})
      if (is) {
        report.weightsInOrder &= n.microbatch >= *before;
        *before = n.microbatch;
      }
    report.weightsInOrder &= in.timing.rankOf[node] == stageRank[n.stage];
  }
}

void ReportBuilder::pairs() {
  const std::vector<Id> &order = in.schedule.order;
  for (size_t at = 0; at + 1 < order.size(); ++at) {
    if (!in.schedule.joins(at))
      continue;
    Id one = order[at], other = order[at + 1];
    partner[one] = other;
    partner[other] = one;
    Ticks together = in.timing.end[one] - in.timing.start[one];
    ++report.pairs;
    report.pairsSaved +=
        graph.nodes[one].duration + graph.nodes[other].duration - together;
  }
}

void ReportBuilder::path() {
  for (Id node : criticalPath(graph, in.schedule, in.timing)) {
    const Node &n = graph.nodes[node];
    PathStep step{in.timing.rankOf[node], n.stage,
                  n.microbatch,           n.op,
                  in.timing.start[node],  in.timing.end[node]};
    if (auto other = partner.find(node); other != partner.end()) {
      const Node &with = graph.nodes[other->second];
      step.with = OpRef{with.op, with.stage, with.microbatch};
    }
    report.criticalPath.push_back(step);
  }
}

/// "0-3, 7": the stages that recompute so.
static std::string stagesWith(const Graph &graph, RecomputePolicy policy) {
  std::string text;
  for (Id stage = 0, end = 0; stage < graph.stages.size(); stage = end) {
    end = stage + 1;
    if (graph.stages[stage].recomputePolicy != policy)
      continue;
    while (end < graph.stages.size() &&
           graph.stages[end].recomputePolicy == policy)
      ++end;
    text += (text.empty() ? "" : ", ") + std::to_string(stage) +
            (end - stage == 1 ? "" : "-" + std::to_string(end - 1));
  }
  return text;
}

void ReportBuilder::recomputes() {
  for (const Stage &stage : graph.stages)
    report.recompute.push_back(stage.recomputePolicy);
  for (const Node &node : graph.nodes)
    report.recomputeTime += node.op == Op::Recompute ? node.duration : 0;
  std::string told;
  for (RecomputePolicy policy :
       {RecomputePolicy::Full, RecomputePolicy::Selective})
    if (std::string text = stagesWith(graph, policy); !text.empty())
      told += (told.empty() ? "recompute: " : "; ") +
              std::string(recomputePolicyName(policy)) + " in stages " + text;
  if (!told.empty())
    report.notes.push_back(told + "; all R together take " +
                           formatTime(report.recomputeTime, report.timeUnit));
}

void ReportBuilder::moves() {
  if (!offloads || !report.hasMemory)
    return;
  bool moved = std::any_of(report.perRank.begin(), report.perRank.end(),
                           [](const RankReport &of) { return of.hostArena; });
  if (!moved) {
    report.notes.push_back(
        "offload: nothing is moved: no forward that leaves bytes has three "
        "computations of its rank between itself and its backward");
    return;
  }
  Ticks copies = copyTime(*in.plan);
  std::string held =
      copies == 0 ? "they do not hold it up"
                  : "they hold it up by " + formatTime(copies, report.timeUnit);
  report.notes.push_back("offload: copies to host memory and back take no time "
                         "in the makespan; in that of the plan they do, and " +
                         held);
}

void ReportBuilder::notes() {
  if (report.span == report.makespan)
    return;
  report.notes.push_back(
      "ranks begin and end the step at different times: from its first start "
      "to its last end none takes more than the span, " +
      formatTime(report.span, report.timeUnit) + " of the makespan's " +
      formatTime(report.makespan, report.timeUnit) +
      "; the span counts where steps follow one another without a barrier; "
      "gradient clipping is a barrier between steps: with it span buys "
      "nothing");
}

Report ReportBuilder::build() {
  names();
  report.perRank.resize(report.ranks);
  stageWork.assign(graph.stages.size(), 0);
  stageRank.assign(graph.stages.size(), kNone);
  for (Id number = 0; number < report.ranks; ++number)
    rank(number);
  report.hasMemory = in.plan && in.plan->ranks.size() == report.ranks;
  if (report.hasMemory)
    for (Id number = 0; number < report.ranks; ++number)
      memory(number);
  bounds();
  slowest();
  weightOrder();
  pairs();
  path();
  recomputes();
  moves();
  if (report.hasMemory)
    for (std::string &note : partNotes(*in.plan))
      report.notes.push_back(std::move(note));
  notes();
  return std::move(report);
}

} // namespace

std::string_view objectiveName(Objective objective) {
  switch (objective) {
  case Objective::Makespan:
    return "makespan";
  case Objective::Span:
    return "span";
  }
  return "";
}

Report buildReport(const ReportInput &input) {
  return ReportBuilder(input).build();
}

} // namespace sluice
