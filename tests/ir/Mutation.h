//===- tests/ir/Mutation.h - Small changes to plans -----------------------===//
//
// Each changes one thing that a builder of plans could get wrong, at random.
// What comes out keeps a plan's flat form, but not its rules.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_IR_MUTATION_H
#define SLUICE_TESTS_IR_MUTATION_H

#include "ir/Plan.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace sluice::testing {

enum class Change {
  Swap,
  SwapNear,
  SwapBothEnds,
  Move,
  Drop,
  Duplicate,
  Stage,
  Microbatch,
  UsedBuffer,
  ChannelOfMessage,
  CollectiveRanks,
  Stream,
  DropWait,
  MoveWait,
  Group,
  Resize,
  Overlap,
  DropOperand,
  AddOperand,
  RepeatOperand,
  ChangeAccess,
  ChangeOwner,
  ChangeChannel,
  ChangeEdge,
  ChangeTie
};
inline constexpr const char *kChangeNames[] = {"swap",
                                               "swap near",
                                               "swap at both ends",
                                               "move",
                                               "drop",
                                               "duplicate",
                                               "retarget stage",
                                               "retarget microbatch",
                                               "retarget buffer",
                                               "retarget channel",
                                               "change a collective's ranks",
                                               "move stream",
                                               "drop wait",
                                               "move wait",
                                               "regroup",
                                               "resize",
                                               "overlap",
                                               "drop operand",
                                               "add operand",
                                               "repeat operand",
                                               "change access",
                                               "change owner of buffer",
                                               "change channel",
                                               "change edge",
                                               "change tie"};
inline constexpr unsigned kChangeCount = std::size(kChangeNames);

/// The number of `variable` in the environment, for longer runs by hand.
inline unsigned countFromEnvironment(const char *variable, unsigned standard) {
  const char *text = std::getenv(variable);
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10))
              : standard;
}

/// A rank's list with each operation's waits and operands beside it, so that
/// operations can be moved.
struct LooseOp {
  PlanOp op;
  std::vector<size_t> waits; ///< original positions
  std::vector<Operand> operands;
  size_t origin;
};
using LooseList = std::vector<LooseOp>;

inline LooseList loosen(const RankPlan &rank) {
  LooseList list;
  for (uint32_t at = 0; at < rank.ops.size(); ++at) {
    auto waits = rank.waitsOf(at);
    auto operands = rank.operandsOf(at);
    list.push_back({rank.ops[at],
                    {waits.begin(), waits.end()},
                    {operands.begin(), operands.end()},
                    at});
  }
  return list;
}

/// Waits follow the operation that they name; where it now stands later, or
/// is gone, the wait is dropped: a list cannot say it.
inline void tighten(const LooseList &list, RankPlan &rank) {
  rank.ops.clear();
  rank.waits.clear();
  rank.operands.clear();
  std::map<size_t, uint32_t> now;
  for (const LooseOp &each : list) {
    PlanOp op = each.op;
    op.firstWait = static_cast<uint32_t>(rank.waits.size());
    op.firstOperand = static_cast<uint32_t>(rank.operands.size());
    for (size_t wait : each.waits)
      if (auto found = now.find(wait); found != now.end())
        rank.waits.push_back(found->second);
    rank.operands.insert(rank.operands.end(), each.operands.begin(),
                         each.operands.end());
    now.try_emplace(each.origin, static_cast<uint32_t>(rank.ops.size()));
    rank.ops.push_back(op);
  }
}

class Mutator {
public:
  Mutator(Plan &of, std::mt19937 &numbers) : plan(of), random(numbers) {}

  /// False if it changes nothing.
  bool apply(Change change) {
    if (change == Change::SwapBothEnds)
      return swapBothEnds();
    if (change == Change::CollectiveRanks)
      return changeRanks();
    if (change == Change::ChangeChannel)
      return !plan.channels.empty() && changeChannel();
    if (change == Change::ChangeEdge)
      return !plan.edges.empty() && changeEdge();
    if (change == Change::ChangeTie)
      return changeTie();
    rank = &plan.ranks[below(plan.ranks.size())];
    if (rank->ops.empty() || rank->buffers.empty())
      return false;
    list = loosen(*rank);
    at = below(list.size());
    bool changed = changeList(change);
    tighten(list, *rank);
    return changed;
  }

private:
  size_t below(size_t bound) { return random() % bound; }
  /// An index of the list, up to three after `at`.
  size_t near() { return std::min(list.size() - 1, at + 1 + below(3)); }

