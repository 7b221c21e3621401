#include "compiler/emit/Emit.h"

namespace sluice {
namespace {

llvm::StringRef ref(std::string_view text) { return text; }

class JsonReport {
public:
  JsonReport(const Report &report, llvm::json::OStream &json)
      : report(report), json(json) {}

  void write();

private:
  void time(const char *key, Ticks ticks);
  void cost(const CostRow &row);
  void model();
  void totals();
  void rank(Id number);
  void bytes(const RankReport &rank);
  void contributor(const MemoryContributor &from);
  void step(const PathStep &step);
  void slowest();
  void strings(const char *key, const std::vector<std::string> &texts);

  const Report &report;
  llvm::json::OStream &json;
};

/// Exact, so that nothing is lost on the way through a double.
void JsonReport::time(const char *key, Ticks ticks) {
  json.attributeBegin(key);
  json.rawValue(formatDecimal(ticks, report.timeUnit));
  json.attributeEnd();
}

void JsonReport::cost(const CostRow &row) {
  json.attribute("layer", ref(row.layer));
  json.attribute("layers", row.layers);
  json.attribute("kind", ref(row.kind));
  json.attribute("pass", ref(kCostPasses[static_cast<unsigned>(row.pass)]));
  json.attribute("flops", toCount(row.work.flops));
  json.attribute("bytes", toCount(row.work.bytes));
  time("time", row.time);
  json.attribute("bound", ref(kCostBounds[static_cast<unsigned>(row.bound)]));
}

void JsonReport::model() {
  json.attributeObject("model", [&] {
    json.attribute("name", escaped(report.model));
    json.attribute("layers", report.layers);
    json.attribute("parameters", report.parameters);
    json.attribute("active_parameters", report.activeParameters);
    json.attributeArray("costs", [&] {
      for (const CostRow &row : report.costs)
        json.object([&] { cost(row); });
    });
  });
}

void JsonReport::totals() {
  json.attribute("schedule", escaped(report.schedule));
  json.attribute("ranks", report.ranks);
  json.attribute("virtual_stages", report.virtualStages);
  json.attribute("stages", report.stages);
  json.attribute("microbatches", report.microbatches);
  json.attribute("time_unit", ref(timeUnitName(report.timeUnit)));
  time("makespan", report.makespan);
  time("span", report.span);
  if (report.planMakespan)
    time("plan_makespan", *report.planMakespan);
  else
    json.attribute("plan_makespan", nullptr);
  json.attribute("bubble_fraction", report.bubbleFraction);
  json.attribute("objective", ref(objectiveName(report.objective)));
  time("lower_bound", report.lowerBound);
  if (report.memoryLimit != 0)
    json.attribute("memory_limit", report.memoryLimit);
  else
    json.attribute("memory_limit", nullptr);
  json.attribute("memory_allowance", report.memoryAllowance);
  json.attribute("weights_in_order", report.weightsInOrder);
  json.attributeObject("pairs", [&] {
    json.attribute("count", report.pairs);
    time("saved", report.pairsSaved);
  });
  json.attributeObject("recompute", [&] {
    json.attributeArray("policies", [&] {
      for (RecomputePolicy policy : report.recompute)
        json.value(ref(recomputePolicyName(policy)));
    });
    time("time", report.recomputeTime);
  });
}

void JsonReport::contributor(const MemoryContributor &from) {
  json.object([&] {
    json.attribute("kind", ref(info(from.kind).text));
    if (from.stage == kNone)
      json.attribute("stage", nullptr);
    else
      json.attribute("stage", from.stage);
    json.attribute("buffers", from.buffers);
    json.attribute("bytes", from.bytes);
  });
}

void JsonReport::bytes(const RankReport &rank) {
  json.attribute("peak_bytes", rank.memory.bytes);
  if (rank.peakOperation.empty())
    json.attribute("peak_operation", nullptr);
  else
    json.attribute("peak_operation", rank.peakOperation);
  json.attribute("live_bytes", rank.memory.aligned);
  json.attribute("arena_bytes", rank.arenaBytes);
  json.attribute("fragmentation_bytes", rank.fragmentation);
  json.attribute("unmoved_peak_bytes", rank.unmovedPeak);
  json.attribute("host_peak_bytes", rank.hostPeak);
  json.attribute("host_arena_bytes", rank.hostArena);
  json.attributeObject("memory", [&] {
    for (unsigned heading = 0; heading < kHeadingCount; ++heading)
      json.attribute(ref(headingName(heading)), rank.memory.byHeading[heading]);
  });
  json.attributeArray("memory_timeline", [&] {
    for (const MemoryPoint &point : rank.memoryTimeline)
      json.object([&] {
        time("time", point.time);
        json.attribute("bytes", point.bytes);
      });
  });
  json.attributeArray("contributors", [&] {
    for (const MemoryContributor &from : rank.memory.contributors)
      contributor(from);
  });
}

void JsonReport::rank(Id number) {
  const RankReport &rank = report.perRank[number];
  json.attribute("rank", number);
  json.attributeArray("stages", [&] {
    for (Id stage : rank.stages)
      json.value(stage);
  });
  json.attribute("layers", rank.layers);
  if (rank.warmup)
    json.attribute("warmup", *rank.warmup);
  else
    json.attribute("warmup", nullptr);
  json.attribute("forwards_before_backward", rank.forwardsBeforeBackward);
  json.attribute("peak_in_flight", rank.peakInFlight);
  json.attribute("peak_activation", rank.peakActivation);
  time("busy", rank.busy);
  time("idle", rank.idle);
  bytes(rank);
}

void JsonReport::step(const PathStep &step) {
  json.attribute("op", opName(step.op, step.stage, step.microbatch));
  if (step.with)
    json.attribute("with", nameOf(*step.with));
  json.attribute("rank", step.rank);
  time("start", step.start);
  time("end", step.end);
}

void JsonReport::slowest() {
  if (report.slowestStage == kNone) {
    json.attribute("slowest_stage", nullptr);
    return;
  }
  json.attributeObject("slowest_stage", [&] {
    json.attribute("stage", report.slowestStage);
    json.attribute("rank", report.slowestStageRank);
    time("time_per_microbatch", report.slowestStageTime);
  });
}

void JsonReport::strings(const char *key,
                         const std::vector<std::string> &texts) {
  json.attributeArray(key, [&] {
    for (const std::string &text : texts)
      json.value(escaped(text));
  });
}

void JsonReport::write() {
  model();
  totals();
  slowest();
  json.attributeArray("per_rank", [&] {
    for (Id number = 0; number < report.perRank.size(); ++number)
      json.object([&] { rank(number); });
  });
  json.attributeArray("critical_path", [&] {
    for (const PathStep &each : report.criticalPath)
      json.object([&] { step(each); });
  });
  strings("notes", report.notes);
  strings("warnings", report.warnings);
}

} // namespace

void emitReportJson(const Report &report, llvm::raw_ostream &out) {
  llvm::json::OStream json(out, 2);
  json.object([&] { JsonReport(report, json).write(); });
  out << '\n';
}

void emitComparisonJson(const Comparison &comparison, const Report *own,
                        llvm::raw_ostream &out) {
  llvm::json::OStream json(out, 2);
  json.object([&] {
    if (own)
      JsonReport(*own, json).write();
    emitCompareArray(comparison, json);
  });
  out << '\n';
}

} // namespace sluice
