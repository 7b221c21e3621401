//===- runtime/Standing.cpp ----------------------------------------------===//
#include "runtime/Standing.h"

#include "ir/Diagnostics.h"
#include "runtime/Replicas.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

namespace sluice::runtime {

std::string specPlace(const Plan &plan, Id stage) {
  std::string place = specLine(plan, stage);
  if (place.empty())
    place = plan.source.empty() ? "spec" : escaped(plan.source);
  return place;
}

std::string describeOp(const Plan &plan, Id rank, uint32_t op) {
  const PlanOp &planOp = plan.ranks[rank].ops[op];
  return nameOf(planOp) + " (" + specPlace(plan, planOp.stage) + ")";
}

/// Whether `op` is in the group of the operation before it.
static bool joinsGroup(const RankPlan &rank, uint32_t op) {
  return op > 0 && rank.ops[op].group != kNone &&
         rank.ops[op - 1].group == rank.ops[op].group;
}

/// The first operation of the group of `op`, whose stream runs the group.
static uint32_t groupBegin(const RankPlan &rank, uint32_t op) {
  while (joinsGroup(rank, op))
    --op;
  return op;
}

/// The list of a rank, with what has ended of it.
namespace {
class Ended {
public:
  Ended(const RankPlan &rank, std::span<const uint32_t> done)
      : ended(rank.ops.size()), next(rank.streams.size(), kNone) {
    std::vector<uint32_t> left(done.begin(), done.end());
    left.resize(next.size());
    uint8_t stream = kComputeStream;
    for (uint32_t i = 0; i < rank.ops.size(); ++i) {
      if (!joinsGroup(rank, i))
        stream = rank.ops[i].stream;
      if (left[stream] != 0) {
        --left[stream];
        ended[i] = true;
      } else if (next[stream] == kNone) {
        next[stream] = i;
      }
    }
  }
  bool operator[](uint32_t op) const { return ended[op]; }
  /// The operation that `stream` stands at, or kNone.
  uint32_t at(size_t stream) const { return next[stream]; }
  /// The first stream that is not through, in order; kNone if all are.
  uint32_t first() const {
    for (const uint32_t op : next)
      if (op != kNone)
        return op;
    return kNone;
  }

private:
  std::vector<bool> ended;
  std::vector<uint32_t> next;
};
} // namespace

/// The last operation of `stream` before `op`, or kNone.
static uint32_t before(const RankPlan &rank, uint8_t stream, uint32_t op) {
  while (op-- > 0)
    if (rank.ops[op].stream == stream)
      return op;
  return kNone;
}

/// A local operation that `op`, or its group, waits for and that has not ended,
/// or kNone.
static uint32_t unmetWait(const RankPlan &rank, const Ended &ended,
                          uint32_t op) {
  const uint32_t first = groupBegin(rank, op);
  for (uint32_t i = first;
       i == first || (i < rank.ops.size() && joinsGroup(rank, i)); ++i) {
    for (const uint32_t wait : rank.waitsOf(i))
      if (!ended[wait])
        return wait;
    // A group waits on all of its members' streams.
    if (i != first && rank.ops[i].stream == rank.ops[i - 1].stream)
      continue;
    const uint32_t last = before(rank, rank.ops[i].stream, first);
    if (last != kNone && !ended[last])
      return last;
  }
  return kNone;
}

/// Position in its rank's list of the `ordinal`-th message of that direction
/// on `channel`, or kNone.
static uint32_t findMessage(const RankPlan &rank, Id channel, bool send,
                            uint32_t ordinal) {
  for (uint32_t i = 0; i < rank.ops.size(); ++i) {
    const PlanOp &op = rank.ops[i];
    if (op.channel == channel && isMessage(op.op) && isSend(op.op) == send &&
        ordinal-- == 0)
      return i;
  }
  return kNone;
}

static std::string describePeer(const Plan &plan, Id rank, uint32_t op) {
  const std::vector<PlanOp> &ops = plan.ranks[rank].ops;
  const Id channel = ops[op].channel;
  const bool send = isSend(ops[op].op);
  const Id peer =
      send ? plan.channels[channel].destination : plan.channels[channel].source;
  const auto ordinal = static_cast<uint32_t>(
      std::count_if(ops.begin(), ops.begin() + op, [&](const PlanOp &other) {
        return other.channel == channel && isMessage(other.op) &&
               isSend(other.op) == send;
      }));
  std::string who = "rank " + std::to_string(peer);
  if (plan.ranks[peer].ops.empty()) // not known in this process
    return who + " to match it";
  const uint32_t mate = findMessage(plan.ranks[peer], channel, !send, ordinal);
  if (mate == kNone)
    return who + ", which has nothing to match";
  return who + " to reach " + nameOf(plan.ranks[peer].ops[mate]);
}

/// "ranks 1, 2 and 4 to reach 0ALL_REDUCE_G"; of a collective that joins the
/// same rank of all replicas "replicas 0 and 2 to reach it".
static std::string describeOthers(const Plan &plan, GlobalRank self,
                                  uint32_t op) {
  constexpr uint64_t kNamed = 8;
  const PlanOp &own = plan.ranks[self.rank].ops[op];
  const Collective &of = plan.collectives[own.channel];
  const bool sameRank = of.overReplicas && of.ranks.size() == 1;
  const uint64_t count = membersOf(plan, of) - 1;
  if (count > kNamed || (of.overReplicas && !sameRank))
    return "the other " + std::to_string(count) +
           " ranks of its collective to reach " + nameOf(own);
  std::vector<Id> others = of.ranks;
  if (sameRank) {
    others.resize(plan.replicas);
    std::iota(others.begin(), others.end(), Id(0));
  }
  std::erase(others, sameRank ? self.replica : self.rank);
  std::string who = sameRank ? "replica" : "rank";
  who += others.size() == 1 ? " " : "s ";
  for (size_t i = 0; i < others.size(); ++i)
    who += (i == 0                   ? ""
            : i + 1 == others.size() ? " and "
                                     : ", ") +
           std::to_string(others[i]);
  return who + " to reach " + nameOf(own);
}

/// Follows the waits from the computing stream to what holds everything up.
static Standing standingInList(const Plan &plan, GlobalRank self,
                               const Snapshot &snapshot) {
  const Id rank = self.rank;
  const RankPlan &list = plan.ranks[rank];
  const Ended ended(list, snapshot.done);
  uint32_t op = ended.at(kComputeStream);
  if (op == kNone)
    op = ended.first();
  if (op == kNone)
    return {kNone, false, "the end of the step"};
  for (size_t hops = 0; hops <= list.streams.size(); ++hops) {
    const uint32_t wait = unmetWait(list, ended, op);
    if (wait == kNone)
      break;
    const uint32_t holder = ended.at(list.ops[groupBegin(list, wait)].stream);
    if (holder == op)
      return {op, false, "its own " + nameOf(list.ops[wait])};
    op = holder;
  }
  if (unmetWait(list, ended, op) != kNone)
    return {op, false,
            "its own " + nameOf(list.ops[unmetWait(list, ended, op)])};
  if (isMessage(list.ops[op].op))
    return {op, false, describePeer(plan, rank, op)};
  if (isCollective(list.ops[op].op))
    return {op, false, describeOthers(plan, self, op)};
  if (isCopy(list.ops[op].op))
    return {op, true, "its copy to end"};
  return {op, true, "the module to return"};
}

Standing standingOf(const Plan &plan, Id number, const Snapshot &snapshot) {
  switch (snapshot.phase) {
  case Phase::Loading:
    return {kNone, true, "the module and the libraries it uses to load"};
  case Phase::Unloaded:
    return {kNone, false, "nothing, it could not load"};
  case Phase::Ready:
    return {kNone, false, "the other ranks to load"};
  case Phase::Running:
    return standingInList(plan, globalRank(plan, number), snapshot);
  case Phase::Saving:
    return {kNone, true, "its part of the checkpoint to be written"};
  case Phase::Reporting:
    return {kNone, true, "the report of the step"};
  case Phase::Failed:
    return {snapshot.failedOp, false, "nothing, it failed"};
  case Phase::Finished:
    return {kNone, false, "nothing"};
  }
  return {}; // not reached: the switch is complete
}

static std::string phaseText(Phase phase) {
  switch (phase) {
  case Phase::Loading:
  case Phase::Unloaded:
    return "load";
  case Phase::Ready:
    return "loaded";
  case Phase::Running:
  case Phase::Saving:
  case Phase::Reporting:
  case Phase::Failed:
    return "step end";
  case Phase::Finished:
    return "finished";
  }
  return {}; // not reached: the switch is complete
}

static std::string secondsText(double seconds) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

StandingRow standingRow(const Plan &plan, Id number, const Snapshot &snapshot) {
  const Standing standing = standingOf(plan, number, snapshot);
  StandingRow row = {.step = snapshot.step,
                     .standsAt = phaseText(snapshot.phase),
                     .line = "",
                     .waitsFor = standing.waitsFor,
                     .idleSeconds = snapshot.idleSeconds,
                     .inModule = standing.inModule};
  if (standing.op != kNone) {
    const PlanOp &op =
        plan.ranks[globalRank(plan, number).rank].ops[standing.op];
    row.standsAt = nameOf(op);
    row.line = specPlace(plan, op.stage);
  }
  return row;
}

std::string placeOf(const StandingRow &row) {
  const std::string step = "step " + std::to_string(row.step);
  return row.atOp() ? " at " + row.standsAt + " (" + row.line + ") of " + step
                    : " in " + step;
}

using Cells = std::array<std::string, 7>;

static Cells cellsOf(const Plan &plan, Id number, const StandingRow &row) {
  const GlobalRank self = globalRank(plan, number);
  return {std::to_string(self.replica),
          std::to_string(self.rank),
          std::to_string(row.step),
          row.standsAt,
          row.atOp() ? row.line : "-",
          secondsText(row.idleSeconds),
          row.waitsFor};
}

std::string standingTable(const Plan &plan, std::span<const StandingRow> rows) {
  std::vector<Cells> lines = {
      {"replica", "rank", "step", "stands at", "line", "since", "waits for"}};
  for (Id rank = 0; rank < rows.size(); ++rank)
    lines.push_back(cellsOf(plan, rank, rows[rank]));
  std::array<size_t, std::tuple_size_v<Cells>> widths = {};
  for (const Cells &line : lines)
    for (size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], line[i].size());
  std::string out;
  for (const Cells &line : lines) {
    for (size_t i = plan.replicas > 1 ? 0 : 1; i + 1 < line.size(); ++i) {
      out += line[i];
      out.append(widths[i] - line[i].size() + 2, ' ');
    }
    out += line.back() + "\n";
  }
  return out;
}

} // namespace sluice::runtime
