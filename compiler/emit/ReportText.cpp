#include "compiler/emit/Chart.h"
#include "compiler/emit/Emit.h"
#include "compiler/emit/Table.h"
#include "ir/Words.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <string>
#include <vector>

namespace sluice {
namespace {

/// "0", "0, 4", "0-3".
std::string ranges(const std::vector<Id> &numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
      ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last != i)
      text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

/// For people: 6.74 B, 1.21 M.
std::string parameters(uint64_t count) {
  double value = static_cast<double>(count);
  if (count >= 1'000'000'000)
    return llvm::formatv("{0:F2} B parameters", value / 1e9);
  if (count >= 1'000'000)
    return llvm::formatv("{0:F2} M parameters", value / 1e6);
  return counted(count, "parameter");
}

/// With the suffixes that the spec takes: 1.23 T.
std::string operations(uint64_t count) {
  constexpr const char *kSuffixes[] = {"", " k", " M", " G", " T", " P"};
  auto value = static_cast<double>(count);
  size_t suffix = 0;
  while (value >= 1000 && suffix + 1 < std::size(kSuffixes)) {
    value /= 1000;
    ++suffix;
  }
  return shortNumber(value) + kSuffixes[suffix];
}

class TextReport {
public:
  TextReport(const Report &report, llvm::raw_ostream &out)
      : report(report), out(out) {}

  void write(bool withCosts);

private:
  std::string time(Ticks ticks) const {
    return formatTime(ticks, report.timeUnit);
  }
  llvm::raw_ostream &line(const char *name);
  void head();
  void totals();
  void pairs();
  void ranks();
  void memory();
  void host();
  Id neediest() const;
  void largest();
  void highWater();
  std::string limit() const;
  void slowest();
  void balance();
  void path();
  void costs();
  void sizes();
  std::string stepName(const PathStep &step) const {
    std::string name = opName(step.op, step.stage, step.microbatch);
    return step.with ? "(" + name + ";" + nameOf(*step.with) + ")" : name;
  }

  const Report &report;
  llvm::raw_ostream &out;
};

llvm::raw_ostream &TextReport::line(const char *name) {
  return out << llvm::left_justify(name, 16);
}

void TextReport::head() {
  out << escaped(report.model) << ": " << counted(report.layers, "layer");
  if (report.parameters != 0)
    out << ", " << parameters(report.parameters);
  if (report.activeParameters != report.parameters)
    out << " (" << parameters(report.activeParameters) << " active)";
  out << "\n"
      << escaped(report.schedule) << " on " << counted(report.ranks, "rank")
      << ", " << counted(report.stages, "stage") << ", "
      << counted(report.microbatches, "microbatch", "microbatches");
  if (report.timeUnit == TimeUnit::Unit)
    out << "; times in the spec's abstract units";
  out << "\n\n";
}

void TextReport::totals() {
  bool makespan = report.objective == Objective::Makespan;
  const char *mark = "   <- objective";
  line("makespan") << time(report.makespan) << (makespan ? mark : "") << '\n';
  line("  of the plan");
  if (report.planMakespan)
    out << time(*report.planMakespan)
        << "   with its own streams and order of messages\n";
  else
    out << "-\n";
  line("span") << time(report.span) << (makespan ? "" : mark) << '\n';
  line("lower bound") << time(report.lowerBound) << "   no order "
                      << (report.memoryLimit ? "within the memory limit " : "")
                      << "has a shorter " << objectiveName(report.objective)
                      << '\n';
  line("bubble") << percent(report.bubbleFraction, 1) << "   of "
                 << counted(report.ranks, "rank") << " x makespan\n";
  pairs();
  out << '\n';
}

void TextReport::pairs() {
  if (report.pairs == 0)
    return;
  line("pairs") << counted(report.pairs, "pair runs", "pairs run")
                << " together, ";
  if (report.pairsSaved == 0)
    out << "each as long as one after the other";
  else
    out << "which saves " << time(report.pairsSaved) << " of computing";
  out << '\n';
}

void TextReport::ranks() {
  Table table({"rank", "stages", "layers", "warmup", "F before B", "in flight",
               "activations", "busy", "idle", "idle %"});
  for (Id number = 0; number < report.perRank.size(); ++number) {
    const RankReport &rank = report.perRank[number];
    table.add({std::to_string(number), ranges(rank.stages),
               std::to_string(rank.layers),
               rank.warmup ? std::to_string(*rank.warmup) : "-",
               std::to_string(rank.forwardsBeforeBackward),
               std::to_string(rank.peakInFlight),
               shortNumber(rank.peakActivation), time(rank.busy),
               time(rank.idle),
               percent(static_cast<double>(rank.idle),
                       static_cast<double>(report.makespan))});
  }
  table.print(out);
  out << "  (in flight: most stage-microbatches at once; activations: the same "
         "in microbatches of the whole rank)\n\n";
}

std::string TextReport::limit() const {
  if (report.memoryLimit == 0)
    return "";
  std::string text =
      " (limit " + formatBytes(report.memoryLimit) + " for the arena";
  if (report.memoryAllowance != 0)
    text += " and " + formatBytes(report.memoryAllowance) +
            " of the device's context";
  return text + ")";
}

void TextReport::memory() {
  auto hasBytes = [](const RankReport &rank) { return rank.memory.bytes != 0; };
  if (!llvm::any_of(report.perRank, hasBytes)) {
    line("memory") << "no sizes are given\n\n";
    return;
  }
  std::vector<std::string> heading{"rank"};
  for (unsigned i = 0; i < kHeadingCount; ++i)
    heading.emplace_back(headingName(i));
  heading.insert(heading.end(), {"peak", "at", "live", "arena", "over live"});
  Table table(heading);
  for (Id number = 0; number < report.perRank.size(); ++number) {
    const RankReport &rank = report.perRank[number];
    std::vector<std::string> row{std::to_string(number)};
    for (Bytes bytes : rank.memory.byHeading)
      row.push_back(formatBytes(bytes));
    row.insert(row.end(),
               {formatBytes(rank.memory.bytes),
                rank.peakOperation.empty() ? "-" : rank.peakOperation,
                formatBytes(rank.memory.aligned), formatBytes(rank.arenaBytes),
                percent(static_cast<double>(rank.fragmentation),
                        static_cast<double>(rank.memory.aligned))});
    table.add(row);
  }
  out << "memory at each rank's peak" << limit() << '\n';
  table.print(out);
  out << "  (live: the peak with each buffer rounded up to " << kBufferAlignment
      << " bytes; over live: what the arena has more)\n";
  largest();
  highWater();
  host();
}

/// What is offloaded.
void TextReport::host() {
  auto moves = [](const RankReport &rank) { return rank.hostArena != 0; };
  if (!llvm::any_of(report.perRank, moves))
    return;
  Table table({"rank", "peak", "without offload", "on the host", "host arena"});
  for (Id number = 0; number < report.perRank.size(); ++number) {
    const RankReport &rank = report.perRank[number];
    table.add({std::to_string(number), formatBytes(rank.memory.bytes),
               formatBytes(rank.unmovedPeak), formatBytes(rank.hostPeak),
               formatBytes(rank.hostArena)});
  }
  out << "host memory, apart from the device's and its limit\n";
  table.print(out);
  out << '\n';
}

/// The rank with the largest peak.
Id TextReport::neediest() const {
  Id most = 0;
  for (Id number = 1; number < report.perRank.size(); ++number)
    if (report.perRank[number].memory.bytes > report.perRank[most].memory.bytes)
      most = number;
  return most;
}

/// What fills the rank that needs most.
void TextReport::largest() {
  Id most = neediest();
  out << "  largest on rank " << most << ", which needs most:\n";
  for (const MemoryContributor &from :
       report.perRank[most].memory.contributors) {
    out << llvm::right_justify(formatBytes(from.bytes), 14) << "   "
        << info(from.kind).text;
    if (from.stage != kNone)
      out << " of stage " << from.stage;
    if (from.buffers > 1)
      out << ", " << from.buffers << " buffers";
    out << '\n';
  }
}

/// What that rank has in use from the start of the step to its end.
void TextReport::highWater() {
  constexpr unsigned kLines = 4;
  Id most = neediest();
  const RankReport &rank = report.perRank[most];
  if (rank.memoryTimeline.empty()) {
    out << '\n';
    return;
  }
  Ticks end = *report.planMakespan;
  out << "  its bytes in use over time, full height "
      << formatBytes(rank.memory.bytes) << "\n";
  for (const std::string &bars :
       barChart(mostPerPart(rank.memoryTimeline, end, kChartWidth),
                rank.memory.bytes, kLines))
    out << "  |" << bars << "|\n";
  out << "  0" << llvm::right_justify(time(end), kChartWidth + 1) << "\n\n";
}

void TextReport::slowest() {
  if (report.slowestStage == kNone || report.makespan == 0)
    return;
  line("slowest stage") << report.slowestStage << " (rank "
                        << report.slowestStageRank;
  if (report.slowestStageLayers != 0)
    out << ", layers " << report.slowestStageFirstLayer << "-"
        << report.slowestStageFirstLayer + report.slowestStageLayers - 1;
  out << "): " << time(report.slowestStageTime) << " a microbatch\n";
  balance();
}

void TextReport::balance() {
  const RankReport &busiest = report.perRank[report.busiestRank];
  uint32_t microbatches = std::max(1u, report.microbatches);
  line("what bounds it") << "rank " << report.busiestRank << " computes "
                         << time(busiest.busy) << " of the makespan's "
                         << time(report.makespan) << " ("
                         << percent(static_cast<double>(busiest.busy),
                                    static_cast<double>(report.makespan))
                         << "): at best one microbatch every "
                         << time(busiest.busy / microbatches)
                         << ", however many there are\n";
  line("balance");
  if (busiest.busy == report.meanBusy)
    out << "all ranks compute the same\n";
  else
    out << "the mean rank computes " << time(report.meanBusy) << ": even ranks "
        << "would give one microbatch every "
        << time(report.meanBusy / microbatches) << '\n';
}

void TextReport::path() {
  constexpr size_t kShown = 6; // at either end
  const std::vector<PathStep> &steps = report.criticalPath;
  Ticks computing = 0;
  for (const PathStep &step : steps)
    computing += step.end - step.start;
  line("critical path");
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps.size() > 2 * kShown + 1 && i == kShown) {
      i = steps.size() - kShown;
      out << "... ";
    }
    out << stepName(steps[i]) << ' ';
  }
  out << "(" << counted(steps.size(), "operation") << ", " << time(computing)
      << " of computing";
  if (computing != report.makespan)
    out << ", " << time(report.makespan - computing) << " of messages";
  out << ")\n";
  line("weight grads")
      << (report.weightsInOrder
              ? "in microbatch order on every stage: same sums in every such "
                "schedule\n"
              : "not in microbatch order: sums differ in rounding from those "
                "of one rank\n");
}

void TextReport::costs() {
  if (report.costs.empty())
    return;
  out << "\ncosts of a microbatch on one device\n";
  Table table({"layer", "layers", "kind", "pass", "flops", "bytes", "time",
               "bound by"});
  for (const CostRow &row : report.costs)
    table.add({std::string(row.layer), std::to_string(row.layers),
               std::string(row.kind),
               std::string(kCostPasses[static_cast<unsigned>(row.pass)]),
               operations(toCount(row.work.flops)),
               formatBytes(toCount(row.work.bytes)), time(row.time),
               std::string(kCostBounds[static_cast<unsigned>(row.bound)])});
  table.print(out);
}

/// How much more than `published` an exact number is; "-" where that leaves the
/// layer out.
std::string beyond(uint64_t exact, uint64_t published) {
  if (published == 0)
    return "-";
  return exact < published ? "-" + std::to_string(published - exact)
                           : "+" + std::to_string(exact - published);
}

/// The published counts are those of a GPT: what a layer has besides, or has
/// not, is the difference.
void TextReport::sizes() {
  if (report.sizes.empty())
    return;
  out << "\nparameters of a layer and bytes it saves of a microbatch, on one "
         "device; beyond the counts for a GPT\n(Korthikanti et al., arXiv "
         "2205.05198: 12 h^2 / t parameters; s b h (10 + 24 / t) bytes, with "
         "sequence parallelism 34 s b h / t,\nand the attention matrix)\n";
  Table table(
      {"layer", "layers", "parameters", "beyond", "bytes saved", "beyond"});
  for (const SizeRow &row : report.sizes)
    table.add({std::string(row.layer), std::to_string(row.layers),
               std::to_string(row.parameters),
               beyond(row.parameters, row.publishedParameters),
               std::to_string(row.saved),
               beyond(row.saved, row.publishedSaved)});
  table.print(out);
}

void TextReport::write(bool withCosts) {
  head();
  totals();
  ranks();
  if (report.hasMemory)
    memory();
  slowest();
  path();
  if (withCosts) {
    costs();
    sizes();
  }
  for (const std::string &note : report.notes)
    out << "note: " << note << '\n';
  for (const std::string &warning : report.warnings)
    out << "warning: " << escaped(warning) << '\n';
}

} // namespace

void emitReportText(const Report &report, llvm::raw_ostream &out,
                    bool withCosts) {
  TextReport(report, out).write(withCosts);
}

} // namespace sluice
