#include "compiler/emit/Emit.h"
#include "compiler/emit/Table.h"
#include "ir/Words.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace sluice {
namespace {

class TextComparison {
public:
  TextComparison(const Comparison &compared, llvm::raw_ostream &stream)
      : comparison(compared), out(stream) {
    for (const ComparedSchedule &each : comparison.schedules) {
      bytes |= each.hasBytes;
      microbatches |= each.microbatches.has_value();
      sizes |= each.microbatchSize.has_value();
      leaves |= each.planned && each.span != each.makespan;
    }
  }

  void write();

private:
  std::string time(Ticks ticks) const {
    return formatTime(ticks, comparison.timeUnit);
  }
  std::vector<std::string> heading() const;
  std::vector<std::string> numbers(const ComparedSchedule &row) const;
  std::string remark(const ComparedSchedule &row) const;
  void legend();
  void keys();

  const Comparison &comparison;
  llvm::raw_ostream &out;
  bool bytes = false, microbatches = false, sizes = false; ///< columns
  bool leaves = false; ///< ranks leave one of them at different times
};

/// "12", ">= 8192" where the search ended, "none".
std::string largest(const std::optional<Largest> &found) {
  if (!found)
    return "-";
  if (found->count == 0)
    return "none";
  return (found->bySearch ? ">= " : "") + std::to_string(found->count);
}

std::vector<std::string> TextComparison::heading() const {
  std::vector<std::string> cells{"makespan", "bubble", "span", "in flight"};
  if (bytes)
    cells.emplace_back("largest rank");
  if (microbatches)
    cells.emplace_back("most microbatches");
  if (sizes)
    cells.emplace_back("largest size");
  return cells;
}

std::vector<std::string>
TextComparison::numbers(const ComparedSchedule &row) const {
  std::vector<std::string> cells{time(row.makespan),
                                 percent(row.bubbleFraction, 1), time(row.span),
                                 shortNumber(row.peakActivation)};
  if (bytes)
    cells.push_back(formatBytes(row.bytes));
  if (microbatches)
    cells.push_back(largest(row.microbatches));
  if (sizes)
    cells.push_back(largest(row.microbatchSize));
  return cells;
}

std::string TextComparison::remark(const ComparedSchedule &row) const {
  if (!row.reason.empty())
    return row.reason;
  if (!row.trains)
    return "no backward";
  std::string text = row.bestMakespan ? "best makespan" : "";
  if (row.bestSpan && comparison.objective == Objective::Span)
    text += (text.empty() ? "" : ", ") + std::string("best span");
  return text.empty() ? text : "<- " + text;
}

void TextComparison::legend() {
  out << "  (in flight: most microbatches of a whole rank at once";
  if (microbatches)
    out << "; most microbatches" << (sizes ? ", largest size" : "")
        << ": what fits in " << formatBytes(comparison.memoryLimit)
        << " a rank, all else as it is; >=: where the search ended";
  out << ")\n";
  if (leaves)
    out << "note: where the span is less than the makespan, ranks begin and "
           "end the step at different times; gradient clipping is a barrier "
           "between steps: with it span buys nothing\n";
  if (llvm::any_of(comparison.schedules,
                   [](const ComparedSchedule &row) { return row.copies; }))
    out << "note: makespan and span are with what copies to host memory and "
           "back add to them\n";
  keys();
}

/// Says of each key of the spec that some rows leave out which ones do.
void TextComparison::keys() {
  std::vector<std::string> seen;
  for (const ComparedSchedule &row : comparison.schedules)
    for (const std::string &key : row.keys) {
      if (llvm::is_contained(seen, key))
        continue;
      seen.push_back(key);
      std::string without;
      for (const ComparedSchedule &other : comparison.schedules)
        if (!llvm::is_contained(other.keys, key))
          without += (without.empty() ? "" : ", ") + escaped(other.name);
      if (!without.empty())
        out << "note: without the spec's pipeline." << key << ": " << without
            << '\n';
    }
}

void TextComparison::write() {
  out << escaped(comparison.model) << " on "
      << counted(comparison.ranks, "rank") << ", "
      << counted(comparison.microbatches, "microbatch", "microbatches")
      << ", objective " << objectiveName(comparison.objective);
  if (comparison.timeUnit == TimeUnit::Unit)
    out << "; times in the spec's abstract units";
  out << "\n\n";
  size_t longest = 0;
  for (const ComparedSchedule &row : comparison.schedules)
    longest = std::max(longest, row.name.size());
  auto first = [&](std::string name) {
    name.resize(std::max(longest, name.size()), ' ');
    return name;
  };
  std::vector<std::string> cells = heading();
  cells.insert(cells.begin(), first("schedule"));
  longest = cells.front().size();
  Table table(cells);
  for (const ComparedSchedule &row : comparison.schedules) {
    cells = row.planned ? numbers(row) : std::vector<std::string>();
    cells.insert(cells.begin(), first(row.name));
    std::string text = remark(row);
    table.add(cells, text.empty() ? text : "   " + text);
  }
  table.print(out);
  legend();
}

} // namespace

void emitComparisonText(const Comparison &comparison, llvm::raw_ostream &out) {
  TextComparison(comparison, out).write();
}

} // namespace sluice
