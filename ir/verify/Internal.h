//===- ir/verify/Internal.h - What the proofs of a plan share -------------===//
//
// Operations are numbered through all ranks, list after list. A unit is what
// starts and ends as one: a group, or an operation outside of groups.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_VERIFY_INTERNAL_H
#define SLUICE_IR_VERIFY_INTERNAL_H

#include "ir/Plan.h"
#include "ir/PlanStructure.h"
#include "ir/verify/Verify.h"

#include <array>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice::verify {

/// Collects findings. Of each kind only the first kMaxOfKind are told in full,
/// errors and warnings each, so that a broken plan of a million operations does
/// not make a million texts.
class Report {
public:
  explicit Report(Result &to) : result(to) {}

  /// Counts a finding of `kind`; true if it is still to be told.
  bool admits(FindingKind kind) {
    return ++counts[static_cast<unsigned>(kind)] <= kMaxOfKind;
  }
  /// The same of warnings.
  bool admitsWarning(FindingKind kind) {
    return ++warningCounts[static_cast<unsigned>(kind)] <= kMaxOfKind;
  }
  void error(FindingKind kind, std::optional<OpPlace> place,
             std::string message, std::vector<OpPlace> cycle = {},
             std::optional<OpPlace> meets = std::nullopt,
             std::vector<Step> story = {});
  void warning(FindingKind kind, std::optional<OpPlace> place,
               std::string message);
  bool has(FindingKind kind) const { return count(kind) != 0; }
  /// How many findings of `kind` were counted, told or not.
  uint64_t count(FindingKind kind) const {
    return counts[static_cast<unsigned>(kind)];
  }
  /// Of all kinds.
  uint64_t count() const {
    return std::accumulate(counts.begin(), counts.end(), uint64_t(0));
  }
  /// Adds how many findings of each kind were not told.
  void finish();

  static constexpr uint64_t kMaxOfKind = 100;

private:
  using Counts = std::array<uint64_t, std::size(kFindingKinds)>;
  static void finish(const Counts &counts, std::vector<Finding> &findings);

  Result &result;
  Counts counts{}, warningCounts{};
};

/// Lists of edge numbers, one list per stage.
struct EdgeLists {
  std::vector<Id> first; ///< stages + 1
  std::vector<Id> edges;
  std::span<const Id> of(Id stage) const {
    return std::span(edges).subspan(first[stage],
                                    first[stage + 1] - first[stage]);
  }
};

/// The edges of each stage.
struct StageEdges {
  EdgeLists incoming, outgoing;      ///< what F reads and writes
  EdgeLists gradientIn, gradientOut; ///< what B reads and writes
};
/// Whether gradients flow back over it.
inline bool isTrained(std::span<const Stage> stages, const StageEdge &edge) {
  return stages[edge.from].backward && stages[edge.to].backward;
}
StageEdges edgesOf(std::span<const Stage> stages,
                   std::span<const StageEdge> edges);

/// What a message meets; all kNone of other operations.
struct Match {
  Id mate = kNone; ///< the operation at the other end of its channel
  Id rank = kNone; ///< the mate's
  Id edge = kNone; ///< whose data it carries; kNone if it matches none
};

/// How many messages a channel has at each end.
struct Ends {
  Id sends = 0;
  Id receives = 0;
};

/// A message of a channel, at one end of it: all that the other end must agree
/// with, together, since the two are compared far from their lists.
struct End {
  Id op = kNone;
  Id stage = kNone;
  Id microbatch = kNone;
  Op kind{};
  Bytes bytes = 0;
};

/// A plan whose indexes are known to be in range, with its numbering.
struct PlanIndex : StageEdges {
  const Plan &plan;
  std::vector<Id> firstOp;   ///< per rank, and one past the last
  std::vector<Id> firstUnit; ///< as firstOp, of units
  bool hasGroups = false;
  bool hasCollectives = false;
  bool hasStep = false;
  bool hasNorms = false;       ///< some operation computes or sums norms
  std::vector<Id> unitOf;      ///< per operation; empty without groups
  std::vector<Id> firstInUnit; ///< per unit and one past; empty without groups

  std::vector<Match> matches; ///< per operation
  std::vector<Ends> ends;     ///< per channel
  /// The sends and receives of channel c in order are those from
  /// firstOfChannel[c] to the next channel's, which leaves room for the more
  /// of the two.
  std::vector<Id> firstOfChannel;
  std::vector<End> sends, receives;

  /// A meeting is the n-th operation of each rank of a collective. Per
  /// operation its meeting, kNone without one; empty without collectives.
  std::vector<Id> meeting;
  /// The operations of meeting m, in order of ranks, are those from
  /// firstOfMeeting[m] to the next meeting's.
  std::vector<Id> firstOfMeeting{0}, attendants;

  /// What an operation needs that stands behind it in its rank's list, which no
  /// event of the list says: (who needs it, what is needed), in order. Only of
  /// plans that name no buffers.
  std::vector<std::pair<Id, Id>> needs;
  /// Whether a computation needs one behind it: they are on one stream, so this
  /// alone is a deadlock, which no finding but that of the order tells.
  bool isTurned = false;

  explicit PlanIndex(const Plan &of) : plan(of) {}

