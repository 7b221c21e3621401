#include "ir/verify/Internal.h"

#include <algorithm>
#include <numeric>

namespace sluice::verify {

Id PlanIndex::rankOf(Id op) const {
  auto after = std::upper_bound(firstOp.begin(), firstOp.end(), op);
  return static_cast<Id>(after - firstOp.begin() - 1);
}

namespace {

/// Two nodes per operation and some edges each must fit in 32-bit numbers.
constexpr uint64_t kMaxOperations = uint64_t(1) << 29;
constexpr uint64_t kMaxRanks = uint64_t(1) << 26;

class Structure {
public:
  Structure(PlanIndex &of, Report &to)
      : index(of), plan(of.plan), report(to), stages(of.plan.stages.size()),
        channels(of.plan.channels.size()), ranks(of.plan.ranks.size()) {}

  bool check() {
    if (!checkSizes() || !checkEdges() || !checkTies())
      return false;
    numberCommunicators();
    for (Id r = 0; r < plan.ranks.size(); ++r)
      checkRank(r);
    if (report.has(FindingKind::Malformed))
      return false;
    if (index.hasGroups)
      numberUnits();
    else
      index.firstUnit = index.firstOp;
    listEdges();
    return !report.has(FindingKind::Malformed);
  }

private:
  bool fail(std::optional<OpPlace> place, std::string message) {
    if (report.admits(FindingKind::Malformed))
      report.error(FindingKind::Malformed, place, std::move(message));
    return false;
  }

  bool checkSizes() {
    index.firstOp.assign(1, 0);
    uint64_t total = 0;
    for (const RankPlan &rank : plan.ranks) {
      total += rank.ops.size();
      if (total > kMaxOperations)
        return fail({}, "the plan has more than " +
                            std::to_string(kMaxOperations) + " operations");
      index.firstOp.push_back(static_cast<Id>(total));
    }
    if (plan.ranks.empty() || plan.ranks.size() > kMaxRanks)
      return fail({}, "the plan has " + std::to_string(plan.ranks.size()) +
                          " ranks, not 1 to " + std::to_string(kMaxRanks));
    return true;
  }

  bool checkEdges() {
    const StageEdge *last = nullptr;
    for (const StageEdge &edge : plan.edges) {
      std::string name =
          std::to_string(edge.from) + " -> " + std::to_string(edge.to);
      if (edge.from >= plan.stages.size() || edge.to >= plan.stages.size())
        return fail({}, "edge " + name + " is not between two of the " +
                            std::to_string(plan.stages.size()) + " stages");
      if (last &&
          std::pair(last->from, last->to) >= std::pair(edge.from, edge.to))
        return fail({}, "edge " + name + " stands out of order or twice");
      last = &edge;
    }
    return true;
  }

  bool checkTies() {
    for (Id s = 0; s < plan.stages.size(); ++s)
      for (const std::string &fault :
           {recomputeFault(plan.stages[s]), tieFault(plan.stages, s)})
        if (!fault.empty())
          return fail({}, "stage " + std::to_string(s) + " " + fault);
    return true;
  }

  void numberCommunicators() {
    std::vector<Id> known;
    for (const Channel &channel : plan.channels)
      known.push_back(channel.communicator);
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    for (const Channel &channel : plan.channels)
      communicatorOf.push_back(static_cast<Id>(
          std::lower_bound(known.begin(), known.end(), channel.communicator) -
          known.begin()));
    userOf.assign(known.size(), {kNone, 0});
  }

  /// What sound() needs of a rank.
  struct Bounds {
    ListView list;
    size_t streams;
    bool operandsFit; ///< no operand at all is out of range
  };

  static Bounds boundsOf(const RankPlan &rank) {
    int32_t most = -1; // buffer numbers have 30 bits
    for (Operand operand : rank.operands)
      most = std::max(most, static_cast<int32_t>(operand.buffer));
    return {ListView(rank), rank.streams.size(),
            most < 0 || static_cast<size_t>(most) < rank.buffers.size()};
  }

  /// Whether operation `at` can be walked; the cheap test.
  bool sound(const Bounds &bounds, Id r, uint32_t at) const {
    const ListView &list = bounds.list;
    const PlanOp &op = list.ops[at];
    if (static_cast<unsigned>(op.op) >= kOpCount || op.stage >= stages ||
        op.stream >= bounds.streams)
      return false;
    if (info(op.op).perMicrobatch && op.microbatch >= plan.microbatches)
      return false;
    if (isMessage(op.op) ? !ownsChannel(op, r)
                         : op.group != kNone && !isCompute(op.op))
      return false;
    size_t waitEnd = list.waitEnd(at), operandEnd = list.operandEnd(at);
    if (op.firstWait > waitEnd || waitEnd > list.waitCount ||
        op.firstOperand > operandEnd || operandEnd > list.operandCount)
      return false;
    for (size_t w = op.firstWait; w < waitEnd; ++w)
      if (list.waits[w] >= at)
        return false;
    return bounds.operandsFit || operandsFit(list, at);
  }

