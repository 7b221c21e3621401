//===- tests/ir/NetForTests.h - Stages, and lists of what to do with them -===//
//
// What tests of the verifier make plans of: stages, the edges between them and
// where they are, and per rank a list of names, in usual and less usual orders.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_IR_NETFORTESTS_H
#define SLUICE_TESTS_IR_NETFORTESTS_H

#include "ir/Plan.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace sluice::testing {

/// Which stream a message is on: all on one; one to send and one to receive;
/// or one per peer and direction. Every channel has a communicator of its own.
enum class Streams { One, Direction, Channel };

/// Stages, the edges between them, and where they are.
struct Net {
  std::vector<Stage> stages;
  std::vector<StageEdge> edges;
  std::vector<Id> rankOf; ///< per stage
  uint32_t ranks = 0;
  uint32_t microbatches = 0;
  /// Ranks of each collective; each has a communicator and, unless all is on
  /// one stream, a stream of its own.
  std::vector<std::vector<Id>> collectives;
  uint32_t replicas = 1; ///< of more, all collectives are over replicas
  Streams streams = Streams::Direction;
  bool reuse = true; ///< bytes of values that are used up are given out again
};

inline Stage testStage(uint32_t number, bool backward) {
  Stage stage;
  stage.backward = backward;
  stage.bytes.parameters = 16;
  stage.bytes.gradients = backward ? 16 : 0;
  stage.bytes.optimizer = backward ? 32 : 0;
  stage.bytes.activation = backward ? 24 : 0;
  stage.bytes.keptForWeight = backward ? 8 : 0;
  stage.bytes.workspace = 8;
  stage.location.line = 10 + number;
  return stage;
}

/// A chain of `stages` stages on `ranks` ranks, stage s on rank s mod ranks.
inline Net chain(uint32_t ranks, uint32_t microbatches, bool backward = true,
                 uint32_t stages = 0) {
  Net net;
  net.ranks = ranks;
  net.microbatches = microbatches;
  for (Id s = 0; s < (stages ? stages : ranks); ++s) {
    net.stages.push_back(testStage(s, backward));
    net.rankOf.push_back(s % ranks);
    if (s > 0)
      net.edges.push_back({s - 1, s, 8});
  }
  return net;
}

/// Ties two stages by half of their gradients.
inline void tie(Net &net, Id one, Id other) {
  for (auto [from, to] : {std::pair(one, other), std::pair(other, one)}) {
    net.stages[from].tiedTo = to;
    net.stages[from].bytes.tied = net.stages[from].bytes.gradients / 2;
  }
}

/// Lists of names, one per rank.
using Lists = std::vector<std::vector<std::string>>;

inline std::vector<std::string> split(const std::string &line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;)
    words.push_back(word);
  return words;
}

/// Compute of 1F1B for a chain with one stage a rank.
inline Lists oneForwardOneBackward(const Net &net, bool step = true) {
  Lists lists;
  for (Id r = 0; r < net.ranks; ++r) {
    std::vector<std::string> names;
    Id m = net.microbatches, warmup = std::min(m, net.ranks - 1 - r);
    for (Id k = 0; k < warmup; ++k)
      names.push_back(opName(Op::Forward, r, k));
    for (Id k = 0; k < m; ++k) {
      if (warmup + k < m)
        names.push_back(opName(Op::Forward, r, warmup + k));
      names.push_back(opName(Op::Backward, r, k));
    }
    if (step)
      names.push_back(opName(Op::OptimizerStep, r, kNone));
    lists.push_back(names);
  }
  return lists;
}

/// All forwards of a rank, then all backwards, split in I and W if wanted.
inline Lists allForwardAllBackward(const Net &net, bool splitBackward) {
  Lists lists(net.ranks);
  Id count = static_cast<Id>(net.stages.size());
  for (Id s = 0; s < count; ++s)
    for (Id k = 0; k < net.microbatches; ++k)
      lists[net.rankOf[s]].push_back(opName(Op::Forward, s, k));
  for (Id s = count; s-- > 0;)
    for (Id k = 0; k < net.microbatches && net.stages[s].backward; ++k) {
      auto &list = lists[net.rankOf[s]];
      if (!splitBackward) {
        list.push_back(opName(Op::Backward, s, k));
        continue;
      }
      list.push_back(opName(Op::BackwardInput, s, k));
      list.push_back(opName(Op::BackwardWeight, s, k));
    }
  for (Id s = 0; s < count; ++s)
    if (net.stages[s].backward)
      lists[net.rankOf[s]].push_back(opName(Op::OptimizerStep, s, kNone));
  return lists;
}

