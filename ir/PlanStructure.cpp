#include "ir/PlanStructure.h"
#include "ir/PlanFile.h"
#include "ir/Words.h"

#include <algorithm>
#include <vector>

namespace sluice {

using Part = StructureFault::Part;

//===----------------------------------------------------------------------===//
// One rank
//===----------------------------------------------------------------------===//

namespace {

/// One pass without branches over whole words, which the compiler makes a few
/// vector instructions of: the top bit of `wrong` tells whether some buffer is
/// too high, or some access the fourth that two bits have, which means nothing.
bool areOperandsFine(const RankPlan &list) {
  static_assert(static_cast<uint32_t>(Access::Update) == 2);
  auto buffers =
      static_cast<uint32_t>(std::min<size_t>(list.buffers.size(), kMaxCount));
  uint32_t wrong = 0;
  for (const Operand &use : list.operands) {
    uint32_t word = wordOf(use);
    wrong |= (buffers - 1 - (word & kOperandBuffer)) | (word & word << 1);
  }
  return list.operands.empty() || (buffers != 0 && wrong >> 31 == 0);
}

/// Looks at one rank's list. Whether an operation is sound costs a few
/// compares; every other check returns false at the first fault and leaves its
/// message.
class RankChecker {
public:
  RankChecker(const Plan &whole, Id self)
      : plan(whole), list(whole.ranks[self]), view(list), rank(self),
        stages(whole.stages.size()), channels(whole.channels.size()),
        microbatches(whole.microbatches), streams(list.streams.size()),
        operandsFine(areOperandsFine(list)) {}

  bool checkList();
  bool checkBuffer(const Buffer &buffer);
  template <typename Found> void findUnsound(Found found) const;
  bool checkOp(uint32_t index);
  std::string takeMessage() { return std::move(message); }
  bool findSplitGroups(const FaultSink &sink) const;

private:
  bool fail(std::string sentence) {
    message = std::move(sentence);
    return false;
  }
  /// True only if checkOp() would find nothing, in short; but for what
  /// findUnsound() asks of all operands and of the first operation.
  bool isSound(uint32_t index, size_t waitEnd, size_t operandEnd) const;
  bool checkRange(const char *what, size_t first, size_t next, size_t size);
  bool checkNames(const PlanOp &op);
  bool checkPath(const PlanOp &op, uint32_t firstOperand, size_t operandCount);
  bool checkChannel(const PlanOp &op);
  bool checkCollective(const PlanOp &op);
  bool checkWaits(uint32_t index);
  bool checkOperands(uint32_t index);

