//===- ir/verify/Machine.h - Runs the constraints of a plan ---------------===//
//
// What waits for what (ir/README.md, "What deadlock-free means") makes a system
// in which doing one thing never forbids another, so any order of doing what
// can be done ends in the same state: all done, or the operations that can
// never be.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_VERIFY_MACHINE_H
#define SLUICE_IR_VERIFY_MACHINE_H

#include "ir/verify/Cycle.h"
#include "ir/verify/Internal.h"

namespace sluice::verify {

/// Runs a plan under one progress model, with rendezvous or with buffers.
class Machine {
public:
  /// O(operations + waits + streams).
  Machine(const PlanIndex &of, Progress progress);

  /// True if everything ends. `buffered` as Options::buffered; a send may
  /// always also end as in a rendezvous. O(operations + waits).
  bool run(uint32_t buffered);

  /// After a run that failed: cycles of operations, each waiting for the next.
  /// Of what waits for itself, each strongly connected part has one, a
  /// shortest as far as the `effort` lasts (Cycle.h); shortest first.
  std::vector<std::vector<OpPlace>> witnesses(uint64_t &effort) const;

private:
  enum class Phase : uint8_t { Waits, Started, Ended };

  void addOrder(Progress progress);
  void addWaits();
  Id queueOf(const PlanOp &op, Progress progress) const;
  void numberMessages();
  void start(Id unit);
  void startMessage(Id op, Id unit);
  void attend(Id op, Id unit);
  void end(Id unit);
  void satisfy(Id op);
  void freeBuffer(Id receive);
  bool hasRoom(Id send) const;
  /// Whether message `op` still needs its mate to start before it can end, or,
  /// of a send with buffers, one to be free.
  bool needsMate(Id op) const;
  /// What message `op`, which needs its mate, waits for: the mate's start, or
  /// the end of the receive that frees the buffer of a send.
  Id awaitedBy(Id op) const;
  /// Among the units `stuck`: start (2n) and end (2n + 1) of the n-th, each
  /// pointing to what it waits for. What attends a meeting points to the
  /// meeting's node, behind all these, and that to those who have not come.
  Digraph waitsFor(const std::vector<Id> &stuck) const;
  void addMeetings(const std::vector<Id> &numberOf, Id firstNode,
                   std::vector<std::pair<Id, Id>> &pairs) const;
  Id mateIn(Id op, Id unit) const;
  std::pair<Id, Id> matesBetween(Id unit, Id peer) const;
  std::pair<Id, Id> waitBetween(Id unit, Id other) const;
  std::vector<Id> stuckUnits() const;
  std::vector<OpPlace> waitInside(Id unit) const;
  std::vector<OpPlace> placesOf(const std::vector<Id> &stuck,
                                const std::vector<Id> &cycle) const;

  const PlanIndex &index;
  std::vector<std::pair<Id, Id>> before; ///< (unit, unit that starts after it)
  Digraph after;                         ///< the same as a graph
  std::vector<Id> predecessors;          ///< per unit, how many in `before`
  std::vector<Id> slotOf;                ///< per message, in its channel's list
  std::vector<Id> channelOf;             ///< per message
  std::vector<char> sends;               ///< per operation

  uint32_t buffers = 0;
  std::vector<Id> need;        ///< ends that a unit's start waits for
  std::vector<Id> pending;     ///< members of a started unit not satisfied
  std::vector<Phase> phase;    ///< per unit
  std::vector<char> satisfied; ///< per message and collective
  std::vector<Id> toCome;      ///< per meeting, operations not started
  std::vector<Id> startable, endable;
};

/// Whether every rank could even run its list one operation (or group) after
/// another, all streams together. That adds constraints to those of every
/// progress model, so a plan that can holds under all of them; a compiler that
/// orders everything by one global order makes such plans. O(operations).
bool runsInListOrder(const PlanIndex &index);

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_MACHINE_H
