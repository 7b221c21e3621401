#include "ir/LiveBytes.h"
#include "ir/verify/Internal.h"

#include <algorithm>

namespace sluice::verify {

std::optional<Progress> progressFromName(std::string_view name) {
  for (Progress progress : kProgressModels)
    if (progressName(progress) == name)
      return progress;
  return std::nullopt;
}

void Report::error(FindingKind kind, std::optional<OpPlace> place,
                   std::string message, std::vector<OpPlace> cycle,
                   std::optional<OpPlace> meets, std::vector<Step> story) {
  result.errors.push_back({kind, std::move(message), place, std::move(cycle),
                           meets, std::move(story)});
}

void Report::warning(FindingKind kind, std::optional<OpPlace> place,
                     std::string message) {
  result.warnings.push_back({kind, std::move(message), place, {}});
}

void Report::finish() {
  finish(counts, result.errors);
  finish(warningCounts, result.warnings);
}

void Report::finish(const Counts &counts, std::vector<Finding> &findings) {
  for (unsigned kind = 0; kind < counts.size(); ++kind)
    if (counts[kind] > kMaxOfKind) {
      auto which = static_cast<FindingKind>(kind);
      auto last = std::find_if(
          findings.rbegin(), findings.rend(),
          [which](const Finding &finding) { return finding.kind == which; });
      Finding more{which, "and " + std::to_string(counts[kind] - kMaxOfKind) +
                              " more of kind " +
                              std::string(findingKindName(which))};
      more.place = last == findings.rend() ? std::nullopt : last->place;
      more.untold = counts[kind] - kMaxOfKind;
      findings.push_back(std::move(more));
    }
}

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
      std::vector<Bytes> live = liveBytes(rank);
      auto peak = std::max_element(live.begin(), live.end()) - live.begin();
      place = OpPlace{r, static_cast<uint32_t>(peak)};
      message += "; the peak is at " + nameOf(plan, *place);
    }
    report.error(FindingKind::Memory, place, std::move(message));
  }
}

bool checkOperations(PlanIndex &index, const Options &options, Report &report) {
  checkCompleteness(index, report);
  checkNorms(index, report);
  bool once = options.buffers || checkMessagesOnce(index, report);
  bool messagesMatch = once && matchMessages(index, report);
  if (!options.buffers)
    checkDependences(index, once, report);
  return matchCollectives(index, report) && messagesMatch;
}

void checkBuffers(const PlanIndex &index, Report &report) {
  compareGroupOrders(index, report);
  checkFlow(index, report);
  checkMemory(index, report);
}

Result verifyPlan(const Plan &plan, const Options &options) {
  Result result;
  Report report(result);
  PlanIndex index(plan);
  if (indexPlan(index, options.structureChecked, report)) {
    if (checkOperations(index, options, report))
      checkProgress(index, options, report, result);
    if (options.buffers)
      checkBuffers(index, report);
  }
  if (uint64_t deadlocks = report.count(FindingKind::Deadlock);
      deadlocks != 0 && options.remedies)
    nameFixes(plan, options, deadlocks <= Report::kMaxOfKind,
              report.count() - deadlocks, result);
  report.finish();
  return result;
}

} // namespace sluice::verify
