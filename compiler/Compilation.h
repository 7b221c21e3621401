//===- compiler/Compilation.h - One walk from a spec to a plan -----------===//
//
// Holds what the passes hand on. A pass (passes/Passes.def) says which of these
// artifacts it needs and which it makes.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_COMPILATION_H
#define SLUICE_COMPILER_COMPILATION_H

#include "compiler/model/Layer.h"
#include "compiler/model/Network.h"
#include "compiler/partition/Partition.h"
#include "compiler/schedules/Choice.h"
#include "compiler/simulate/Simulate.h"
#include "compiler/spec/Spec.h"
#include "ir/Diagnostics.h"
#include "ir/Graph.h"
#include "ir/Plan.h"
#include "ir/Schedule.h"

#include <optional>
#include <vector>

namespace sluice {

/// Warmup counts as the rule is given them.
struct WarmupCounts {
  std::vector<uint32_t> perRank; ///< empty: the schedule has no such rule
  /// Why they are not those of the book, in sentences.
  std::vector<std::string> bounds;
};

struct Compilation {
  explicit Compilation(Diagnostics &sink) : diagnostics(sink) {}

  Diagnostics &diagnostics;
  std::optional<Spec> spec;
  std::optional<ScheduleChoice> choice;
  std::optional<Model> model;
  std::optional<StageGraph> stages;
  std::optional<WarmupCounts> warmup;
  std::optional<Orders> orders;
  std::optional<Graph> graph;
  std::optional<Schedule> schedule;
  std::optional<ScheduleTiming> timing;
  std::optional<Plan> plan;
  /// verify-plan found the plan over its memory limit: its last error says so.
  bool overLimit = false;

  /// The links of the spec's cluster, else of the plan's channels, else free.
  Network network() const;
};

/// Makes graph and schedule of what a plan computes, which must be complete.
void raiseSchedule(Compilation &compilation);

/// Makes graph, schedule and timing of a plan that was read, so that it can be
/// reported on like a compiled one. The plan must have passed verification.
/// False after reporting why not (times beyond what a time can hold, …).
bool raisePlan(Compilation &compilation);

} // namespace sluice

#endif // SLUICE_COMPILER_COMPILATION_H