/// Edges of `stage` that a message of `op` may be about, in order.
inline std::vector<Id> crossingEdges(const Net &net, Op op, Id stage) {
  std::vector<Id> found;
  bool leaves = op == Op::SendForward || op == Op::RecvBackward;
  bool forward = info(op).payload == Payload::Activation;
  for (Id e = 0; e < net.edges.size(); ++e) {
    const StageEdge &edge = net.edges[e];
    bool trained =
        net.stages[edge.from].backward && net.stages[edge.to].backward;
    if ((leaves ? edge.from : edge.to) == stage && (forward || trained) &&
        net.rankOf[edge.from] != net.rankOf[edge.to])
      found.push_back(e);
  }
  return found;
}

/// Messages where they are needed: a receive right before its use, a send
/// right after its making, each rank on its own. Deadlocks easily.
inline Lists withNaiveMessages(const Net &net, const Lists &compute) {
  Lists lists;
  for (const auto &names : compute) {
    std::vector<std::string> list;
    for (const std::string &name : names) {
      OpRef op = *parseOpName(name);
      bool forward = op.op == Op::Forward;
      bool backward = op.op == Op::Backward || op.op == Op::BackwardInput;
      Op receive = forward ? Op::RecvForward : Op::RecvBackward;
      Op send = forward ? Op::SendForward : Op::SendBackward;
      if (forward || backward)
        for (size_t i = crossingEdges(net, receive, op.stage).size(); i > 0;
             --i)
          list.push_back(opName(receive, op.stage, op.microbatch));
      list.push_back(name);
      if (forward || backward)
        for (size_t i = crossingEdges(net, send, op.stage).size(); i > 0; --i)
          list.push_back(opName(send, op.stage, op.microbatch));
    }
    lists.push_back(list);
  }
  return lists;
}

/// Messages in one global order: both ends of each right after its making.
inline Lists withOrderedMessages(const Net &net, const Lists &compute) {
  Lists lists(compute.size());
  std::vector<size_t> next(compute.size(), 0);
  std::set<std::tuple<bool, Id, Id>> made; // gradient?, edge, microbatch
  auto ready = [&](const OpRef &op) {
    bool forward = op.op == Op::Forward;
    if (!forward && op.op != Op::Backward && op.op != Op::BackwardInput)
      return true;
    for (Id e = 0; e < net.edges.size(); ++e) {
      const StageEdge &edge = net.edges[e];
      bool trained =
          net.stages[edge.from].backward && net.stages[edge.to].backward;
      if ((forward ? edge.to : edge.from) == op.stage && (forward || trained) &&
          !made.count({!forward, e, op.microbatch}))
        return false;
    }
    return true;
  };
  auto emit = [&](Id r, const std::string &name) {
    OpRef op = *parseOpName(name);
    lists[r].push_back(name);
    bool forward = op.op == Op::Forward;
    if (!forward && op.op != Op::Backward && op.op != Op::BackwardInput)
      return;
    for (Id e = 0; e < net.edges.size(); ++e) {
      const StageEdge &edge = net.edges[e];
      if ((forward ? edge.from : edge.to) != op.stage)
        continue;
      made.insert({!forward, e, op.microbatch});
      Id other = forward ? edge.to : edge.from;
      bool trained =
          net.stages[edge.from].backward && net.stages[edge.to].backward;
      if (net.rankOf[other] == r || !(forward || trained))
        continue;
      std::string suffix = "@" + std::to_string(e);
      lists[r].push_back(opName(forward ? Op::SendForward : Op::SendBackward,
                                op.stage, op.microbatch) +
                         suffix);
      lists[net.rankOf[other]].push_back(
          opName(forward ? Op::RecvForward : Op::RecvBackward, other,
                 op.microbatch) +
          suffix);
    }
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (Id r = 0; r < compute.size(); ++r)
      if (next[r] < compute[r].size() &&
          ready(*parseOpName(compute[r][next[r]]))) {
        emit(r, compute[r][next[r]++]);
        moved = true;
      }
  }
  return lists;
}

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_NETFORTESTS_H
