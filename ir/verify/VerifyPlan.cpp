#include "ir/verify/Internal.h"

#include <algorithm>

namespace sluice::verify {

std::string_view findingKindName(FindingKind kind) {
  switch (kind) {
  case FindingKind::Deadlock:
    return "deadlock";
  case FindingKind::Mismatch:
    return "mismatch";
  case FindingKind::Missing:
    return "missing";
  case FindingKind::Duplicate:
    return "duplicate";
  case FindingKind::Order:
    return "order";
  case FindingKind::Memory:
    return "memory";
  case FindingKind::Lifetime:
    return "lifetime";
  case FindingKind::Malformed:
    return "malformed";
  }
  return "";
}

std::string_view progressName(Progress progress) {
  switch (progress) {
  case Progress::Rank:
    return "rank";
  case Progress::Pair:
    return "pair";
  case Progress::Edge:
    return "edge";
  case Progress::Stream:
    return "stream";
  }
  return "";
}

std::optional<Progress> progressFromName(std::string_view name) {
  for (Progress progress : kProgressModels)
    if (progressName(progress) == name)
      return progress;
  return std::nullopt;
}

void Report::error(FindingKind kind, std::optional<OpPlace> place,
                   std::string message, std::vector<OpPlace> cycle,
                   std::optional<OpPlace> meets,
                   std::vector<std::string> story) {
  result.errors.push_back({kind, std::move(message), place, std::move(cycle),
                           meets, std::move(story)});
}

void Report::warning(FindingKind kind, std::optional<OpPlace> place,
                     std::string message) {
  result.warnings.push_back({kind, std::move(message), place, {}});
}

void Report::finish() {
  for (unsigned kind = 0; kind < counts.size(); ++kind)
    if (counts[kind] > kMaxOfKind) {
      auto which = static_cast<FindingKind>(kind);
      error(which, {},
            "and " + std::to_string(counts[kind] - kMaxOfKind) +
                " more of kind " + std::string(findingKindName(which)));
    }
}

namespace {

/// The operation at which most bytes of buffers are live, from the first use
/// of each to the last. O(operands).
uint32_t peakOf(const RankPlan &rank) {
  size_t count = rank.ops.size();
  std::vector<uint32_t> first(rank.buffers.size(), kNone), last(first);
  for (uint32_t at = 0; at < count; ++at)
    for (Operand use : operandsAt(rank, at)) {
      first[use.buffer] = std::min(first[use.buffer], at);
      last[use.buffer] = at;
    }
  // Wrapping sums: what is added at the first use is taken off after the last.
  std::vector<Bytes> change(count + 1, 0);
  for (size_t b = 0; b < rank.buffers.size(); ++b) {
    if (info(rank.buffers[b].kind).persistent || first[b] == kNone)
      continue;
    change[first[b]] += rank.buffers[b].bytes;
    change[last[b] + 1] -= rank.buffers[b].bytes;
  }
  uint32_t peak = 0;
  Bytes live = 0, most = 0;
  for (uint32_t at = 0; at < count; ++at) {
    live += change[at];
    if (live > most) {
      most = live;
      peak = at;
    }
  }
  return peak;
}

} // namespace

void checkMemory(const PlanIndex &index, Report &report) {
  const Plan &plan = index.plan;
  if (plan.memoryLimit == 0)
    return;
  for (Id r = 0; r < plan.ranks.size(); ++r) {
    const RankPlan &rank = plan.ranks[r];
    Bytes room =
        plan.memoryLimit - std::min(plan.memoryLimit, plan.memoryAllowance);
    if ((rank.arenaBytes <= room && plan.memoryAllowance <= plan.memoryLimit) ||
        !report.admits(FindingKind::Memory))
      continue;
    std::string message = "rank " + std::to_string(r) + " needs an arena of " +
                          std::to_string(rank.arenaBytes) + " bytes";
    if (plan.memoryAllowance != 0)
      message += " and " + std::to_string(plan.memoryAllowance) +
                 " bytes for the device's context";
    message += ", the limit is " + std::to_string(plan.memoryLimit) + " bytes";
    std::optional<OpPlace> place;
    if (!rank.ops.empty()) {
      place = OpPlace{r, peakOf(rank)};
      message += "; the peak is at " + nameOf(plan, *place);
    }
    report.error(FindingKind::Memory, place, std::move(message));
  }
}

Result verifyPlan(const Plan &plan, const Options &options) {
  Result result;
  Report report(result);
  PlanIndex index(plan);
  if (indexPlan(index, report)) {
    checkCompleteness(index, report);
    bool once = options.buffers || checkMessagesOnce(index, report);
    bool messagesMatch = once && matchMessages(index, report);
    if (matchCollectives(index, report) && messagesMatch)
      checkProgress(index, options, report, result);
    if (options.buffers) {
      checkFlow(index, report);
      checkMemory(index, report);
    } else {
      checkDependences(index, report);
    }
  }
  report.finish();
  return result;
}

} // namespace sluice::verify
