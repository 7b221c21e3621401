//===- ir/Plan.h - What a rank's host enqueues, in order -----------------===//
//
// A plan is complete and static: for each rank one list of operations in the
// order in which the host enqueues them, each on a named stream, on buffers at
// fixed offsets of one arena. Plain data; PlanFile.h stores it, ir/verify
// proves it right, runtime/ executes it.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_PLAN_H
#define SLUICE_IR_PLAN_H

#include "ir/Ops.h"
#include "ir/Stage.h"
#include "ir/Units.h"

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

/// How long a buffer lives, and whose it is.
enum class BufferClass : uint8_t {
  State,   ///< of a stage, for the whole run
  Scratch, ///< of a rank, for the whole run
  /// Of a stage, one microbatch after the other: each from its write to the
  /// last access before the next write.
  Value,
  Host, ///< as Value, but in the arena of the rank's host memory
};

/// What a buffer holds; the kinds of memory that `report` tells apart.
enum class BufferKind : uint8_t {
#define SLUICE_BUFFER(Name, ...) Name,
#include "ir/Buffers.def"
};

struct BufferKindInfo {
  std::string_view text;   ///< in text forms
  std::string_view report; ///< key in `memory{…}` of the report
  BufferClass bufferClass;
  bool persistent; ///< lives for the whole run
};

inline constexpr BufferKindInfo kBufferKinds[] = {
#define SLUICE_BUFFER(Name, Text, Report, Class)                               \
  {Text, Report, BufferClass::Class, BufferClass::Class < BufferClass::Value},
#include "ir/Buffers.def"
};
inline constexpr unsigned kBufferKindCount =
    sizeof(kBufferKinds) / sizeof(kBufferKinds[0]);

constexpr const BufferKindInfo &info(BufferKind kind) {
  return kBufferKinds[static_cast<unsigned>(kind)];
}

constexpr bool isOnHost(BufferKind kind) {
  return info(kind).bufferClass == BufferClass::Host;
}

/// How many kinds are of a class before `end`: these are the first ones.
constexpr unsigned kindsBefore(BufferClass end) {
  unsigned count = 0;
  while (count < kBufferKindCount && kBufferKinds[count].bufferClass < end)
    ++count;
  return count;
}
static_assert(
    [] {
      for (unsigned kind = 1; kind < kBufferKindCount; ++kind)
        if (kBufferKinds[kind].bufferClass < kBufferKinds[kind - 1].bufferClass)
          return false;
      return true;
    }(),
    "the rows of Buffers.def stand in order of their class");

/// A range of the arena, or of the host arena, that holds one value. Buffers
/// that share bytes must be ordered by happens-before.
struct Buffer {
  Bytes offset = 0; ///< multiple of kBufferAlignment
  Bytes bytes = 0;
  Id stage = kNone; ///< whose value it is; kNone for what is of the rank
  BufferKind kind = BufferKind::Saved;
};

inline constexpr Bytes kBufferAlignment = 256;

enum class Access : uint8_t { Read, Write, Update };

/// One use of a buffer by an operation. The order of an operation's operands
/// is: state and workspace, then inputs in order of their producer, then
/// outputs.
struct Operand {
  uint32_t buffer : 30;
  uint32_t access : 2; ///< an Access
};
static_assert(sizeof(Operand) == 4);
/// An operand as a plan file has it: the buffer in the low bits, the access
/// above them.
inline constexpr uint32_t kOperandBuffer = (uint32_t(1) << 30) - 1;
inline uint32_t wordOf(const Operand &of) {
  uint32_t word;
  std::memcpy(&word, &of, sizeof word);
  return word;
}
inline Operand operandOf(uint32_t word) {
  Operand of;
  std::memcpy(&of, &word, sizeof of);
  return of;
}
inline Operand operand(Id buffer, Access access) {
  return {buffer, static_cast<uint32_t>(access)};
}

/// One operation of a rank's list.
struct PlanOp {
  Id stage;
  Id microbatch;         ///< kNone where the operation has none
  Id channel;            ///< of a message its channel, of a collective its
                         ///< number in Plan::collectives, else kNone
  Id group;              ///< operations of one group share a number and stand
                         ///< together in the list; kNone outside
  uint32_t firstWait;    ///< in RankPlan::waits, up to the next op's
  uint32_t firstOperand; ///< in RankPlan::operands, up to the next op's
  Op op;
  uint8_t stream;
};

/// Stream 0 computes; the others carry messages, collectives and copies.
inline constexpr uint8_t kComputeStream = 0;

/// The list of one rank, loadable on its own.
struct RankPlan {
  std::vector<PlanOp> ops;
  /// Event waits: positions in `ops`, each before the op that waits. An op
  /// that is waited for records an event when it ends.
  std::vector<uint32_t> waits;
  std::vector<Operand> operands;
  std::vector<Buffer> buffers;
  std::vector<std::string> streams; ///< names, at least "compute"
  Bytes arenaBytes = 0;
  Bytes hostArenaBytes = 0; ///< of host memory, which has an arena of its own

