#include "tools/sluice/Emit.h"

#include "compiler/emit/Emit.h"
#include "compiler/passes/PassManager.h"
#include "tools/sluice/Reports.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace sluice {

static Timeline predicted(const Compilation &c) {
  bool copies = llvm::any_of(c.plan->ranks, [](const RankPlan &rank) {
    return rank.hostArenaBytes != 0;
  });
  std::optional<PlanTiming> planned; // copies are the plan's alone
  if (copies)
    planned = simulatePlan(*c.plan);
  Timeline timeline = planned ? timelineOf(*c.plan, *planned)
                              : timelineOf(*c.graph, *c.schedule, *c.timing);
  timeline.title = c.plan->model + ", " + c.schedule->name;
  return timeline;
}

static constexpr EmitInfo kEmits[] = {
    {"plan", "plan", nullptr},
    {"ops", "ops",
     [](const Compilation &c, llvm::raw_ostream &out) {
       emitOps(*c.graph, *c.schedule, out);
     }},
    {"ir", "ir", printIr},
    {"torch-csv", "csv",
     [](const Compilation &c, llvm::raw_ostream &out) {
       emitTorchCsv(*c.graph, *c.schedule, out);
     },
     [](const Compilation &c) {
       return whyNotTorchCsv(*c.graph, *c.schedule);
     }},
    {"torch-csv-comms", "comms.csv",
     [](const Compilation &c, llvm::raw_ostream &out) {
       emitTorchCsvComms(*c.plan, out);
     },
     [](const Compilation &c) {
       return whyNotTorchCsv(*c.graph, *c.schedule);
     }},
    {"trace", "trace",
     [](const Compilation &c, llvm::raw_ostream &out) {
       emitChromeTrace(predicted(c), out);
     }},
    {"svg", "svg",
     [](const Compilation &c, llvm::raw_ostream &out) {
       emitSvg(predicted(c), out);
     }},
    {"html", "html",
     [](const Compilation &c, llvm::raw_ostream &out) {
       emitHtml(predicted(c), reportOf(c), out);
     }},
};

llvm::ArrayRef<EmitInfo> allEmits() { return kEmits; }

const EmitInfo *findEmit(llvm::StringRef name) {
  const auto *found = llvm::find_if(
      kEmits, [&](const EmitInfo &info) { return info.name == name; });
  return found == std::end(kEmits) ? nullptr : found;
}

llvm::StringRef emitDescription() {
  static const std::string text =
      "what to write: " +
      llvm::join(llvm::map_range(
                     kEmits, [](const EmitInfo &info) { return info.name; }),
                 ", ") +
      " (default plan)";
  return text;
}

} // namespace sluice