  Id operations() const { return firstOp.back(); }
  Id units() const { return firstUnit.back(); }
  /// The operation at the other end of a message; kNone for the others.
  Id mate(Id op) const { return matches[op].mate; }
  Id unit(Id op) const { return hasGroups ? unitOf[op] : op; }
  Id meetings() const { return static_cast<Id>(firstOfMeeting.size() - 1); }
  /// The meeting of an operation; kNone for what has none.
  Id meetingOf(Id op) const { return hasCollectives ? meeting[op] : kNone; }
  std::span<const Id> attendantsOf(Id which) const {
    return std::span(attendants)
        .subspan(firstOfMeeting[which],
                 firstOfMeeting[which + 1] - firstOfMeeting[which]);
  }
  /// Operations [first, second) of a unit.
  std::pair<Id, Id> members(Id unit) const {
    return hasGroups ? std::pair(firstInUnit[unit], firstInUnit[unit + 1])
                     : std::pair(unit, unit + 1);
  }
  Id rankOf(Id op) const; ///< O(log ranks)
  OpPlace place(Id op) const {
    Id rank = rankOf(op);
    return {rank, op - firstOp[rank]};
  }
};

inline const PlanOp &opAt(const Plan &plan, OpPlace at) {
  return plan.ranks[at.rank].ops[at.index];
}
inline std::string nameOf(const Plan &plan, OpPlace at) {
  return nameOf(opAt(plan, at));
}

/// What is proved of an indexed plan before freedom from deadlock, each
/// operation being there once and messages and collectives matching; false if
/// that cannot be asked. Linear, but for what the parts below say.
bool checkOperations(PlanIndex &index, const Options &options, Report &report);

/// What is proved of the buffers, after it.
void checkBuffers(const PlanIndex &index, Report &report);

/// Checks every index, unless `structureChecked`, and fills `index` but for the
/// messages. False, with `malformed` findings, if the plan cannot be walked.
/// Linear, plus sorting the channels and the groups of each rank.
bool indexPlan(PlanIndex &index, bool structureChecked, Report &report);

/// Every stage and microbatch is computed exactly once, on one rank; what is
/// moved to host memory comes back. Every trained stage is stepped after, on
/// each rank that holds it, once the gradients of all of them are summed: two
/// exchange them, more reduce them, and replicas always do. Linear.
void checkCompleteness(const PlanIndex &index, Report &report);

/// Where steps clip gradients, they have the norms of all stages, each once.
/// Linear.
void checkNorms(const PlanIndex &index, Report &report);

/// Of plans that name no buffers, each message stands once: false, with
/// `duplicate` findings, where one does not. Linear.
bool checkMessagesOnce(const PlanIndex &index, Report &report);

/// Pairs n-th send and n-th receive of every channel and compares what they
/// carry; false on any `mismatch`. Linear.
bool matchMessages(PlanIndex &index, Report &report);

/// Joins the n-th operations of the ranks of every collective to meetings and
/// compares what they do; false on any `mismatch`. O(operations), times the
/// logarithm of the ranks of a collective.
bool matchCollectives(PlanIndex &index, Report &report);

/// Warns where two groups that meet take two communicators in different order.
/// O(operations), and for what stands in groups the logarithm of their size; a
/// collective in a group counts once for each of its later ranks.
void compareGroupOrders(const PlanIndex &index, Report &report);

/// Freedom from deadlock; fills holds and minBuffering. Needs a plan that
/// matches. Linear, times the logarithm of the longest channel when it fails.
void checkProgress(const PlanIndex &index, const Options &options,
                   Report &report, Result &result);

/// Every value read is the one that the model means, and bytes are reused only
/// after all their uses. Linear in operations and operands times streams of a
/// rank, plus sorting the distinct buffers.
void checkFlow(const PlanIndex &index, Report &report);

/// The same by names alone, for plans that name no buffers: what an operation
/// needs stands before it in its rank's list, or is received there; fills
/// `needs` and `isTurned`. Of a plan without messages only what a rank makes
/// itself is asked for; of what is missing or stands twice, nothing. Where
/// messages are not `compared`, also that each has its other end. Linear in
/// operations and edges of their stages.
void checkDependences(PlanIndex &index, bool compared, Report &report);

/// The arena and the allowance fit in the limit.
void checkMemory(const PlanIndex &index, Report &report);

/// How an operation of a cycle waits for the next one.
enum class Link : uint8_t {
  Mate,  ///< for the start of what it meets
  Room,  ///< for the end of the receive that frees its buffer
  Group, ///< for another member of its group
  Event, ///< for the end of what its list names
  Need,  ///< for the end of what it needs, which stands behind it
  After, ///< for its turn
};
Link linkBetween(const Plan &plan, OpPlace from, OpPlace to);

/// Whether both are messages of one channel and direction, or collectives of
/// one communicator: their order is the one in which they meet.
bool keepOrder(const PlanOp &one, const PlanOp &other);

/// How `cycle` of `plan` is told in one sentence.
std::string deadlockMessage(const Plan &plan, const Options &options,
                            std::span<const OpPlace> cycle);

/// How the places of `cycle` wait for each other, with `buffered` messages in
/// buffers.
std::vector<Step> storyOf(const Plan &plan, uint32_t buffered,
                          std::span<const OpPlace> cycle);

/// The cycles of what deadlocks in a plan that matches, under one progress
/// model and as many buffers as `options` say; `effort` as in Cycle.h.
std::vector<std::vector<OpPlace>>
deadlocksOf(const PlanIndex &index, const Options &options, uint64_t &effort);

/// Tries what would mend the deadlocks of `result`, whose plan has as many
/// `otherFaults`, and names it in their messages; if nothing was found, the
/// least buffering in its advice. `all`: no deadlock was left untold.
/// Proves changed plans again, as often as a fixed effort allows, once at
/// least.
void nameFixes(const Plan &plan, const Options &options, bool all,
               uint64_t otherFaults, Result &result);

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_INTERNAL_H
