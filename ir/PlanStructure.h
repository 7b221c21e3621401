//===- ir/PlanStructure.h - Is every number of a plan in range? -----------===//
//
// What the readers of plan files and of text forms check before they hand a
// plan over, so that whoever walks it may index without checks of his own.
// That the plan is right is another question: ir/verify.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_PLANSTRUCTURE_H
#define SLUICE_IR_PLANSTRUCTURE_H

#include "ir/Plan.h"

#include <functional>
#include <span>
#include <string>

namespace sluice {

/// Numbers of stages, ranks and microbatches stay below this (parseOpName).
inline constexpr uint32_t kMaxCount = kMaxNumber;

/// A rank has at most so many streams: the executor numbers them in a byte.
inline constexpr uint32_t kMaxStreams = 255;

/// The arrays of a rank, with their sizes at hand: a vector divides to tell its
/// own, which a walk of every operation feels.
struct ListView {
  const PlanOp *ops = nullptr;
  const uint32_t *waits = nullptr;
  const Operand *operands = nullptr;
  const Buffer *buffers = nullptr;
  size_t opCount = 0, waitCount = 0, operandCount = 0, bufferCount = 0;

  ListView() = default;
  explicit ListView(const RankPlan &of)
      : ops(of.ops.data()), waits(of.waits.data()),
        operands(of.operands.data()), buffers(of.buffers.data()),
        opCount(of.ops.size()), waitCount(of.waits.size()),
        operandCount(of.operands.size()), bufferCount(of.buffers.size()) {}

  size_t waitEnd(uint32_t at) const {
    return at + size_t(1) < opCount ? ops[at + 1].firstWait : waitCount;
  }
  size_t operandEnd(uint32_t at) const {
    return at + size_t(1) < opCount ? ops[at + 1].firstOperand : operandCount;
  }
  /// One past the last operation of the group of operation `first`, which
  /// begins it; of an operation outside of groups, one past itself.
  uint32_t unitEnd(uint32_t first) const {
    Id group = ops[first].group;
    uint32_t end = first + 1;
    if (group != kNone)
      while (end < opCount && ops[end].group == group)
        ++end;
    return end;
  }
  std::span<const uint32_t> waitsAt(uint32_t at) const {
    return {waits + ops[at].firstWait, waits + waitEnd(at)};
  }
  std::span<const Operand> operandsAt(uint32_t at) const {
    return {operands + ops[at].firstOperand, operands + operandEnd(at)};
  }
};

/// A number out of range, and where it stands.
struct StructureFault {
  enum class Part : uint8_t {
    Plan,
    Stage,
    Edge,
    Channel,
    Collective,
    Rank,
    Buffer,
    Op
  };
  Part part;
  uint32_t index;      ///< of the stage, edge, …; 0 for the plan and the rank
  std::string message; ///< without its subject: "names stage 9, but …"
};

/// The fault as a sentence: "rank 2, operation 17 (0SEND_F3) waits for …".
std::string describe(const Plan &plan, Id rank, const StructureFault &fault);

/// Takes a fault; returns false to hear no more.
using FaultSink = std::function<bool(StructureFault)>;

/// Tells what is wrong with what all ranks have in common: at most one fault
/// for each stage and edge, and for each channel and collective one of its own
/// and those it has beside another. `plan.ranks` counts, its content does not.
/// O(stages + edges + channels log channels + ranks of collectives, and their
/// number times its logarithm).
void findHeaderFaults(const Plan &plan, const FaultSink &sink);

/// Tells what is wrong with the list of `rank`, whose header has no faults: at
/// most one fault for each buffer and operation, and one for each group that
/// does not stand together. Linear, no allocation but for
/// the groups.
void findRankFaults(const Plan &plan, Id rank, const FaultSink &sink);

} // namespace sluice

#endif // SLUICE_IR_PLANSTRUCTURE_H
