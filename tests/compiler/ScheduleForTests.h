//===- tests/compiler/ScheduleForTests.h - From a case to its report ------===//
//
// Specs of equal stages for any schedule, compiled through the whole walk.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_COMPILER_SCHEDULEFORTESTS_H
#define SLUICE_TESTS_COMPILER_SCHEDULEFORTESTS_H

#include "compiler/emit/Emit.h"
#include "compiler/passes/PassManager.h"
#include "compiler/simulate/Report.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include <cstdio>
#include <string>
#include <vector>

namespace sluice::tests {

/// Times of one stage (with v stages per rank a rank's are v times these), in
/// units.
struct StageCosts {
  double forward = 1, backwardInput = 1, backwardWeight = 1;
  double all() const { return forward + backwardInput + backwardWeight; }
};

inline Ticks ticksOf(double units) {
  return static_cast<Ticks>(units * ticksPer(TimeUnit::Unit) + 0.5);
}

/// A pipeline of equal stages.
struct ScheduleCase {
  std::string schedule = "1f1b";
  uint32_t ranks = 4;
  uint32_t microbatches = 8;
  uint32_t chunks = 1;
  StageCosts costs = {};
  double latency = 0;
  double pair = 0;            ///< overlapped_pair; 0: not given
  uint32_t activation = 1024; ///< bytes
  uint32_t kept = 1024;       ///< of these, until W
  std::string keys = {};      ///< more of the pipeline section: ", key: value"

  std::string text() const {
    auto time = [](double units) {
      char buffer[40];
      std::snprintf(buffer, sizeof buffer, "%.6f", units);
      return std::string(buffer);
    };
    std::string spec = "sluice: 1\nmodel:\n  layers: [{name: l, repeat: " +
                       std::to_string(ranks * chunks) +
                       ", forward: " + time(costs.forward) +
                       ", backward_input: " + time(costs.backwardInput) +
                       ", backward_weight: " + time(costs.backwardWeight) +
                       ", activation_bytes: " + std::to_string(activation) +
                       ", kept_for_weight: " + std::to_string(kept);
    if (pair != 0)
      spec += ", overlapped_pair: " + time(pair);
    spec += "}]\npipeline: {ranks: " + std::to_string(ranks) +
            ", virtual_stages: " + std::to_string(chunks) +
            ", microbatches: " + std::to_string(microbatches) +
            ", schedule: " + schedule + keys + "}\n";
    if (latency != 0)
      spec += "cluster: {link: {latency: " + time(latency) + "}}\n";
    return spec;
  }
};

/// A spec that was sent through the passes; stays where it is made.
class Compiled {
public:
  explicit Compiled(const std::string &text,
                    const Pipeline &pipeline = fullPipeline(),
                    const std::string &file = "job.yaml")
      : compilation(diagnostics) {
    compilation.spec = parseSpec(text, file, {}, diagnostics);
    ok = compilation.spec && runPipeline(pipeline, compilation);
  }
  explicit Compiled(const ScheduleCase &of) : Compiled(of.text()) {}
  Compiled(const Compiled &) = delete;
  Compiled &operator=(const Compiled &) = delete;

  Report report() const {
    const Compilation &c = compilation;
    network = c.network();
    ReportInput input{.model = "",
                      .graph = *c.graph,
                      .schedule = *c.schedule,
                      .timing = *c.timing,
                      .network = network,
                      .plan = c.plan ? &*c.plan : nullptr};
    input.objective = c.spec->pipeline.objective;
    return buildReport(input);
  }

  /// What `--emit=ops` prints after the colon, per rank.
  std::vector<std::string> orders() const {
    std::vector<std::string> lines;
    for (Id rank = 0; rank < compilation.schedule->ranks(); ++rank) {
      std::string line;
      for (const std::string &name :
           entryNames(*compilation.graph, *compilation.schedule, rank))
        line += (line.empty() ? "" : " ") + name;
      lines.push_back(std::move(line));
    }
    return lines;
  }

  Diagnostics diagnostics;
  Compilation compilation;
  bool ok = false;

private:
  mutable Network network;
};

/// Everything that is told: `line:column: severity: message`, notes below.
inline std::string toldBy(const Compiled &compiled) {
  std::string text;
  auto add = [&](const Diagnostic &told, const char *kind) {
    if (told.location.line != 0)
      text += std::to_string(told.location.line) + ":" +
              std::to_string(told.location.column) + ": ";
    text += kind + told.message + "\n";
  };
  for (const Diagnostic &told : compiled.diagnostics.all()) {
    add(told, told.severity == Severity::Error ? "error: " : "warning: ");
    for (const Diagnostic &note : told.notes)
      add(note, "note: ");
  }
  return text;
}

/// The report of a case that must compile.
inline Report reportOf(const ScheduleCase &of) {
  Compiled compiled(of);
  INFO(of.text());
  INFO(compiled.diagnostics.render());
  REQUIRE(compiled.ok);
  return compiled.report();
}

/// Work of one rank in a step, if all have the same.
inline double workOf(const ScheduleCase &of) {
  return of.microbatches * of.chunks * of.costs.all();
}

inline std::vector<uint32_t> peaksOf(const Report &report) {
  std::vector<uint32_t> peaks;
  for (const RankReport &rank : report.perRank)
    peaks.push_back(rank.peakInFlight);
  return peaks;
}

} // namespace sluice::tests

#endif // SLUICE_TESTS_COMPILER_SCHEDULEFORTESTS_H
