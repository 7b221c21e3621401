#include "ir/text/ActionsPlan.h"

#include "ir/PlanStructure.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

namespace sluice {

namespace {

std::string number(uint64_t value) { return std::to_string(value); }

std::string nameOf(const Action &action) {
  return opName(action.op, action.stage, action.microbatch);
}

/// How many of the numbers that `take` is given stand in a row from 0.
class Prefix {
public:
  /// No more than `most` are given.
  explicit Prefix(size_t most) : seen(most + 1, false) {}
  void take(Id value) {
    if (value < seen.size())
      seen[value] = true;
  }
  uint32_t length() const {
    return static_cast<uint32_t>(std::find(seen.begin(), seen.end(), false) -
                                 seen.begin());
  }

private:
  std::vector<bool> seen;
};

class Builder {
public:
  Builder(const Actions &of, std::span<const ActionLine> at, Diagnostics &sink)
      : actions(of), lines(at), diagnostics(sink) {}

  bool check();
  Plan build(const ActionCosts &costs);

private:
  SourceLocation at(Id rank, const Action &action) const {
    SourceLocation where = lines[rank].where;
    where.column = action.column;
    return where;
  }
  void fail(Id rank, const Action &action, const std::string &message) {
    diagnostics.error(at(rank, action), nameOf(action) + message);
  }
  void fail(Id rank, const Aside &aside, const std::string &message) {
    SourceLocation where = lines[rank].where;
    where.column = aside.column;
    diagnostics.error(where, nameOf(aside) + message);
  }
  template <typename Visit> void each(Visit visit) {
    for (Id rank = 0; rank < actions.ranks(); ++rank)
      for (const Action &action : actions.rank(rank))
        visit(rank, action);
  }

  void count();
  void checkNumbers();
  bool isFilled();
  void placeStages();
  void placeAt(Id rank, const Action &action);
  void checkMessages();
  void checkAsides();
  void checkAside(Id rank, const Aside &aside);
  void checkReductionWait(Id rank, const Aside &wait);
  Id peerOf(const Action &action) const;

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

  const Actions &actions;
  std::span<const ActionLine> lines;
  Diagnostics &diagnostics;
  uint32_t stages = 0, microbatches = 0;
  bool trains = false;
  std::vector<Id> rankOfStage;
  std::vector<const Action *> firstOfStage; ///< that says so
  std::set<Id> toldStages;
  /// Rank and stage of the REDUCE_GRADs.
  std::set<std::pair<Id, Id>> reductions;

