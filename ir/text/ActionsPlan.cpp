#include "ir/text/ActionsPlan.h"

#include "ir/PlanStructure.h"
#include "ir/Words.h"
#include "ir/text/ActionsCheck.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

namespace sluice {

namespace {

class Builder : private ActionStages, private ActionFaults {
public:
  Builder(const Actions &of, std::span<const ActionLine> at,
          ActionStages stagesOf, Diagnostics &sink)
      : ActionStages(std::move(stagesOf)), ActionFaults{of, at, Faults(sink)},
        diagnostics(sink) {}

  Plan build(const ActionCosts &costs);

private:
  void addStages(const ActionCosts &costs);
  void addRank(Id rank, Ticks latency);
  void addMessage(Id rank, PlanOp &op, Ticks latency);
  Id channelOf(Id source, Id destination, Ticks latency);
  void addChannels(Ticks latency);
  void addWait(Id rank, uint32_t position);
  void noteSendWaits(Id rank, uint32_t next);
  std::string whereElse(Id rank, const OpRef &send);
  void holdBack(Id rank, const PlanOp &op);
  uint8_t addStream(Id rank, std::string name);
  uint32_t &positionOf(std::vector<uint32_t> &of, const PlanOp &op) {
    return of[size_t(op.stage) * microbatches + op.microbatch];
  }
  struct Flow;
  Flow flowOf(Op op);

