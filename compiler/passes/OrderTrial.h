//===- compiler/passes/OrderTrial.h - What an order comes to -------------===//
#ifndef SLUICE_COMPILER_PASSES_ORDERTRIAL_H
#define SLUICE_COMPILER_PASSES_ORDERTRIAL_H

#include "compiler/model/Network.h"
#include "compiler/partition/Partition.h"
#include "compiler/schedules/Orders.h"

#include <vector>

namespace sluice {

/// Measures many orders of the same stages, five times as fast as a
/// graph, a simulation and a plan of each would: searches ask it. Needs one
/// copy of each stage, each with its microbatches in order, and no pairs.
class OrderTrial {
public:
  /// All must outlive it.
  OrderTrial(const StageGraph &stages, const Placement &placement,
             uint32_t microbatches, TimeUnit unit, const Network &network);

  /// Finds when all runs: as simulateSchedule, tick by tick. False if the ranks
  /// wait for each other. Linear.
  bool run(const Orders &orders);

  // Of the last run that was true:
  Ticks makespan() const { return latestEnd; }
  Ticks span() const { return longestSpan; }
  /// The bytes of each rank's arena in a plan of it, as lowering orders and
  /// places its buffers. Where operations take no time, the last of what is
  /// simultaneous is not known: then near those, and no less than what the plan
  /// has in use at once. As pack() in operations and messages.
  std::vector<Bytes> arenas() const;

  /// Less than that: state and what is in flight, without messages. Needs no
  /// run. Linear.
  std::vector<Bytes> leastBytes(const Orders &orders) const;

private:
  /// One way of an edge: activations, or the gradients of them.
  struct Way {
    Id edge;
    Id from, to; ///< ranks
    Id link;     ///< kNone on one rank
    Ticks occupancy, latency;
    bool gradient;
  };

  /// When a message starts and is there.
  struct Sent {
    Ticks start, arrival;
  };

  void addWay(Id edge, bool gradient, const Network &network, TimeUnit unit);
  /// Rows are not a power of two long: the ranks, side by side in time, would
  /// share few cache lines.
  static constexpr uint32_t kPadding = 9;
  size_t cell(Id stageOrWay, Id microbatch) const {
    return size_t(stageOrWay) * (microbatches + kPadding) + microbatch;
  }
  Ticks &startOf(Id rank, uint32_t position) {
    return starts[position + size_t(rank) * kPadding];
  }
  Ticks startOf(Id rank, uint32_t position) const {
    return starts[position + size_t(rank) * kPadding];
  }
  bool isReady(Id rank, const OrderEntry &entry, Ticks &start);
  void finish(uint32_t position, Ticks end);
  void advance(Id rank);
  Bytes stateBytes(Id rank) const;
  void forTied(Id rank, llvm::function_ref<void(Bytes)> visit) const;
  /// Walks a rank's list of operations for the lifetimes of its buffers.
  class RankWalk;

  const StageGraph &cut;
  uint32_t ranks, microbatches;
  std::vector<Id> rankOfStage;
  std::vector<Way> ways;
  std::vector<std::vector<Id>> waysOf; ///< between a rank and others
  std::vector<std::vector<Id>> forwardIn, forwardOut; ///< ways of a stage
  std::vector<std::vector<Id>> backwardIn, backwardOut;
  uint32_t links = 0;

  // The run.
  const Orders *orders = nullptr;
  std::vector<Ticks> starts;        ///< per entry
  std::vector<uint32_t> forwardAt;  ///< entry of a stage-microbatch's F
  std::vector<uint32_t> backwardAt; ///< ... of its B or I
  std::vector<uint32_t> forwards, backwards; ///< done, per stage
  std::vector<Sent> sent;                    ///< per way and microbatch
  std::vector<uint32_t> sentCount;           ///< per way
  std::vector<Ticks> freeLink, readyRank;    ///< from when on
  std::vector<uint32_t> place;               ///< entry of each rank
  std::vector<Id> waitsFor;                  ///< the way that a rank waits for
  std::vector<Id> queue;
  Ticks latestEnd = 0, longestSpan = 0;
};

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_ORDERTRIAL_H
