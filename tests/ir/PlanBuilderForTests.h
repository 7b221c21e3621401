//===- tests/ir/PlanBuilderForTests.h - Plans from lists of names ---------===//
//
// Makes a plan from what a person would write down: per rank a line of names
// with groups in parentheses, "0F0 ( 0SEND_F0 0RECV_B1 ) 0B0"; where a stage
// has several neighbours, the number of the edge follows: "0SEND_F0@1", and
// behind an operation of several ranks the number of its collective. Buffers,
// waits and channels follow from the data, by the simplest means. Independent
// of the compiler, so that the verifier is tested on plans of other origin.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_IR_PLANBUILDERFORTESTS_H
#define SLUICE_TESTS_IR_PLANBUILDERFORTESTS_H

#include "tests/ir/NetForTests.h"

#include <map>
#include <stdexcept>

namespace sluice::testing {

class PlanBuilder {
public:
  explicit PlanBuilder(const Net &of) : net(of) {
    plan.model = "test";
    plan.schedule = "test";
    plan.source = "spec.yaml";
    plan.microbatches = net.microbatches;
    plan.replicas = net.replicas;
    plan.stages = net.stages;
    plan.edges = net.edges;
    plan.ranks.resize(net.ranks);
    for (const std::vector<Id> &ranks : net.collectives)
      plan.collectives.push_back({kNone, ranks, 0, 0, net.replicas > 1});
  }

  Plan build(const Lists &lists) {
    for (Id r = 0; r < net.ranks; ++r)
      buildRank(r, lists[r]);
    for (Id c = 0; c < plan.collectives.size(); ++c)
      plan.collectives[c].communicator =
          static_cast<Id>(plan.channels.size()) + c;
    return plan;
  }

private:
  /// (kind, edge or stage, microbatch); 0 for the state of a stage.
  using Key = std::tuple<BufferKind, Id, Id>;
  struct Slot {
    Bytes offset;
    std::vector<uint32_t> uses;
  };

  void buildRank(Id r, const std::vector<std::string> &names) {
    rank = &plan.ranks[r];
    values.clear();
    slots.clear();
    freed.clear();
    messageCount.clear();
    makeStreams(r);
    Id group = kNone, groups = 0;
    for (const std::string &name : names)
      if (name == "(")
        group = groups++;
      else if (name == ")")
        group = kNone;
      else
        add(r, name, group);
  }

  void makeStreams(Id r) {
    rank->streams = {"compute"};
    if (net.streams == Streams::One)
      rank->streams.push_back("messages");
    if (net.streams == Streams::Direction)
      rank->streams.insert(rank->streams.end(), {"send", "receive"});
    if (net.streams == Streams::Channel)
      for (Id peer = 0; peer < net.ranks; ++peer) {
        rank->streams.push_back("to " + std::to_string(peer));
        rank->streams.push_back("from " + std::to_string(peer));
      }
    firstCollectiveStream = static_cast<uint8_t>(rank->streams.size());
    if (net.streams != Streams::One)
      for (Id c = 0; c < net.collectives.size(); ++c)
        rank->streams.push_back("collective " + std::to_string(c));
    (void)r;
  }

  uint8_t streamOf(bool isSending, Id peer) const {
    switch (net.streams) {
    case Streams::One:
      return 1;
    case Streams::Direction:
      return isSending ? 1 : 2;
    case Streams::Channel:
      return static_cast<uint8_t>(1 + 2 * peer + (isSending ? 0 : 1));
    }
    return 0;
  }

  Id channel(Id from, Id to) {
    for (Id c = 0; c < plan.channels.size(); ++c)
      if (plan.channels[c].source == from && plan.channels[c].destination == to)
        return c;
    Id number = static_cast<Id>(plan.channels.size());
    plan.channels.push_back({number, from, to, 0, 0});
    return number;
  }

  void add(Id r, const std::string &name, Id group) {
    size_t mark = name.find('@');
    OpRef ref = *parseOpName(name.substr(0, mark));
    Id given = mark == std::string::npos
                   ? kNone
                   : static_cast<Id>(std::stoul(name.substr(mark + 1)));
    op = {ref.stage, ref.microbatch, kNone, group, 0, 0, ref.op, 0};
    operands.clear();
    waits.clear();
    released.clear();
    if (isMessage(op.op))
      message(r, given);
    else if (isCollective(op.op))
      collective(given == kNone ? 0 : given);
    else
      compute();
    op.firstWait = static_cast<uint32_t>(rank->waits.size());
    op.firstOperand = static_cast<uint32_t>(rank->operands.size());
    rank->waits.insert(rank->waits.end(), waits.begin(), waits.end());
    rank->operands.insert(rank->operands.end(), operands.begin(),
                          operands.end());
    for (Operand used : operands)
      slots[used.buffer].uses.push_back(
          static_cast<uint32_t>(rank->ops.size()));
    rank->ops.push_back(op);
    for (const Key &key : released)
      release(key);
  }

