//===- ir/Graph.h - Operations and the values between them, no order -----===//
//
// The dependence graph of one training step. Nodes are computations, values
// are what they hand on; every dependence is a value (of 0 bytes where only
// the order matters). Nothing here assumes a chain of stages, equal
// microbatches, or a backward for every stage.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_GRAPH_H
#define SLUICE_IR_GRAPH_H

#include "ir/Ops.h"
#include "ir/Stage.h"
#include "ir/Units.h"

#include <span>
#include <string>
#include <vector>

namespace sluice {

struct Node {
  Ticks duration;
  Id stage;
  Id microbatch;
  Op op;
};

/// "0F3".
inline std::string nameOf(const Node &node) {
  return opName(node.op, node.stage, node.microbatch);
}

/// Activation and Gradient cross stage boundaries (a message where the ranks
/// differ); Saved is released by B or I, Kept by B or W, Checkpoint by R, all
/// on the rank that made them; Order carries no data.
enum class ValueKind : uint8_t {
  Activation,
  Gradient,
  Saved,
  Kept,
  Checkpoint,
  Order
};

struct Value {
  Bytes bytes;
  Id producer;
  Id firstUse; ///< its consumers are Graph::uses[firstUse, next.firstUse)
  ValueKind kind;
};

class Graph {
public:
  std::vector<Stage> stages;
  std::vector<StageEdge> edges; ///< sorted by (from, to)
  uint32_t microbatches = 0;    ///< of each replica
  uint32_t replicas = 1;        ///< of all that follows (Plan::replicas)
  TimeUnit timeUnit = TimeUnit::Unit;

  /// Nodes may be in any order; values are sorted by producer.
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<Id> uses;

  /// Computes the two indexes below from nodes, values and uses. Call after
  /// filling them. O(nodes + values + uses).
  void finalize();

  std::span<const Id> consumers(Id value) const {
    Id begin = values[value].firstUse;
    Id end = value + 1 < values.size() ? values[value + 1].firstUse
                                       : static_cast<Id>(uses.size());
    return std::span(uses).subspan(begin, end - begin);
  }
  /// Values that `node` produces, as a range of value numbers.
  std::pair<Id, Id> outputs(Id node) const {
    return {firstOutput[node], firstOutput[node + 1]};
  }
  /// Values that `node` consumes, in order of value number.
  std::span<const Id> inputs(Id node) const {
    return std::span(inputValues)
        .subspan(firstInput[node], firstInput[node + 1] - firstInput[node]);
  }

private:
  std::vector<Id> firstOutput; ///< per node, and one past the last
  std::vector<Id> firstInput;
  std::vector<Id> inputValues;
};

} // namespace sluice

#endif // SLUICE_IR_GRAPH_H