  const Plan &plan;
  const RankPlan &list;
  ListView view;
  Id rank;
  size_t stages, channels, microbatches, streams; ///< how many
  bool operandsFine; ///< all of them, so that none needs a look of its own
  std::string message;
};

} // namespace

bool RankChecker::checkList() {
  if (list.streams.empty() || list.streams.size() > kMaxStreams)
    return fail("has " + number(list.streams.size()) +
                " streams, not between 1 and " + number(kMaxStreams));
  if (list.arenaBytes > kMaxBytes)
    return fail("has an arena of " + number(list.arenaBytes) + " bytes, over " +
                number(kMaxBytes));
  if (list.hostArenaBytes > kMaxBytes)
    return fail("has an arena of " + number(list.hostArenaBytes) +
                " bytes of host memory, over " + number(kMaxBytes));
  constexpr size_t kMaxBuffers = size_t(1) << 30; // bits of Operand::buffer
  if (list.buffers.size() > kMaxBuffers)
    return fail("has " + number(list.buffers.size()) + " buffers, over " +
                number(kMaxBuffers));
  for (size_t count :
       {list.ops.size(), list.waits.size(), list.operands.size()})
    if (count >= kNone)
      return fail("has a list of " + number(count) + " entries, over " +
                  number(kNone - 1));
  if (list.ops.empty() && !(list.waits.empty() && list.operands.empty()))
    return fail("has waits or operands, but no operations");
  return true;
}

bool RankChecker::checkBuffer(const Buffer &buffer) {
  if (static_cast<unsigned>(buffer.kind) >= kBufferKindCount)
    return fail("is of an unknown kind " +
                number(static_cast<unsigned>(buffer.kind)));
  if (buffer.offset % kBufferAlignment != 0)
    return fail("is at offset " + number(buffer.offset) +
                ", which is not a multiple of " + number(kBufferAlignment));
  bool onHost = isOnHost(buffer.kind);
  Bytes arena = onHost ? list.hostArenaBytes : list.arenaBytes;
  if (buffer.offset > arena || buffer.bytes > arena - buffer.offset)
    return fail("takes " + number(buffer.bytes) + " bytes at offset " +
                number(buffer.offset) + " of an arena of " + number(arena) +
                (onHost ? " in host memory" : ""));
  if (buffer.stage >= plan.stages.size() &&
      !(buffer.stage == kNone &&
        info(buffer.kind).bufferClass == BufferClass::Scratch))
    return fail(
        buffer.stage == kNone
            ? "belongs to no stage"
            : tooHigh("belongs to stage", buffer.stage, plan.stages.size()));
  if (buffer.kind == BufferKind::Norms && buffer.stage != kNone)
    return fail("belongs to stage " + number(buffer.stage) +
                ", but norms are those of a rank");
  return true;
}

/// What does not run on the stream that computes.
static constexpr bool hasOwnStream(Op op) {
  return isCommunication(op) || isCopy(op);
}

static std::string className(Op op) {
  return isMessage(op) ? "a message" : isCopy(op) ? "a copy" : "a collective";
}

/// Kind, stage, microbatch and stream: what the rest takes for granted.
bool RankChecker::checkNames(const PlanOp &op) {
  if (static_cast<unsigned>(op.op) >= kOpCount)
    return fail("is of an unknown kind " +
                number(static_cast<unsigned>(op.op)));
  if (op.stage >= plan.stages.size())
    return fail(tooHigh("belongs to stage", op.stage, plan.stages.size()));
  if (info(op.op).perMicrobatch && op.microbatch >= plan.microbatches)
    return fail(
        tooHigh("belongs to microbatch", op.microbatch, plan.microbatches));
  if (!info(op.op).perMicrobatch && op.microbatch != kNone)
    return fail("belongs to microbatch " + number(op.microbatch) +
                ", but its kind to none");
  if (op.stream >= list.streams.size())
    return fail(tooHigh("is on stream", op.stream, list.streams.size()));
  if (hasOwnStream(op.op) == (op.stream == kComputeStream))
    return fail(hasOwnStream(op.op)
                    ? "is " + className(op.op) + " on stream 0, which computes"
                    : "is no message, but is on stream " + number(op.stream) +
                          ", which carries messages");
  return true;
}

/// Operands of what communicates.
static constexpr size_t operandsOf(Op op) {
  return op == Op::ReduceScatterMicrobatch ? 2 : 1;
}

/// The channel or collective of what communicates, and its one operand; others
/// have neither.
bool RankChecker::checkPath(const PlanOp &op, uint32_t firstOperand,
                            size_t operandCount) {
  if (!isCommunication(op.op)) {
    if (op.channel != kNone)
      return fail("has channel " + number(op.channel) + ", but is no message");
    if (op.group != kNone && !isCompute(op.op))
      return fail("is in group " + number(op.group) +
                  ", but neither a message nor does it compute");
    return true;
  }
  if (!(isMessage(op.op) ? checkChannel(op) : checkCollective(op)))
    return false;
  if (operandCount != operandsOf(op.op))
    return fail("is " + className(op.op) + " of " + number(operandCount) +
                " buffers, not of " +
                (operandsOf(op.op) == 1 ? "one" : number(operandsOf(op.op))));
  Operand use = list.operands[firstOperand];
  Access access = isSend(op.op)      ? Access::Read
                  : isReceive(op.op) ? Access::Write
                                     : Access::Update;
  if (use.access != static_cast<uint32_t>(access))
    return fail(isSend(op.op) ? "is a send that does not read its buffer"
                : isReceive(op.op)
                    ? "is a receive that does not write its buffer"
                    : "is a collective that does not update its buffer");
  uint64_t element = bytesOf(info(op.op).element);
  Bytes bytes = list.buffers[use.buffer].bytes;
  return bytes % element == 0 ||
         fail("sums " + number(bytes) + " bytes, which is not a multiple of " +
              number(element));
}

bool RankChecker::checkCollective(const PlanOp &op) {
  if (op.channel >= plan.collectives.size())
    return fail(
        op.channel == kNone
            ? "is a collective, but names none of the plan's"
            : tooHigh("has collective", op.channel, plan.collectives.size()));
  const std::vector<Id> &ranks = plan.collectives[op.channel].ranks;
  return std::binary_search(ranks.begin(), ranks.end(), rank) ||
         fail("takes part in collective " + number(op.channel) +
              ", which rank " + number(rank) + " is not in");
}

bool RankChecker::checkChannel(const PlanOp &op) {
  if (op.channel >= plan.channels.size())
    return fail(op.channel == kNone
                    ? "is a message without a channel"
                    : tooHigh("has channel", op.channel, plan.channels.size()));
  const Channel &channel = plan.channels[op.channel];
  bool send = isSend(op.op);
  if ((send ? channel.source : channel.destination) != rank)
    return fail(std::string(send ? "sends on" : "receives from") + " channel " +
                number(op.channel) + ", which leads from rank " +
                number(channel.source) + " to rank " +
                number(channel.destination));
  return true;
}

bool RankChecker::checkRange(const char *what, size_t first, size_t next,
                             size_t size) {
  if (first <= next && next <= size)
    return true;
  return fail(std::string("has the ") + what + " from " + number(first) +
              " to " + number(next) + " of " + number(size));
}

bool RankChecker::checkWaits(uint32_t index) {
  uint32_t first = list.ops[index].firstWait;
  size_t next = view.waitEnd(index);
  if (index == 0 && first != 0)
    return fail("is the first, but its waits start at " + number(first));
  if (!checkRange("waits", first, next, list.waits.size()))
    return false;
  for (size_t i = first; i < next; ++i)
    if (list.waits[i] >= index)
      return fail("waits for operation " + number(list.waits[i]) +
                  ", which does not stand before it");
  return true;
}

bool RankChecker::checkOperands(uint32_t index) {
  uint32_t first = list.ops[index].firstOperand;
  size_t next = view.operandEnd(index);
  if (index == 0 && first != 0)
    return fail("is the first, but its operands start at " + number(first));
  if (!checkRange("operands", first, next, list.operands.size()))
    return false;
  for (size_t i = operandsFine ? next : first; i < next; ++i) {
    Operand use = list.operands[i];
    if (use.buffer >= list.buffers.size())
      return fail(tooHigh("uses buffer", use.buffer, list.buffers.size()));
    if (use.access > static_cast<uint32_t>(Access::Update))
      return fail("uses buffer " + number(use.buffer) + " in an unknown way " +
                  number(use.access));
  }
  return true;
}

inline bool RankChecker::isSound(uint32_t index, size_t waitEnd,
                                 size_t operandEnd) const {
  const PlanOp &op = view.ops[index];
  if (static_cast<unsigned>(op.op) >= kOpCount || op.stage >= stages ||
      op.stream >= streams)
    return false;
  const OpInfo &kind = info(op.op);
  if (kind.perMicrobatch ? op.microbatch >= microbatches
                         : op.microbatch != kNone)
    return false;
  if (op.firstWait > waitEnd || waitEnd > view.waitCount ||
      op.firstOperand > operandEnd || operandEnd > view.operandCount)
    return false;
  for (size_t wait = op.firstWait; wait < waitEnd; ++wait)
    if (view.waits[wait] >= index)
      return false;
  if (kind.opClass == OpClass::Compute)
    return op.stream == kComputeStream && op.channel == kNone;
  if (kind.opClass != OpClass::Send && kind.opClass != OpClass::Receive)
    return false; // few: checkOp() looks
  if (op.stream == kComputeStream || op.channel >= channels ||
      operandEnd - op.firstOperand != 1)
    return false;
  const Channel &channel = plan.channels[op.channel];
  bool send = kind.opClass == OpClass::Send;
  return (send ? channel.source : channel.destination) == rank &&
         view.operands[op.firstOperand].access ==
             static_cast<uint32_t>(send ? Access::Read : Access::Write);
}

/// Calls `found` with each operation that is not sound.
template <typename Found> void RankChecker::findUnsound(Found found) const {
  if (view.opCount == 0)
    return;
  const PlanOp &first = view.ops[0];
  bool fine = operandsFine && (first.firstWait | first.firstOperand) == 0;
  auto last = static_cast<uint32_t>(view.opCount - 1);
  for (uint32_t i = 0; i < last; ++i)
    if (!isSound(i, view.ops[i + 1].firstWait, view.ops[i + 1].firstOperand) ||
        !fine)
      if (!found(i))
        return;
  if (!isSound(last, view.waitCount, view.operandCount) || !fine)
    found(last);
}

bool RankChecker::checkOp(uint32_t index) {
  const PlanOp &op = list.ops[index];
  return checkNames(op) && checkWaits(index) && checkOperands(index) &&
         checkPath(op, op.firstOperand,
                   view.operandEnd(index) - op.firstOperand);
}

bool RankChecker::findSplitGroups(const FaultSink &sink) const {
  std::vector<std::pair<Id, uint32_t>> starts;
  Id before = kNone;
  for (uint32_t i = 0; i < list.ops.size(); ++i) {
    Id group = list.ops[i].group;
    if (group != before && group != kNone)
      starts.emplace_back(group, i);
    before = group;
  }
  std::sort(starts.begin(), starts.end());
  for (size_t i = 1; i < starts.size(); ++i)
    if (starts[i].first == starts[i - 1].first &&
        !sink({Part::Op, starts[i].second,
               "is in group " + number(starts[i].first) +
                   ", which does not stand together: operation " +
                   number(starts[i - 1].second) + " is in it too"}))
      return false;
  return true;
}

void findRankFaults(const Plan &plan, Id rank, const FaultSink &sink) {
  const RankPlan &list = plan.ranks[rank];
  RankChecker checker(plan, rank);
  if (!checker.checkList()) {
    sink({Part::Rank, 0, checker.takeMessage()});
    return;
  }
  for (uint32_t i = 0; i < list.buffers.size(); ++i)
    if (!checker.checkBuffer(list.buffers[i]) &&
        !sink({Part::Buffer, i, checker.takeMessage()}))
      return;
  bool heard = true;
  checker.findUnsound([&](uint32_t i) {
    heard = checker.checkOp(i) || sink({Part::Op, i, checker.takeMessage()});
    return heard;
  });
  if (heard)
    checker.findSplitGroups(sink);
}

//===----------------------------------------------------------------------===//
// The first fault, as one sentence
//===----------------------------------------------------------------------===//

/// "rank 2, operation 17 (0SEND_F3)".
static std::string placeOf(const Plan &plan, Id rank,
                           const StructureFault &fault) {
  std::string inRank = "rank " + number(rank);
  switch (fault.part) {
  case Part::Plan:
    return "the plan";
  case Part::Stage:
    return "stage " + number(fault.index);
  case Part::Edge:
    return "the edge " + number(plan.edges[fault.index].from) + " -> " +
           number(plan.edges[fault.index].to);
  case Part::Channel:
    return "channel " + number(fault.index);
  case Part::Collective:
    return "collective " + number(fault.index);
  case Part::Rank:
    return inRank;
  case Part::Buffer:
    return inRank + ", buffer " + number(fault.index);
  case Part::Op:
    break;
  }
  const PlanOp &op = plan.ranks[rank].ops[fault.index];
  std::string place = inRank + ", operation " + number(fault.index);
  if (static_cast<unsigned>(op.op) < kOpCount)
    place += " (" + opName(op.op, op.stage, op.microbatch) + ")";
  return place;
}

std::string describe(const Plan &plan, Id rank, const StructureFault &fault) {
  return placeOf(plan, rank, fault) + " " + fault.message;
}

static FaultSink firstFault(const Plan &plan, Id rank, Status &status) {
  return [&plan, rank, &status](const StructureFault &fault) {
    status = Status::input(describe(plan, rank, fault));
    return false;
  };
}

Status checkHeader(const Plan &plan) {
  Status status;
  findHeaderFaults(plan, firstFault(plan, 0, status));
  return status;
}

Status checkStructure(const Plan &plan, Id rank) {
  Status status;
  if (rank >= plan.ranks.size())
    return Status::input(tooHigh("asks for rank", rank, plan.ranks.size()));
  findRankFaults(plan, rank, firstFault(plan, rank, status));
  return status;
}

} // namespace sluice