  void collective(Id number) {
    op.channel = number;
    op.stream = net.streams == Streams::One
                    ? uint8_t(1)
                    : static_cast<uint8_t>(firstCollectiveStream + number);
    const StageBytes &bytes = net.stages[op.stage].bytes;
    bool isNorms = info(op.op).payload == Payload::Norms;
    bool isGather = op.op == Op::AllGatherParameters;
    Key key = isNorms    ? Key{BufferKind::Norms, 0, 0}
              : isGather ? Key{BufferKind::Parameters, op.stage, 0}
                         : Key{BufferKind::Gradients, op.stage, 0};
    if (!values.count(key)) // before it is filled: the test wants it so
      values[key] = newBuffer(std::get<0>(key), isNorms    ? bytes.norms
                                                : isGather ? bytes.parameters
                                                           : bytes.gradients);
    use(key, Access::Update);
  }

  /// Between the two copies of a stage, on ranks 0 and 1.
  void copyMessage(Id r) {
    Id peer = 1 - r;
    op.channel = isSend(op.op) ? channel(r, peer) : channel(peer, r);
    op.stream = streamOf(isSend(op.op), peer);
    if (isSend(op.op))
      use({BufferKind::Gradients, op.stage, 0}, Access::Read);
    else
      write({BufferKind::CopyGradients, op.stage, 0},
            net.stages[op.stage].bytes.gradients);
  }

  void tiedMessage(Id r) {
    Id peer = net.rankOf[net.stages[op.stage].tiedTo];
    op.channel = isSend(op.op) ? channel(r, peer) : channel(peer, r);
    op.stream = streamOf(isSend(op.op), peer);
    if (isSend(op.op))
      use({BufferKind::Gradients, op.stage, 0}, Access::Read);
    else
      write({BufferKind::TiedGradients, op.stage, 0},
            net.stages[op.stage].bytes.tied);
  }

  void message(Id r, Id given) {
    if (info(op.op).payload == Payload::WeightGradients)
      return copyMessage(r);
    if (!info(op.op).perMicrobatch)
      return tiedMessage(r);
    std::vector<Id> edges = crossingEdges(net, op.op, op.stage);
    size_t nth = messageCount[{op.op, op.stage, op.microbatch}]++;
    if (edges.empty())
      throw std::invalid_argument("no edge for " +
                                  opName(op.op, op.stage, op.microbatch));
    Id edge = given == kNone ? edges[nth % edges.size()] : given;
    bool forward = info(op.op).payload == Payload::Activation;
    Id from = net.rankOf[net.edges[edge].from];
    Id to = net.rankOf[net.edges[edge].to];
    Id peer = from == r ? to : from;
    op.channel = isSend(op.op) ? channel(r, peer) : channel(peer, r);
    op.stream = streamOf(isSend(op.op), peer);
    BufferKind kind = forward ? BufferKind::Activation : BufferKind::Gradient;
    if (isSend(op.op))
      read({kind, edge, op.microbatch}, true);
    else
      write({kind, edge, op.microbatch}, net.edges[edge].bytes);
  }

  static bool ofRank(BufferKind kind) {
    return info(kind).bufferClass == BufferClass::Scratch;
  }

  void state(BufferKind kind, Bytes bytes, Access access) {
    if (bytes == 0)
      return;
    Id owner = ofRank(kind) ? 0 : op.stage;
    Key key{kind, owner, 0};
    if (!values.count(key))
      values[key] = newBuffer(kind, bytes);
    for (uint32_t earlier : slots[values[key]].uses)
      if (isCollective(rank->ops[earlier].op))
        waitFor(earlier);
    operands.push_back(operand(values[key], access));
  }

