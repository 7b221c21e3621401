//===- ir/text/Text.h - Graph, Schedule and Plan as text ------------------===//
//
// A text form starts with the line `sluice-ir 1` and holds the sections
// `graph { … }`, `schedule { … }` and `plan { … }`, any of them, in that order;
// a schedule needs its graph. One statement a line, `#` starts a comment. The
// forms can be written by hand (tests/golden/text has some) and are exact: what
// print wrote, parse reads, and print writes the same again.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_TEXT_TEXT_H
#define SLUICE_IR_TEXT_TEXT_H

#include "ir/Diagnostics.h"
#include "ir/Graph.h"
#include "ir/Plan.h"
#include "ir/Schedule.h"

#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// The version of the text forms; no other is read.
inline constexpr unsigned kIrTextVersion = 1;

/// Where the operations of each rank stand in a text.
using OpLocations = std::vector<std::vector<SourceLocation>>;

/// What a text holds.
struct IrText {
  std::optional<Graph> graph;
  std::optional<Schedule> schedule;
  std::optional<Plan> plan;
  OpLocations scheduleOps, planOps; ///< of what is there
};

/// Each writes its section, without the first line of the file. What is printed
/// must be well-formed: every index in range, no two nodes of one name.
void printGraph(const Graph &graph, llvm::raw_ostream &out);
void printSchedule(const Graph &graph, const Schedule &schedule,
                   llvm::raw_ostream &out);
void printPlan(const Plan &plan, llvm::raw_ostream &out);

/// Writes the first line and the section of each that is there; a schedule only
/// with its graph.
void printIr(const Graph *graph, const Schedule *schedule, const Plan *plan,
             llvm::raw_ostream &out);
inline void printIr(const IrText &ir, llvm::raw_ostream &out) {
  printIr(ir.graph ? &*ir.graph : nullptr,
          ir.schedule ? &*ir.schedule : nullptr, ir.plan ? &*ir.plan : nullptr,
          out);
}

/// True if the first line that is neither empty nor a comment is that of a text
/// form.
bool isIrText(std::string_view text);

/// Reads `text`, which is shown as `file` in diagnostics. Tells all faults, one
/// a line, and gives nothing if there are any. A graph's names and indexes and
/// a plan's structure (PlanFile.h) have then been checked; whether they are
/// right is for ir/verify. O(n log n) in the size of the text.
std::optional<IrText> parseIr(std::string_view text, const std::string &file,
                              Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_IR_TEXT_TEXT_H
