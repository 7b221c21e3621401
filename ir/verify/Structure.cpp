#include "ir/Groups.h"
#include "ir/PlanStructure.h"
#include "ir/verify/Internal.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace sluice::verify {

Id PlanIndex::rankOf(Id op) const {
  auto after = std::upper_bound(firstOp.begin(), firstOp.end(), op);
  return static_cast<Id>(after - firstOp.begin() - 1);
}

/// The list of each stage: edges that `stageOf` gives it and `wanted` likes.
template <typename StageOf, typename Wanted>
static EdgeLists listEdges(size_t stages, std::span<const StageEdge> edges,
                           StageOf stageOf, Wanted wanted) {
  EdgeLists lists;
  lists.first.assign(stages + 1, 0);
  for (const StageEdge &edge : edges)
    if (wanted(edge))
      ++lists.first[stageOf(edge) + 1];
  std::partial_sum(lists.first.begin(), lists.first.end(), lists.first.begin());
  lists.edges.resize(lists.first.back());
  std::vector<Id> next(lists.first.begin(), lists.first.end() - 1);
  for (Id e = 0; e < edges.size(); ++e)
    if (wanted(edges[e]))
      lists.edges[next[stageOf(edges[e])]++] = e;
  return lists;
}

StageEdges edgesOf(std::span<const Stage> stages,
                   std::span<const StageEdge> edges) {
  auto from = [](const StageEdge &edge) { return edge.from; };
  auto to = [](const StageEdge &edge) { return edge.to; };
  auto all = [](const StageEdge &) { return true; };
  auto trained = [stages](const StageEdge &edge) {
    return isTrained(stages, edge);
  };
  size_t count = stages.size();
  return {listEdges(count, edges, to, all), listEdges(count, edges, from, all),
          listEdges(count, edges, from, trained),
          listEdges(count, edges, to, trained)};
}

namespace {

/// Two nodes per operation and some edges each must fit in 32-bit numbers.
constexpr uint64_t kMaxOperations = uint64_t(1) << 29;
constexpr uint64_t kMaxRanks = uint64_t(1) << 26;

/// Beside what ir/PlanStructure.h asks of any plan that is walked: numbers that
/// fit, the kinds of buffers that messages carry, and what a stream, a group or
/// a communicator may hold.
class Structure {
public:
  Structure(PlanIndex &of, bool isChecked, Report &to)
      : index(of), plan(of.plan), checked(isChecked), report(to) {}

  bool check() {
    if (!checkSizes() || !hasSoundHeader())
      return false;
    index.ends.assign(plan.channels.size(), {});
    userOf.assign(plan.channels.size() + plan.collectives.size(), {kNone, 0});
    for (Id r = 0; r < plan.ranks.size(); ++r)
      if (hasSoundList(r))
        checkRank(r);
    if (report.has(FindingKind::Malformed))
      return false;
    if (index.hasGroups)
      numberUnits();
    else
      index.firstUnit = index.firstOp;
    static_cast<StageEdges &>(index) = edgesOf(plan.stages, plan.edges);
    return true;
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
    return plan.ranks.size() <= kMaxRanks ||
           fail({}, "the plan has " + std::to_string(plan.ranks.size()) +
                        " ranks, over " + std::to_string(kMaxRanks));
  }

  bool hasSoundHeader() {
    bool sound = true;
    if (!checked)
      findHeaderFaults(plan, [&](const StructureFault &fault) {
        sound = fail({}, describe(plan, 0, fault));
        return true;
      });
    return sound;
  }

  bool hasSoundList(Id r) {
    bool sound = true;
    if (checked)
      return sound;
    findRankFaults(plan, r, [&](const StructureFault &fault) {
      sound = false;
      tell(r, fault);
      return true;
    });
    return sound;
  }

  void tell(Id r, const StructureFault &fault) {
    if (fault.part != StructureFault::Part::Op) {
      fail({}, describe(plan, r, fault));
      return;
    }
    const PlanOp &op = plan.ranks[r].ops[fault.index];
    bool known = static_cast<unsigned>(op.op) < kOpCount;
    fail(OpPlace{r, fault.index},
         known ? nameOf(op) + " " + fault.message : describe(plan, r, fault));
  }