  static bool operandsFit(const ListView &list, uint32_t at) {
    for (Operand operand : list.operandsAt(at))
      if (operand.buffer >= list.bufferCount)
        return false;
    return true;
  }

  bool ownsChannel(const PlanOp &op, Id r) const {
    if (op.channel >= channels)
      return false;
    const Channel &channel = plan.channels[op.channel];
    return (isSend(op.op) ? channel.source : channel.destination) == r &&
           channel.source < ranks && channel.destination < ranks;
  }

  /// Says what sound() refused.
  void explain(const RankPlan &rank, Id r, uint32_t at) {
    const PlanOp &op = rank.ops[at];
    OpPlace place{r, at};
    std::string where =
        "operation " + std::to_string(at) + " of rank " + std::to_string(r);
    if (static_cast<unsigned>(op.op) >= kOpCount)
      fail(place, where + " is of unknown type " +
                      std::to_string(static_cast<unsigned>(op.op)));
    else if (op.stage >= plan.stages.size())
      fail(place, nameOf(op) + " names stage " + std::to_string(op.stage) +
                      ", the plan has " + std::to_string(plan.stages.size()) +
                      " stages");
    else if (info(op.op).perMicrobatch && op.microbatch >= plan.microbatches)
      fail(place, nameOf(op) + " names microbatch " +
                      std::to_string(op.microbatch) + ", the plan has " +
                      std::to_string(plan.microbatches) + " microbatches");
    else if (op.stream >= rank.streams.size())
      fail(place, nameOf(op) + " is on stream " + std::to_string(op.stream) +
                      ", rank " + std::to_string(r) + " has " +
                      std::to_string(rank.streams.size()) + " streams");
    else if (isMessage(op.op) && !ownsChannel(op, r))
      fail(place, nameOf(op) + " names channel " + std::to_string(op.channel) +
                      ", which is not one that rank " + std::to_string(r) +
                      (isSend(op.op) ? " sends on" : " receives on"));
    else if (!isMessage(op.op) && !isCompute(op.op) && op.group != kNone)
      fail(place, nameOf(op) + " is in group " + std::to_string(op.group) +
                      ", a group holds messages or a pair that computes");
    else
      fail(place, nameOf(op) + ", " + where +
                      ", has a wait or an operand out of range");
  }

  void checkRank(Id r) {
    const RankPlan &rank = plan.ranks[r];
    checkBuffers(r);
    Bounds bounds = boundsOf(rank);
    bool hasGroups = false;
    for (uint32_t at = 0; at < bounds.list.opCount; ++at) {
      const PlanOp &op = bounds.list.ops[at];
      hasGroups |= op.group != kNone;
      if (!sound(bounds, r, at)) {
        explain(rank, r, at);
        continue;
      }
      if (isMessage(op.op))
        checkMessage(bounds.list, r, at);
      else
        index.hasStep |= op.op == Op::OptimizerStep;
    }
    index.hasGroups |= hasGroups;
    if (hasGroups)
      checkGroups(r);
  }

  void checkBuffers(Id r) {
    const RankPlan &rank = plan.ranks[r];
    for (size_t b = 0; b < rank.buffers.size(); ++b) {
      const Buffer &buffer = rank.buffers[b];
      if (static_cast<unsigned>(buffer.kind) >= kBufferKindCount)
        fail({}, "buffer " + std::to_string(b) + " of rank " +
                     std::to_string(r) + " is of unknown kind " +
                     std::to_string(static_cast<unsigned>(buffer.kind)));
      else if (buffer.offset > rank.arenaBytes ||
               buffer.bytes > rank.arenaBytes - buffer.offset)
        fail({}, "buffer " + std::to_string(b) + " of rank " +
                     std::to_string(r) + ", " + std::to_string(buffer.bytes) +
                     " bytes at " + std::to_string(buffer.offset) +
                     ", leaves the arena of " +
                     std::to_string(rank.arenaBytes) + " bytes");
    }
  }

  /// The kind of buffer that a message reads or writes.
  static BufferKind payloadKind(Op op) {
    switch (info(op).payload) {
    case Payload::Activation:
      return BufferKind::Activation;
    case Payload::WeightGradients:
      return isSend(op) ? BufferKind::Gradients : BufferKind::CopyGradients;
    case Payload::TiedGradients:
      return isSend(op) ? BufferKind::Gradients : BufferKind::TiedGradients;
    case Payload::Gradient:
    case Payload::None:
      break;
    }
    return BufferKind::Gradient;
  }

  /// One operand of the right kind; one stream per communicator.
  void checkMessage(const ListView &list, Id r, uint32_t at) {
    const PlanOp &op = list.ops[at];
    BufferKind kind = payloadKind(op.op);
    Access access = isSend(op.op) ? Access::Read : Access::Write;
    const Operand *first = list.operands + op.firstOperand;
    if (list.operandEnd(at) - op.firstOperand != 1 ||
        first->access != static_cast<unsigned>(access) ||
        list.buffers[first->buffer].kind != kind)
      explainOperand(r, at, kind);
    auto &[user, stream] = userOf[communicatorOf[op.channel]];
    if (user != r) {
      user = r;
      stream = op.stream;
    } else if (stream != op.stream) {
      explainStream(r, at, stream);
    }
  }