  Diagnostics &diagnostics;
  Plan plan;
  /// Per stage and microbatch: position in its rank's list, kNone before it.
  std::vector<uint32_t> forward, backward, receivedForward, receivedBackward;
  std::vector<uint32_t> sentForward, sentBackward;
  size_t nextAside = 0;
  Id crowded = kNone; ///< the last rank that has too many streams
  /// Ranks of all sends, once a wait for one is wrong.
  std::map<std::tuple<Op, Id, Id>, Id> sendRanks;
  /// Sends whose end holds back what computes next, and the next message.
  std::vector<uint32_t> holdCompute, holdMessage;
  struct End {
    Id channel = kNone;
    uint8_t stream = 0;
  };
  /// Per stage, what its messages of each kind use.
  std::vector<std::array<End, kOpCount>> ends;
  std::map<std::pair<Id, Id>, Id> channels; ///< by source and destination
};

} // namespace

Plan Builder::build(const ActionCosts &costs) {
  plan.source = std::string(diagnostics.fileName(lines[0].where.file));
  plan.schedule = "csv";
  plan.microbatches = microbatches;
  plan.timeUnit = costs.unit;
  addStages(costs);
  size_t cells = size_t(stages) * microbatches;
  for (auto *table : {&forward, &backward, &receivedForward, &receivedBackward,
                      &sentForward, &sentBackward})
    table->assign(cells, kNone);
  ends.resize(stages);
  plan.ranks.resize(actions.ranks());
  for (RankPlan &rank : plan.ranks) {
    rank.streams.push_back("compute");
    rank.buffers = {{0, 0, 0, BufferKind::Activation},
                    {0, 0, 0, BufferKind::Gradient}};
  }
  for (Id rank = 0; rank < actions.ranks(); ++rank)
    addRank(rank, costs.message);
  if (!actions.hasMessages)
    addChannels(costs.message);
  faults.finish(); // of what waits for sends: the others end it before
  return std::move(plan);
}

void Builder::addStages(const ActionCosts &costs) {
  std::vector<Ticks> stagesOf(actions.ranks(), 0);
  for (Id rank : rankOfStage)
    ++stagesOf[rank];
  for (Id s = 0; s < stages; ++s) {
    Stage &stage = plan.stages.emplace_back();
    Ticks shares = stagesOf[rankOfStage[s]];
    stage.firstLayer = s;
    stage.layers = 1;
    stage.backward = trains;
    stage.forward = costs.rank.forward / shares;
    stage.backwardInput = trains ? costs.rank.backwardInput / shares : 0;
    stage.backwardWeight = trains ? costs.rank.backwardWeight / shares : 0;
    if (s > 0)
      plan.edges.push_back({s - 1, s, 0});
  }
}

/// What an operation makes for another stream, and what it needs from one.
struct Builder::Flow {
  std::vector<uint32_t> *made, *needed;
};

Builder::Flow Builder::flowOf(Op op) {
  switch (op) {
  case Op::Forward:
    return {&forward, &receivedForward};
  case Op::Backward:
  case Op::BackwardInput:
    return {&backward, &receivedBackward};
  case Op::SendForward:
    return {&sentForward, &forward};
  case Op::SendBackward:
    return {&sentBackward, &backward};
  case Op::RecvForward:
    return {&receivedForward, nullptr};
  case Op::RecvBackward:
    return {&receivedBackward, nullptr};
  case Op::BackwardWeight:
  case Op::Recompute:
  case Op::OptimizerStep:
  case Op::SendGradients:
  case Op::RecvGradients:
  case Op::AddGradients:
  case Op::SendTied:
  case Op::RecvTied:
  case Op::AllReduceGradients:
  case Op::ReduceScatterGradients:
  case Op::ReduceScatterMicrobatch:
  case Op::AllGatherParameters:
  case Op::NormGradients:
  case Op::AllReduceNorms:
  case Op::Offload:
  case Op::Reload:
    break;
  }
  return {nullptr, nullptr};
}

void Builder::addRank(Id rank, Ticks latency) {
  RankPlan &list = plan.ranks[rank];
  std::span<const Action> row = actions.rank(rank);
  list.ops.reserve(row.size());
  holdCompute.clear();
  holdMessage.clear();
  for (const Action &action : row) {
    list.ops.push_back({action.stage, action.microbatch, kNone, action.group,
                        static_cast<uint32_t>(list.waits.size()),
                        static_cast<uint32_t>(list.operands.size()), action.op,
                        kComputeStream});
    PlanOp &op = list.ops.back();
    if (isMessage(op.op))
      addMessage(rank, op, latency);
    noteSendWaits(rank, static_cast<uint32_t>(&action - actions.list.data()));
    holdBack(rank, op);
    Flow flow = flowOf(op.op);
    if (flow.needed)
      addWait(rank, positionOf(*flow.needed, op));
    if (flow.made)
      positionOf(*flow.made, op) = static_cast<uint32_t>(list.ops.size() - 1);
  }
  noteSendWaits(rank, actions.firstOfRank[rank + 1]);
}

/// Takes the WAIT_SENDs that stand in the row before action `next`.
void Builder::noteSendWaits(Id rank, uint32_t next) {
  for (; nextAside < actions.firstAsideOf[rank + 1] &&
         actions.asides[nextAside].before <= next;
       ++nextAside) {
    const Aside &wait = actions.asides[nextAside];
    std::optional<OpRef> send = sendOf(wait);
    if (!send)
      continue;
    uint32_t position = kNone;
    if (send->stage < stages && send->microbatch < microbatches &&
        rankOfStage[send->stage] == rank)
      position = (send->op == Op::SendForward
                      ? sentForward
                      : sentBackward)[size_t(send->stage) * microbatches +
                                      send->microbatch];
    if (position == kNone) {
      fail(rank, wait,
           " waits for " + sluice::nameOf(*send) + ", which stands " +
               whereElse(rank, *send));
      continue;
    }
    holdCompute.push_back(position);
    holdMessage.push_back(position);
  }
}

/// Where a send stands that does not stand in `rank`'s row so far.
std::string Builder::whereElse(Id rank, const OpRef &send) {
  if (sendRanks.empty())
    each([this](Id at, const Action &action) {
      if (isSend(action.op))
        sendRanks.try_emplace({action.op, action.stage, action.microbatch}, at);
    });
  auto found = sendRanks.find({send.op, send.stage, send.microbatch});
  if (found == sendRanks.end())
    return "nowhere";
  return found->second == rank ? "behind it"
                               : "on rank " + number(found->second);
}

void Builder::holdBack(Id rank, const PlanOp &op) {
  std::vector<uint32_t> &held = isMessage(op.op) ? holdMessage : holdCompute;
  for (uint32_t position : held)
    addWait(rank, position);
  held.clear();
}

/// Waits for what stands at `position`, if it stands before.
void Builder::addWait(Id rank, uint32_t position) {
  if (position != kNone)
    plan.ranks[rank].waits.push_back(position);
}

void Builder::addMessage(Id rank, PlanOp &op, Ticks latency) {
  bool sends = isSend(op.op);
  bool forwards = info(op.op).payload == Payload::Activation;
  plan.ranks[rank].operands.push_back(
      operand(forwards ? 0 : 1, sends ? Access::Read : Access::Write));
  End &end = ends[op.stage][static_cast<unsigned>(op.op)];
  if (end.channel == kNone) {
    Id peer = rankOfStage[peerOf(op.op, op.stage)];
    Id source = sends ? rank : peer, destination = sends ? peer : rank;
    end.channel = channelOf(source, destination, latency);
    end.stream = addStream(rank, (sends ? "send-" : "receive-") + number(peer));
  }
  op.channel = end.channel;
  op.stream = end.stream;
}

/// The channel between two ranks, which it makes if there is none.
Id Builder::channelOf(Id source, Id destination, Ticks latency) {
  auto [entry, isNew] =
      channels.try_emplace({source, destination}, plan.channels.size());
  if (isNew)
    plan.channels.push_back({entry->second, source, destination, latency, 0});
  return entry->second;
}

void Builder::addChannels(Ticks latency) {
  for (const StageEdge &edge : plan.edges) {
    Id from = rankOfStage[edge.from], to = rankOfStage[edge.to];
    if (from == to)
      continue;
    channelOf(from, to, latency);
    if (trains)
      channelOf(to, from, latency);
  }
}

/// The stream of this name. A rank that has too many is told of, and goes on
/// with the last one.
uint8_t Builder::addStream(Id rank, std::string name) {
  std::vector<std::string> &streams = plan.ranks[rank].streams;
  auto found = std::find(streams.begin(), streams.end(), name);
  if (found != streams.end())
    return static_cast<uint8_t>(found - streams.begin());
  if (streams.size() < kMaxStreams)
    streams.push_back(std::move(name));
  else if (std::exchange(crowded, rank) != rank)
    diagnostics.error(lines[rank].where,
                      "rank " + number(rank) +
                          " has paths to and from other ranks over the limit "
                          "of " +
                          number(kMaxStreams - 1));
  return static_cast<uint8_t>(streams.size() - 1);
}

std::optional<Plan> planOfActions(const Actions &actions,
                                  std::span<const ActionLine> lines,
                                  const ActionCosts &costs,
                                  Diagnostics &diagnostics) {
  std::optional<ActionStages> stages =
      stagesOfActions(actions, lines, diagnostics);
  if (!stages)
    return std::nullopt;
  unsigned before = diagnostics.errorCount();
  Plan plan =
      Builder(actions, lines, std::move(*stages), diagnostics).build(costs);
  return diagnostics.errorCount() == before ? std::optional(std::move(plan))
                                            : std::nullopt;
}

} // namespace sluice