  void checkRank(Id r) {
    ListView list(plan.ranks[r]);
    bool hasGroups = false;
    for (uint32_t at = 0; at < list.opCount; ++at) {
      const PlanOp &op = list.ops[at];
      hasGroups |= op.group != kNone;
      OpClass kind = info(op.op).opClass;
      if (kind == OpClass::Compute)
        continue;
      bool isMessage = kind == OpClass::Send || kind == OpClass::Receive;
      if (!isMessage) {
        index.hasStep |= op.op == Op::OptimizerStep;
        index.hasNorms |=
            op.op == Op::NormGradients || op.op == Op::AllReduceNorms;
        if (kind != OpClass::Collective)
          continue;
        index.hasCollectives = true;
      }
      checkCommunication(list, r, at,
                         isMessage ? plan.channels[op.channel].communicator
                                   : plan.collectives[op.channel].communicator);
      if (isMessage)
        ++(kind == OpClass::Send ? index.ends[op.channel].sends
                                 : index.ends[op.channel].receives);
    }
    index.hasGroups |= hasGroups;
    if (hasGroups)
      checkGroups(r);
  }

  /// The kind of buffer that a message or a collective uses.
  static constexpr BufferKind payloadKind(Op op) {
    switch (info(op).payload) {
    case Payload::Activation:
      return BufferKind::Activation;
    case Payload::WeightGradients:
      return isReceive(op) ? BufferKind::CopyGradients : BufferKind::Gradients;
    case Payload::TiedGradients:
      return isSend(op) ? BufferKind::Gradients : BufferKind::TiedGradients;
    case Payload::Norms:
      return BufferKind::Norms;
    case Payload::Parameters:
      return BufferKind::Parameters;
    case Payload::Gradient:
    case Payload::None:
      break;
    }
    return BufferKind::Gradient;
  }

  /// Its operand is of the right kind; one stream per communicator.
  void checkCommunication(const ListView &list, Id r, uint32_t at,
                          Id communicator) {
    static constexpr auto kPayloadKinds = [] {
      std::array<BufferKind, kOpCount> kinds{};
      for (unsigned op = 0; op < kOpCount; ++op)
        kinds[op] = payloadKind(static_cast<Op>(op));
      return kinds;
    }();
    const PlanOp &op = list.ops[at];
    BufferKind kind = kPayloadKinds[static_cast<unsigned>(op.op)];
    if (list.buffers[list.operands[op.firstOperand].buffer].kind != kind)
      explainOperand(r, at, kind);
    auto &[user, stream] = userOf[communicator];
    if (user != r) {
      user = r;
      stream = op.stream;
    } else if (stream != op.stream) {
      explainStream(r, at, communicator, stream);
    }
  }

  void explainOperand(Id r, uint32_t at, BufferKind kind) {
    const PlanOp &op = plan.ranks[r].ops[at];
    fail(OpPlace{r, at}, nameOf(op) + " must " +
                             (isSend(op.op)      ? "read"
                              : isReceive(op.op) ? "write"
                                                 : "update") +
                             " a buffer of kind " +
                             std::string(info(kind).text));
  }

  void explainStream(Id r, uint32_t at, Id communicator, uint8_t stream) {
    const PlanOp &op = plan.ranks[r].ops[at];
    fail(OpPlace{r, at}, nameOf(op) + " uses communicator " +
                             std::to_string(communicator) + " on stream " +
                             std::to_string(op.stream) + ", rank " +
                             std::to_string(r) + " uses it on stream " +
                             std::to_string(stream));
  }

  /// A group holds messages, or a forward and a backward.
  void checkGroups(Id r) {
    const RankPlan &rank = plan.ranks[r];
    for (uint32_t at = 0, begin = 0; at < rank.ops.size(); ++at) {
      const PlanOp &op = rank.ops[at], &first = rank.ops[begin];
      if (at == 0 || op.group == kNone || op.group != first.group) {
        begin = at;
        continue;
      }
      auto refOf = [](const PlanOp &of) {
        return OpRef{of.op, of.stage, of.microbatch};
      };
      if (isCommunication(op.op) != isCommunication(first.op))
        tellGroup(r, at, "which holds both messages and what computes");
      else if (isCompute(op.op) && at > begin + 1)
        tellGroup(r, at, "which holds more than two that compute");
      else if (isCompute(op.op) && !runTogether(refOf(first), refOf(op)))
        tellGroup(r, at,
                  "with " + nameOf(first) +
                      ": only a forward and a backward of another "
                      "microbatch run together");
    }
  }

  void tellGroup(Id r, uint32_t at, const std::string &why) {
    const PlanOp &op = plan.ranks[r].ops[at];
    fail(OpPlace{r, at},
         nameOf(op) + " is in group " + std::to_string(op.group) + ", " + why);
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

  PlanIndex &index;
  const Plan &plan;
  bool checked; ///< what ir/PlanStructure.h asks for
  Report &report;
  /// Per communicator the last rank that uses it, and its stream.
  std::vector<std::pair<Id, uint16_t>> userOf;
};

} // namespace

bool indexPlan(PlanIndex &index, bool structureChecked, Report &report) {
  return Structure(index, structureChecked, report).check();
}

} // namespace sluice::verify