  std::span<const uint32_t> waitsOf(uint32_t op) const {
    return slice(waits, op, &PlanOp::firstWait);
  }
  std::span<const Operand> operandsOf(uint32_t op) const {
    return slice(operands, op, &PlanOp::firstOperand);
  }

private:
  /// The part of `pool` between `first` of operation `op` and of the next.
  template <typename T>
  std::span<const T> slice(const std::vector<T> &pool, uint32_t op,
                           uint32_t PlanOp::*first) const {
    uint32_t begin = ops[op].*first;
    uint32_t end = op + 1 < ops.size() ? ops[op + 1].*first
                                       : static_cast<uint32_t>(pool.size());
    return std::span(pool).subspan(begin, end - begin);
  }
};

/// A first-in-first-out path for messages from one rank to another. The n-th
/// send meets the n-th receive.
struct Channel {
  Id communicator;
  Id source;       ///< rank
  Id destination;  ///< rank
  Ticks latency;   ///< cost model of its link
  Bytes bandwidth; ///< bytes per second (per unit of time); 0: size is free
};

/// A path for operations of several ranks together. The n-th one of each of
/// these ranks meets the n-th ones of all others.
struct Collective {
  Id communicator; ///< of its own among collectives; channels may share it
  std::vector<Id> ranks; ///< ascending
  Ticks latency = 0;     ///< cost model of the links between its neighbours
  Bytes bandwidth = 0;   ///< as Channel::bandwidth
  /// Whether it spans all replicas: its members are then these ranks of every
  /// replica, in order of replica and rank; else each replica has its own.
  bool overReplicas = false;
};

/// Between a device and its host: each direction carries one copy at a time.
struct HostLink {
  Ticks latency = 0;
  Bytes bandwidth = 0; ///< as Channel::bandwidth
};

/// All ranks' lists and what is common to them. With `replicas` > 1 so many
/// pipelines run the same lists side by side, each on its own microbatches of
/// the step: replica i has microbatches i * m ... i * m + m - 1 of all. Nothing
/// but collectives over replicas joins them.
struct Plan {
  std::string model;    ///< name of the model
  std::string schedule; ///< name of the schedule
  std::string source;   ///< file name of the spec
  TimeUnit timeUnit = TimeUnit::Unit;
  uint32_t microbatches = 0; ///< of each replica
  uint32_t replicas = 1;     ///< of data parallelism
  std::vector<Stage> stages;
  std::vector<StageEdge> edges; ///< sorted by (from, to)
  std::vector<Channel> channels;
  std::vector<Collective> collectives;
  HostLink hostLink; ///< of every rank
  /// The counts of the schedule's rule, as Schedule::warmup.
  std::vector<uint32_t> warmup;
  /// The spec's `run` section, keys as in the spec, sorted.
  std::vector<std::pair<std::string, std::string>> run;
  Bytes memoryLimit = 0;     ///< per rank; 0: unlimited
  Bytes memoryAllowance = 0; ///< for the device's context, counts to the limit
  std::vector<RankPlan> ranks;
};

/// "1SEND_F3".
inline std::string nameOf(const PlanOp &op) {
  return opName(op.op, op.stage, op.microbatch);
}

/// Bytes that a message or a collective of `rank` carries: its buffer; of the
/// gradients of a tied stage those of the table that it shares, and of what is
/// in parts what the stage has of it. It has one operand; what sums a
/// microbatch's gradients has two, the part that the rank keeps and they.
inline Bytes messageBytes(const Plan &plan, const RankPlan &rank,
                          const PlanOp &op) {
  if (op.op == Op::SendTied)
    return plan.stages[op.stage].bytes.tied;
  if (op.op == Op::ReduceScatterGradients ||
      op.op == Op::ReduceScatterMicrobatch)
    return plan.stages[op.stage].bytes.gradients;
  if (op.op == Op::AllGatherParameters)
    return plan.stages[op.stage].bytes.parameters;
  return rank.buffers[rank.operands[op.firstOperand].buffer].bytes;
}

/// Bytes that the copy at position `copy` moves: those of its operands on the
/// device.
Bytes copiedBytes(const RankPlan &rank, uint32_t copy);

/// How many ranks, of all replicas it spans, take part in a collective.
inline uint64_t membersOf(const Plan &plan, const Collective &of) {
  return uint64_t(of.ranks.size()) * (of.overReplicas ? plan.replicas : 1);
}

/// Where in the spec `stage` comes from, "spec.yaml:12"; empty if the plan does
/// not say.
std::string specLine(const Plan &plan, Id stage);

/// Number of operations of all ranks.
uint64_t operationCount(const Plan &plan);

} // namespace sluice

#endif // SLUICE_IR_PLAN_H