  Plan plan;
  /// Per stage and microbatch: position in its rank's list, kNone before it.
  std::vector<uint32_t> forward, backward, receivedForward, receivedBackward;
  std::vector<uint32_t> sentForward, sentBackward;
  size_t nextAside = 0;
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

//===----------------------------------------------------------------------===//
// Whether the numbers fit together
//===----------------------------------------------------------------------===//

void Builder::count() {
  Prefix stagesSeen(actions.list.size()), microbatchesSeen(stagesSeen);
  for (const Action &action : actions.list) {
    stagesSeen.take(action.stage);
    if (action.op == Op::Forward)
      microbatchesSeen.take(action.microbatch);
    trains |= isCompute(action.op) && action.op != Op::Forward;
  }
  stages = stagesSeen.length();
  microbatches = microbatchesSeen.length();
}

/// Each number once: it may stand in many places.
void Builder::checkNumbers() {
  std::set<Id> badStages, badMicrobatches;
  each([&](Id rank, const Action &action) {
    if (action.stage >= stages && badStages.insert(action.stage).second)
      fail(rank, action,
           " is of stage " + number(action.stage) +
               ", but nothing is of stage " + number(stages));
    if (action.microbatch >= microbatches &&
        badMicrobatches.insert(action.microbatch).second)
      fail(rank, action,
           " is of microbatch " + number(action.microbatch) +
               ", but no forward is of microbatch " + number(microbatches));
  });
  for (Id rank = 0; rank < actions.ranks(); ++rank)
    for (const Aside &aside : actions.asidesOf(rank))
      if (!sendOf(aside) && aside.stage >= stages &&
          badStages.insert(aside.stage).second)
        fail(rank, aside,
             " is of stage " + number(aside.stage) +
                 ", but nothing is of stage " + number(stages));
}

/// Whether there are about as many operations as stages and microbatches ask
/// for, before tables of that size are made. A small list may lack some.
bool Builder::isFilled() {
  constexpr uint64_t kAlwaysMade = uint64_t(1) << 20;
  uint64_t cells = uint64_t(stages) * microbatches;
  if (cells <= kAlwaysMade || cells <= actions.list.size())
    return true;
  diagnostics.error({lines[0].where.file, 0, 0},
                    number(stages) + " stages and " + number(microbatches) +
                        " microbatches need " + number(cells) +
                        " forwards, the file has " +
                        number(actions.list.size()) + " operations");
  return false;
}

/// A stage is where it is first computed; if nowhere, where its first message
/// stands.
void Builder::placeStages() {
  rankOfStage.assign(stages, kNone);
  firstOfStage.assign(stages, nullptr);
  for (bool computes : {true, false})
    each([&](Id rank, const Action &action) {
      if (isCompute(action.op) == computes)
        placeAt(rank, action);
    });
}

void Builder::placeAt(Id rank, const Action &action) {
  Id stage = action.stage;
  Id &of = rankOfStage[stage];
  if (of == kNone) {
    of = rank;
    firstOfStage[stage] = &action;
  }
  if (of == rank || (isCompute(action.op) && !toldStages.insert(stage).second))
    return;
  const Action &first = *firstOfStage[stage];
  if (isMessage(action.op) && isCompute(first.op))
    fail(rank, action,
         " is on rank " + number(rank) + ", but rank " + number(of) +
             " computes stage " + number(stage));
  else
    fail(rank, action,
         " is on rank " + number(rank) + ", stage " + number(stage) +
             " before on rank " + number(of));
  diagnostics.lastError().note("stage " + number(stage) + " stands here",
                               at(of, first));
}

/// The stage at the other end of a message; kNone if there is none.
Id Builder::peerOf(const Action &action) const {
  bool up = action.op == Op::SendForward || action.op == Op::RecvBackward;
  if (up ? action.stage + 1 == stages : action.stage == 0)
    return kNone;
  return up ? action.stage + 1 : action.stage - 1;
}

void Builder::checkMessages() {
  each([&](Id rank, const Action &action) {
    if (!isMessage(action.op))
      return;
    Id peer = peerOf(action);
    if (peer == kNone)
      fail(rank, action,
           " has no stage at its other end: there are " + number(stages) +
               " stages");
    else if (rankOfStage[peer] == rank)
      fail(rank, action,
           " goes nowhere: stage " + number(peer) + " is on rank " +
               number(rank) + " too");
  });
}

void Builder::checkAsides() {
  for (Id rank = 0; rank < actions.ranks(); ++rank)
    for (const Aside &aside : actions.asidesOf(rank))
      checkAside(rank, aside);
}

/// What moves parameters and gradients stands on the rank of its stage.
void Builder::checkAside(Id rank, const Aside &aside) {
  if (sendOf(aside))
    return; // noteSendWaits
  if (rankOfStage[aside.stage] != rank)
    fail(rank, aside,
         " is on rank " + number(rank) + ", but rank " +
             number(rankOfStage[aside.stage]) + " computes stage " +
             number(aside.stage));
  else if (aside.kind == AsideKind::ReduceGrad)
    reductions.emplace(rank, aside.stage);
  else if (aside.kind == AsideKind::WaitReduceGrad &&
           !reductions.contains({rank, aside.stage}))
    checkReductionWait(rank, aside);
}

void Builder::checkReductionWait(Id rank, const Aside &wait) {
  std::span<const Aside> row = actions.asidesOf(rank);
  bool isBehind = std::any_of(row.begin(), row.end(), [&](const Aside &other) {
    return other.kind == AsideKind::ReduceGrad && other.stage == wait.stage;
  });
  fail(rank, wait,
       " waits for " + number(wait.stage) + "REDUCE_GRAD, which stands " +
           (isBehind ? "behind it" : "nowhere"));
}

bool Builder::check() {
  unsigned before = diagnostics.errorCount();
  if (actions.list.empty())
    diagnostics.error({lines.empty() ? 0 : lines[0].where.file, 0, 0},
                      "the schedule names no operation");
  auto good = [&] { return diagnostics.errorCount() == before; };
  if (!good())
    return false;
  count();
  checkNumbers();
  if (!good() || !isFilled())
    return false;
  placeStages();
  if (good())
    checkMessages();
  if (good())
    checkAsides();
  return good();
}

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

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
    Id peer = rankOfStage[peerOf({op.stage, 0, kNone, 0, op.op})];
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

/// The stream of this name; should a rank have too many, the last one.
uint8_t Builder::addStream(Id rank, std::string name) {
  std::vector<std::string> &streams = plan.ranks[rank].streams;
  auto found = std::find(streams.begin(), streams.end(), name);
  if (found == streams.end() && streams.size() < kMaxStreams) {
    streams.push_back(std::move(name));
    return static_cast<uint8_t>(streams.size() - 1);
  }
  return static_cast<uint8_t>(
      std::min<size_t>(found - streams.begin(), kMaxStreams - 1));
}

std::optional<Plan> planOfActions(const Actions &actions,
                                  std::span<const ActionLine> lines,
                                  const ActionCosts &costs,
                                  Diagnostics &diagnostics) {
  Builder builder(actions, lines, diagnostics);
  unsigned before = diagnostics.errorCount();
  if (!builder.check())
    return std::nullopt;
  Plan plan = builder.build(costs);
  return diagnostics.errorCount() == before ? std::optional(std::move(plan))
                                            : std::nullopt;
}

} // namespace sluice