  bool changeList(Change change) {
    PlanOp &op = list[at].op;
    switch (change) {
    case Change::Swap:
      return swap(below(list.size()));
    case Change::SwapNear:
      return swap(near());
    case Change::SwapBothEnds:
    case Change::CollectiveRanks:
    case Change::ChangeChannel:
    case Change::ChangeEdge:
    case Change::ChangeTie:
      return false; // not of one list
    case Change::Move:
      return move(below(list.size()));
    case Change::Drop:
      list.erase(list.begin() + at);
      return true;
    case Change::Duplicate:
      list.insert(list.begin() + below(list.size()), LooseOp(list[at]));
      return true;
    case Change::Stage:
      return set(op.stage, below(plan.stages.size()));
    case Change::Microbatch:
      return op.microbatch != kNone &&
             set(op.microbatch, below(plan.microbatches));
    case Change::UsedBuffer:
      return retargetBuffer();
    case Change::ChannelOfMessage:
      return isCommunication(op.op) &&
             set(op.channel, below(isMessage(op.op) ? plan.channels.size()
                                                    : plan.collectives.size()));
    case Change::Stream:
      return set(op.stream, below(rank->streams.size()));
    case Change::DropWait:
      return changeWait(/*drops=*/true);
    case Change::MoveWait:
      return changeWait(/*drops=*/false);
    case Change::Group:
      return regroup();
    case Change::Resize:
      return resize();
    case Change::Overlap:
      return overlap();
    case Change::DropOperand:
    case Change::AddOperand:
    case Change::RepeatOperand:
    case Change::ChangeAccess:
      return changeOperands(change);
    case Change::ChangeOwner:
      return changeOwner();
    }
    return false;
  }

  bool changeOperands(Change change) {
    std::vector<Operand> &operands = list[at].operands;
    if (change == Change::AddOperand) {
      operands.insert(operands.begin() + below(operands.size() + 1),
                      operand(static_cast<Id>(below(rank->buffers.size())),
                              static_cast<Access>(below(3))));
      return true;
    }
    if (operands.empty())
      return false;
    size_t which = below(operands.size());
    if (change == Change::ChangeAccess)
      return setAccess(operands[which], below(3));
    if (change == Change::DropOperand)
      operands.erase(operands.begin() + which);
    else
      operands.insert(operands.begin() + below(operands.size() + 1),
                      Operand(operands[which]));
    return true;
  }
  static bool setAccess(Operand &operand, size_t access) {
    bool changes = operand.access != access;
    operand.access = static_cast<uint32_t>(access);
    return changes;
  }

  /// A workspace may be of a stage or of none.
  bool changeOwner() {
    Buffer &buffer = rank->buffers[below(rank->buffers.size())];
    size_t stage = below(plan.stages.size() + 1);
    return set(buffer.stage,
               stage == plan.stages.size() &&
                       info(buffer.kind).bufferClass == BufferClass::Scratch
                   ? kNone
                   : stage % plan.stages.size());
  }

  bool changeChannel() {
    Channel &channel = plan.channels[below(plan.channels.size())];
    switch (below(3)) {
    case 0:
      return set(channel.source, below(plan.ranks.size()));
    case 1:
      return set(channel.destination, below(plan.ranks.size()));
    }
    return set(channel.communicator, below(plan.channels.size()));
  }

  /// Edges stay in order only by chance.
  bool changeEdge() {
    size_t which = below(plan.edges.size());
    StageEdge &edge = plan.edges[which];
    switch (below(4)) {
    case 0:
      plan.edges.erase(plan.edges.begin() + which);
      return true;
    case 1:
      return set(edge.from, below(plan.stages.size()));
    case 2:
      return set(edge.to, below(plan.stages.size()));
    }
    return set(edge.bytes, below(2) ? edge.bytes / 2 : edge.bytes + 256);
  }

  /// A tie ends, changes its size, or begins.
  bool changeTie() {
    Stage &one = plan.stages[below(plan.stages.size())];
    Id self = static_cast<Id>(&one - plan.stages.data());
    if (one.tiedTo == kNone) {
      Id other = static_cast<Id>(below(plan.stages.size()));
      if (other == self || plan.stages[other].tiedTo != kNone)
        return false;
      tie(self, other,
          std::min(one.bytes.gradients, plan.stages[other].bytes.gradients) /
              2);
      return true;
    }
    Id other = one.tiedTo;
    if (below(2) == 0) {
      tie(self, other, one.bytes.tied / 2);
      return true;
    }
    tie(self, other, 0);
    one.tiedTo = plan.stages[other].tiedTo = kNone;
    return true;
  }
  void tie(Id one, Id other, Bytes bytes) {
    for (auto [from, to] : {std::pair(one, other), std::pair(other, one)}) {
      plan.stages[from].tiedTo = to;
      plan.stages[from].bytes.tied = bytes;
    }
  }

  template <typename T> static bool set(T &field, size_t value) {
    return std::exchange(field, static_cast<T>(value)) != value;
  }

