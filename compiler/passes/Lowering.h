//===- compiler/passes/Lowering.h - The state of the pass `lower` ---------===//
//
// Inner header of LowerToPlan.cpp (computations and messages) and
// LowerSteps.cpp (the end of a step).
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_PASSES_LOWERING_H
#define SLUICE_COMPILER_PASSES_LOWERING_H

#include "compiler/model/Network.h"
#include "compiler/simulate/Simulate.h"
#include "ir/Graph.h"
#include "ir/Plan.h"
#include "ir/Schedule.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <string>
#include <vector>

namespace sluice {

/// Builds the plan of a schedule.
class Lowering {
public:
  Lowering(const Graph &graph, const Schedule &schedule,
           const ScheduleTiming &timing, const Network &network);
  Plan lower();

private:
  /// From one rank to another: the channel and its stream at both ends.
  struct Route {
    Id destination;
    Id channel;
    uint8_t sendStream, receiveStream;
  };
  /// A collective of a rank and its stream.
  struct Reduction {
    Id collective = kNone;
    uint8_t stream = 0;
  };
  /// What a rank's list is being built with.
  struct RankState {
    Reduction reduction; ///< over replicas
    Id norms = kNone;    ///< buffer
    /// Where in the list its norms are computed last, and where those of all
    /// ranks are summed; kNone where they are not.
    uint32_t normed = kNone, normsSummed = kNone;
    llvm::SmallVector<Route, 4> routes; ///< few: searched one by one
    /// Per stream, one past the last of its operations that compute waits for.
    llvm::SmallVector<uint32_t, 8> awaited{0};
  };
  /// What a rank keeps of a stage for the whole run.
  struct StateBuffers {
    Id rank;
    Id parameters, gradients, optimizer, workspace;
    /// Of a stage with two copies: the other's gradients, and where in the list
    /// they are received and its own are sent.
    Id copyGradients;
    uint32_t received, sent;
    /// Where in the list its gradients are summed; where microbatch by
    /// microbatch, those of the last, kNone before.
    uint32_t summed;
    /// Of a tied stage: the other's gradients, and where they are received, or
    /// on the same rank summed over replicas; kNone if nothing is to be
    /// awaited.
    Id tiedGradients;
    uint32_t tiedReceived;
  };
  /// A stage without copies whose gradients replicas sum: its last node that
  /// adds to them, or where each keeps a part every one.
  struct Summed {
    Ticks when;
    Id stage, node;
  };

  std::vector<llvm::SmallVector<Id, 1>> holders() const;
  void makeState();
  StateBuffers &stateOf(Id rank, Id stage);
  void reserve();
  std::vector<bool> joinedNodes() const;
  std::vector<Summed> summedStages() const;
  void addInOrder();
  void sumBefore(Ticks start);
  void sumNext();
  void sumForUnit(uint32_t place);
  void addCompute(Id node, bool joins);
  void addMessage(Id message);
  void addSteps();
  static uint32_t lastComputeOf(const RankPlan &rank);
  void sendGradients(Id stage, StateBuffers &from, StateBuffers &to);
  void addGradients(Id stage, StateBuffers &state);
  const Reduction &reductionOf(Id rank);
  void reduceGradients(Id stage, Id microbatch, StateBuffers &state);
  void addWhole(Id rank, const Node &node, StateBuffers &state);
  void gatherParameters(Id stage, const StateBuffers &state);
  void takeTied(Id stage, size_t copy);
  void addNorms(Id stage, const StateBuffers &state);
  void sumNorms();
  Link slowestOf(llvm::ArrayRef<Id> ranks) const;
  void takeGradients(Id stage, const StateBuffers &state);
  void addTiedOperand(Id stage, const StateBuffers &state);
  void addStep(Id stage, const StateBuffers &state);

  PlanOp &beginOp(Id rank, Op op, Id stage, Id microbatch, uint8_t stream);
  void waitFor(Id rank, uint32_t op);
  void addOperand(Id rank, Id buffer, Access access) {
    plan.ranks[rank].operands.push_back(operand(buffer, access));
  }
  Id addBuffer(Id rank, Id stage, BufferKind kind, Bytes bytes);
  const Route &routeOf(Id source, Id destination);
  uint8_t addStream(Id rank, std::string name);
  void addInput(Id rank, Id node, Id value);
  void addOutput(Id rank, Id node, Id value);

  const Graph &graph;
  const Schedule &schedule;
  const ScheduleTiming &timing;
  const Network &network;
  Plan plan;
  std::vector<RankState> states;
  /// Per stage, its copies by rank: one, or two that face each other.
  std::vector<llvm::SmallVector<StateBuffers, 1>> copies;
  std::vector<uint32_t> opOfNode; ///< position in its rank's list
  std::vector<Id> bufferOfValue;  ///< on its producer's rank
  /// Received copies of a value: a chain of messages, the newest first.
  std::vector<Id> newestMessage, nextMessage;
  std::vector<Id> bufferOfMessage;
  std::vector<uint32_t> receiveOf; ///< position in the receiver's list
  std::vector<bool> joined; ///< nodes that run with the next; empty without any
  std::vector<Summed> summed; ///< in order of time
  size_t nextSummed = 0;
  /// Per stage and microbatch, where a part of the gradients is kept: the
  /// buffer of those of the microbatch.
  std::vector<Id> bufferOfWhole;
  /// Per stage whether it has gradients of a microbatch that are not summed.
  std::vector<bool> unsummed;
};

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_LOWERING_H