  void compute() {
    const StageBytes &bytes = net.stages[op.stage].bytes;
    Id s = op.stage, k = op.microbatch;
    if (op.op == Op::AddGradients) {
      use({BufferKind::Gradients, s, 0}, Access::Update);
      return read({BufferKind::CopyGradients, s, 0}, true);
    }
    if (op.op == Op::NormGradients) {
      state(BufferKind::Gradients, bytes.gradients, Access::Read);
      state(BufferKind::Norms, bytes.norms, Access::Update);
      return tiedPart();
    }
    bool step = op.op == Op::OptimizerStep, forward = op.op == Op::Forward;
    if (op.op != Op::BackwardWeight)
      state(BufferKind::Parameters, bytes.parameters,
            step ? Access::Update : Access::Read);
    if (!forward)
      state(BufferKind::Gradients, bytes.gradients,
            step ? Access::Read : Access::Update);
    if (step) {
      state(BufferKind::Optimizer, bytes.optimizer, Access::Update);
      state(BufferKind::Norms, bytes.norms, Access::Read);
      return tiedPart();
    }
    state(BufferKind::Workspace, bytes.workspace, Access::Update);
    Key saved{BufferKind::Saved, s, k}, kept{BufferKind::Kept, s, k};
    if (op.op == Op::BackwardWeight)
      return read(kept, true);
    if (!forward) {
      read(saved, true);
      if (op.op == Op::Backward)
        read(kept, true);
      else
        update(kept);
    }
    for (Id e = 0; e < net.edges.size(); ++e)
      if ((forward ? net.edges[e].to : net.edges[e].from) == s &&
          (forward || trained(e)))
        read({forward ? BufferKind::Activation : BufferKind::Gradient, e, k},
             true);
    for (Id e = 0; e < net.edges.size(); ++e)
      if ((forward ? net.edges[e].from : net.edges[e].to) == s &&
          (forward || trained(e)))
        write({forward ? BufferKind::Activation : BufferKind::Gradient, e, k},
              net.edges[e].bytes);
    if (forward && net.stages[s].backward) {
      write(saved, bytes.activation - bytes.keptForWeight);
      write(kept, bytes.keptForWeight);
    }
  }

  /// What a step takes of the stage that its own is tied to.
  void tiedPart() {
    Id other = net.stages[op.stage].tiedTo;
    if (other == kNone)
      return;
    if (net.rankOf[other] == net.rankOf[op.stage])
      use({BufferKind::Gradients, other, 0}, Access::Read);
    else
      read({BufferKind::TiedGradients, op.stage, 0}, true);
  }

  bool trained(Id e) const {
    return net.stages[net.edges[e].from].backward &&
           net.stages[net.edges[e].to].backward;
  }

  void waitFor(uint32_t position) {
    if (rank->ops[position].stream != op.stream &&
        std::find(waits.begin(), waits.end(), position) == waits.end())
      waits.push_back(position);
  }

  void read(const Key &key, bool isLast) {
    use(key, Access::Read);
    if (isLast)
      released.push_back(key);
  }
  void update(const Key &key) { use(key, Access::Update); }

  void use(const Key &key, Access access) {
    if (!values.count(key)) // used before it is made: the test wants it so
      values[key] = newBuffer(std::get<0>(key), 8);
    for (uint32_t earlier : slots[values[key]].uses)
      waitFor(earlier);
    operands.push_back(operand(values[key], access));
  }

  void write(const Key &key, Bytes bytes) {
    Id buffer = newBuffer(std::get<0>(key), bytes);
    values[key] = buffer;
    for (uint32_t earlier : slots[buffer].uses)
      waitFor(earlier);
    slots[buffer].uses.clear();
    operands.push_back(operand(buffer, Access::Write));
  }

  Id newBuffer(BufferKind kind, Bytes bytes) {
    Buffer buffer;
    buffer.kind = kind;
    buffer.bytes = bytes;
    buffer.stage = ofRank(kind) ? kNone : op.stage;
    Slot slot{rank->arenaBytes, {}};
    auto &pool = freed[bytes];
    if (!info(kind).persistent && net.reuse && !pool.empty()) {
      slot = pool.front();
      pool.erase(pool.begin());
    } else {
      rank->arenaBytes +=
          (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    }
    buffer.offset = slot.offset;
    rank->buffers.push_back(buffer);
    slots.push_back(slot);
    return static_cast<Id>(rank->buffers.size() - 1);
  }

  void release(const Key &key) {
    Id buffer = values[key];
    freed[rank->buffers[buffer].bytes].push_back(slots[buffer]);
  }

  const Net &net;
  Plan plan;
  RankPlan *rank = nullptr;
  uint8_t firstCollectiveStream = 0;
  std::map<Key, Id> values;
  std::vector<Slot> slots; ///< per buffer
  std::map<Bytes, std::vector<Slot>> freed;
  std::map<std::tuple<Op, Id, Id>, size_t> messageCount;
  PlanOp op{};
  std::vector<Operand> operands;
  std::vector<uint32_t> waits;
  std::vector<Key> released;
};

inline Plan buildPlan(const Net &net, const Lists &lists) {
  return PlanBuilder(net).build(lists);
}

/// One line of names per rank.
inline Plan buildPlan(const Net &net, const std::vector<std::string> &lines) {
  Lists lists;
  for (const std::string &line : lines)
    lists.push_back(split(line));
  return buildPlan(net, lists);
}

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_PLANBUILDERFORTESTS_H