  bool swap(size_t other) {
    std::swap(list[at], list[other]);
    return other != at;
  }

  bool move(size_t other) {
    LooseOp moved = list[at];
    list.erase(list.begin() + at);
    list.insert(list.begin() + other, moved);
    return other != at;
  }

  /// Another buffer, mostly of the same kind: others are refused at sight.
  bool retargetBuffer() {
    if (list[at].operands.empty())
      return false;
    Operand &operand = list[at].operands[below(list[at].operands.size())];
    Id old = operand.buffer;
    BufferKind kind = rank->buffers[old].kind;
    for (unsigned tries = 0; tries < 8; ++tries) {
      operand.buffer = static_cast<Id>(below(rank->buffers.size()));
      if (rank->buffers[operand.buffer].kind == kind && operand.buffer != old)
        break;
    }
    return operand.buffer != old;
  }

  bool changeWait(bool drops) {
    std::vector<size_t> &waits = list[at].waits;
    if (waits.empty())
      return false;
    size_t which = below(waits.size());
    if (!drops)
      return set(waits[which], below(at));
    waits.erase(waits.begin() + which);
    return true;
  }

  /// Joins an operation with the next one, or takes it out of its group.
  bool regroup() {
    Id highest = 0;
    for (const LooseOp &each : list)
      if (each.op.group != kNone)
        highest = std::max(highest, each.op.group + 1);
    if (list[at].op.group != kNone && below(2) == 0) {
      list[at].op.group = kNone;
      return true;
    }
    if (at + 1 == list.size())
      return false;
    if (list[at].op.group == kNone)
      list[at].op.group = highest;
    return std::exchange(list[at + 1].op.group, list[at].op.group) !=
           list[at].op.group;
  }

  bool resize() {
    Buffer &buffer = rank->buffers[below(rank->buffers.size())];
    Bytes old = buffer.bytes;
    buffer.bytes = below(2) ? old / 2 : old + 256;
    rank->arenaBytes += 256;
    return buffer.bytes != old;
  }

  bool overlap() {
    Buffer &buffer = rank->buffers[below(rank->buffers.size())];
    Bytes offset = rank->buffers[below(rank->buffers.size())].offset;
    if (offset == buffer.offset || offset + buffer.bytes > rank->arenaBytes)
      return false;
    buffer.offset = offset;
    return true;
  }

  /// Another rank joins a collective, or leaves it with its operations.
  bool changeRanks() {
    if (plan.collectives.empty())
      return false;
    auto which = static_cast<Id>(below(plan.collectives.size()));
    std::vector<Id> &ranks = plan.collectives[which].ranks;
    Id changed = static_cast<Id>(below(plan.ranks.size()));
    auto found = std::lower_bound(ranks.begin(), ranks.end(), changed);
    if (found == ranks.end() || *found != changed) {
      ranks.insert(found, changed);
      return true;
    }
    ranks.erase(found);
    rank = &plan.ranks[changed];
    list = loosen(*rank);
    std::erase_if(list, [&](const LooseOp &each) {
      return isCollective(each.op.op) && each.op.channel == which;
    });
    tighten(list, *rank);
    return true;
  }

  /// Two messages of a channel that follow each other change places on both of
  /// its ranks: they still meet.
  bool swapBothEnds() {
    if (plan.channels.empty())
      return false;
    Id channel = static_cast<Id>(below(plan.channels.size()));
    size_t nth = below(2 * plan.microbatches);
    const Channel &path = plan.channels[channel];
    if (path.source == path.destination)
      return false;
    bool sent = swapOn(path.source, channel, nth);
    bool received = swapOn(path.destination, channel, nth);
    return sent || received;
  }
  bool swapOn(Id which, Id channel, size_t nth) {
    rank = &plan.ranks[which];
    list = loosen(*rank);
    std::vector<size_t> places;
    for (size_t i = 0; i < list.size(); ++i)
      if (isMessage(list[i].op.op) && list[i].op.channel == channel)
        places.push_back(i);
    if (nth + 1 >= places.size())
      return false;
    std::swap(list[places[nth]], list[places[nth + 1]]);
    tighten(list, *rank);
    return true;
  }

  Plan &plan;
  std::mt19937 &random;
  RankPlan *rank = nullptr;
  LooseList list;
  size_t at = 0;
};

/// Applies `change` to `plan`, and mostly nothing else, but at times one or two
/// more of any kind; false if it changes nothing.
inline bool mutate(Plan &plan, Change change, std::mt19937 &random) {
  Mutator mutator(plan, random);
  if (!mutator.apply(change))
    return false;
  for (unsigned more = random() % 8; more > 5; --more)
    mutator.apply(static_cast<Change>(random() % kChangeCount));
  return true;
}

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_MUTATION_H
