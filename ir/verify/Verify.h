//===- ir/verify/Verify.h - Proves a schedule or a plan right -------------===//
//
// Shares no code with what builds schedules and plans, and links without LLVM.
// What "right" means: ir/README.md. Linear in operations, waits and operands,
// for values and bytes times the streams of a rank, plus sorting the distinct
// buffers, the channels, and what stands in groups or meets in collectives. A
// plan that deadlocks costs more: the linear part times the
// logarithm of the longest channel (the least buffering), plus a bounded effort
// for the shortest cycle and for trying what would mend it.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_VERIFY_VERIFY_H
#define SLUICE_IR_VERIFY_VERIFY_H

#include "ir/Graph.h"
#include "ir/Plan.h"
#include "ir/Schedule.h"

#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::verify {

enum class FindingKind : uint8_t {
  Deadlock,  ///< the constraint graph has a cycle
  Mismatch,  ///< n-th send and n-th receive of a channel differ, or the n-th
             ///< operations of a collective
  Missing,   ///< a stage-microbatch lacks an operation
  Duplicate, ///< ... has one twice, or B beside I and W
  Order,     ///< a dependence of the model is not implied
  Memory,    ///< the arena is over the limit
  Lifetime,  ///< bytes reused or read before written without happens-before
  Malformed, ///< not a plan at all
};
/// Their names, in order.
inline constexpr std::string_view kFindingKinds[] = {
    "deadlock", "mismatch", "missing",  "duplicate",
    "order",    "memory",   "lifetime", "malformed"};
static_assert(static_cast<size_t>(FindingKind::Malformed) + 1 ==
              std::size(kFindingKinds));
constexpr std::string_view findingKindName(FindingKind kind) {
  return kFindingKinds[static_cast<size_t>(kind)];
}

/// How much independent progress is assumed, strictest first.
enum class Progress : uint8_t {
  Rank,   ///< one queue for all communication of a rank
  Pair,   ///< one queue per peer, and one per communicator for collectives
  Edge,   ///< the same, but one queue per peer and direction
  Stream, ///< nothing but the plan's own streams
};
inline constexpr Progress kProgressModels[] = {
    Progress::Rank, Progress::Pair, Progress::Edge, Progress::Stream};
/// Their names, in order.
inline constexpr std::string_view kProgressNames[] = {"rank", "pair", "edge",
                                                      "stream"};
static_assert(std::size(kProgressModels) == std::size(kProgressNames));
constexpr std::string_view progressName(Progress progress) {
  return kProgressNames[static_cast<size_t>(progress)];
}
std::optional<Progress> progressFromName(std::string_view name);

struct Options {
  Progress progress = Progress::Rank;
  /// 0: rendezvous. N: the n-th send of a channel may end once receive n-N
  /// has ended.
  uint32_t buffered = 0;
  /// False for a plan whose operations name no buffers, as of a CSV: what they
  /// use then follows from their names and their order, and the proofs of
  /// lifetimes and memory are left out.
  bool buffers = true;
  /// True for a plan that a reader has handed over, who refuses numbers out of
  /// range (ir/PlanStructure.h): they are not looked at again.
  bool structureChecked = false;
  /// False: neither the least buffering nor changes of order that would mend a
  /// deadlock are looked for, nor short cycles.
  bool remedies = true;
};

/// An operation of a plan: position in the list of its rank.
struct OpPlace {
  Id rank;
  uint32_t index;
};

/// One line of a deadlock's story: how an operation waits for another, "rank 0
/// at 0SEND_F3 (spec.yaml:12) waits for rank 1 to reach 1RECV_F3". What waits
/// for one another by nothing but their order is told as one step.
struct Step {
  std::string text;
  OpPlace from, to; ///< two of the cycle; next to each other but in such a run
};

/// Where a message or a collective is moved, and with it what of its channel
/// stands between.
enum class Move : uint8_t {
  Before,  ///< right before another operation, or before its group
  Grouped, ///< into the group of another, or both into one
  Behind,  ///< right behind another, out of its group
};

/// A change of the list of a rank that helps against a deadlock. It was tried:
/// the plan was proved again with it and those of all other deadlocks, and
/// where others showed up then, with theirs, a few times over.
struct Fix {
  OpPlace moved; ///< a message or a collective
  OpPlace other; ///< of the same rank
  Move move = Move::Before;
  bool orGrouped = false; ///< Move::Grouped would do as well
  bool isLast = true;     ///< nothing else comes up once all are made
};

struct Finding {
  FindingKind kind;
  std::string message; ///< lower-case sentence with the numbers
  std::optional<OpPlace> place;
  std::vector<OpPlace> cycle; ///< of a deadlock: each waits for the next
  /// Of a mismatch, what the operation meets on another rank.
  std::optional<OpPlace> meets = std::nullopt;
  std::vector<Step> story = {};          ///< of the cycle
  std::optional<Fix> fix = std::nullopt; ///< of a deadlock, where one is known
  /// Of one that stands for others of its kind: how many these are.
  uint64_t untold = 0;
};

/// What a verification found.
struct Result {
  std::vector<Finding> errors;
  std::vector<Finding> warnings;
  /// Per progress model: no cycle (and no mismatch).
  std::array<bool, std::size(kProgressModels)> holds{};
  /// Least N of `buffered:N` under which the plan holds under the chosen
  /// progress model: 0 if it holds as it is, none if no N helps or none was
  /// looked for.
  std::optional<uint32_t> minBuffering;
  /// What to do about deadlocks that no changes of order are known to mend, in
  /// a sentence; empty without any, or where each has its fix.
  std::string advice;

  bool ok() const { return errors.empty(); }
  bool holdsUnder(Progress progress) const {
    return holds[static_cast<size_t>(progress)];
  }
};

/// Proves `plan`: structure, completeness, matching, freedom from deadlock,
/// order (every value read is the one the model means), lifetimes, memory.
/// Numbers out of range are `malformed`; nothing is taken for granted but what
/// `options` say.
Result verifyPlan(const Plan &plan, const Options &options = {});

/// Proves that `schedule` orders every node of `graph` exactly once and that
/// the orders of all ranks together with the dependences have no cycle.
Result verifySchedule(const Graph &graph, const Schedule &schedule);

/// `finding` of `plan` for people: the message, and of a deadlock the story,
/// one line a step.
std::string describe(const Plan &plan, const Finding &finding);

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_VERIFY_H