  void explainOperand(Id r, uint32_t at, BufferKind kind) {
    const PlanOp &op = plan.ranks[r].ops[at];
    fail(OpPlace{r, at},
         nameOf(op) + " must " + (isSend(op.op) ? "read" : "write") +
             " one buffer of kind " + std::string(info(kind).text));
  }

  void explainStream(Id r, uint32_t at, uint8_t stream) {
    const PlanOp &op = plan.ranks[r].ops[at];
    fail(OpPlace{r, at},
         nameOf(op) + " uses communicator " +
             std::to_string(plan.channels[op.channel].communicator) +
             " on stream " + std::to_string(op.stream) + ", rank " +
             std::to_string(r) + " uses it on stream " +
             std::to_string(stream));
  }

  /// Operations of one group stand together; those that compute are two.
  void checkGroups(Id r) {
    const RankPlan &rank = plan.ranks[r];
    checkPairs(r);
    std::vector<std::pair<Id, uint32_t>> runs;
    Id last = kNone;
    for (uint32_t at = 0; at < rank.ops.size(); ++at) {
      if (rank.ops[at].group != kNone && rank.ops[at].group != last)
        runs.emplace_back(rank.ops[at].group, at);
      last = rank.ops[at].group;
    }
    std::sort(runs.begin(), runs.end());
    for (size_t i = 1; i < runs.size(); ++i)
      if (runs[i].first == runs[i - 1].first)
        fail(OpPlace{r, runs[i].second},
             nameOf(rank.ops[runs[i].second]) + " is in group " +
                 std::to_string(runs[i].first) +
                 ", but does not stand beside the rest of it");
  }

  void checkPairs(Id r) {
    const RankPlan &rank = plan.ranks[r];
    for (uint32_t at = 0, begin = 0; at < rank.ops.size(); ++at) {
      const PlanOp &op = rank.ops[at];
      if (op.group == kNone || op.group != rank.ops[begin].group)
        begin = at;
      bool mixed =
          at > begin && isMessage(op.op) != isMessage(rank.ops[begin].op);
      bool many = at > begin + 1 && isCompute(op.op);
      if (op.group != kNone && (mixed || many))
        fail(OpPlace{r, at},
             nameOf(op) + " is in group " + std::to_string(op.group) +
                 (mixed ? ", which holds both messages and what computes"
                        : ", which holds more than two that compute"));
    }
  }

  void numberUnits() {
    index.unitOf.resize(index.operations());
    Id op = 0;
    for (const RankPlan &rank : plan.ranks) {
      index.firstUnit.push_back(static_cast<Id>(index.firstInUnit.size()));
      Id last = kNone;
      for (const PlanOp &each : rank.ops) {
        if (each.group == kNone || each.group != last)
          index.firstInUnit.push_back(op);
        last = each.group;
        index.unitOf[op++] = static_cast<Id>(index.firstInUnit.size() - 1);
      }
    }
    index.firstUnit.push_back(static_cast<Id>(index.firstInUnit.size()));
    index.firstInUnit.push_back(op);
  }

  /// The list of each stage: edges that `stageOf` gives it and `wanted` likes.
  template <typename StageOf, typename Wanted>
  void list(EdgeLists &lists, StageOf stageOf, Wanted wanted) {
    lists.first.assign(plan.stages.size() + 1, 0);
    for (const StageEdge &edge : plan.edges)
      if (wanted(edge))
        ++lists.first[stageOf(edge) + 1];
    std::partial_sum(lists.first.begin(), lists.first.end(),
                     lists.first.begin());
    lists.edges.resize(lists.first.back());
    std::vector<Id> next(lists.first.begin(), lists.first.end() - 1);
    for (Id e = 0; e < plan.edges.size(); ++e)
      if (wanted(plan.edges[e]))
        lists.edges[next[stageOf(plan.edges[e])]++] = e;
  }

  void listEdges() {
    auto from = [](const StageEdge &edge) { return edge.from; };
    auto to = [](const StageEdge &edge) { return edge.to; };
    auto all = [](const StageEdge &) { return true; };
    auto trained = [this](const StageEdge &edge) {
      return plan.stages[edge.from].backward && plan.stages[edge.to].backward;
    };
    list(index.incoming, to, all);
    list(index.outgoing, from, all);
    list(index.gradientIn, from, trained);
    list(index.gradientOut, to, trained);
  }

  PlanIndex &index;
  const Plan &plan;
  Report &report;
  size_t stages, channels, ranks;             ///< how many
  std::vector<Id> communicatorOf;             ///< per channel, numbered densely
  std::vector<std::pair<Id, uint8_t>> userOf; ///< last rank, and its stream
};

} // namespace

bool indexPlan(PlanIndex &index, Report &report) {
  return Structure(index, report).check();
}

} // namespace sluice::verify
