//===- ir/text/Sections.h - The sections, and what they share -------------===//
#ifndef SLUICE_IR_TEXT_SECTIONS_H
#define SLUICE_IR_TEXT_SECTIONS_H

#include "ir/Graph.h"
#include "ir/Plan.h"
#include "ir/PlanStructure.h"
#include "ir/Schedule.h"
#include "ir/text/Faults.h"
#include "ir/text/Lexer.h"
#include "ir/text/Text.h"

#include "llvm/ADT/SmallVector.h"

#include <functional>
#include <optional>
#include <vector>

namespace sluice::text {

/// Each reads a section from behind its `{` to its `}` and tells its faults.
/// What it gives is good only if there were none. A schedule is not held
/// against a graph that has faults.
void parseGraph(Lexer &lexer, Graph &graph);
void parseSchedule(Lexer &lexer, const Graph &graph, bool graphIsGood,
                   Schedule &schedule, OpLocations &ops);
void parsePlan(Lexer &lexer, Plan &plan, OpLocations &ops);

/// The keys of a block or a line that stand there once.
class Keys {
public:
  /// Whether the next token stands for the first time; tells where it does not.
  bool isFirst(Lexer &lexer);

private:
  llvm::SmallVector<std::pair<llvm::StringRef, SourceLocation>, 4> seen;
};

/// What is wrong with a section that could be read: the first fault of each
/// line, up to a limit.
class SectionFaults {
public:
  explicit SectionFaults(Lexer &lexer) : faults(lexer.sink()) {}
  void tell(SourceLocation where, const llvm::Twine &message) {
    if (where.line != lastLine && faults.admits(where))
      faults.tell(where, message.str());
    lastLine = where.line;
  }
  bool none() const { return faults.seen() == 0; }
  /// Says how many were not told.
  void finish() { faults.finish(); }

private:
  Faults faults;
  uint32_t lastLine = 0;
};

/// Reads the lines of a block up to its `}`. `statement` reads a line from its
/// first token and returns false after a fault. False if the block is not
/// closed.
bool parseBlock(Lexer &lexer, SourceLocation opened,
                const std::function<bool()> &statement);

/// The lines `time_unit`, `microbatches`, `replicas`, `stage` and `edge` of
/// graph and plan.
class StageLines {
public:
  StageLines(TimeUnit &unit, uint32_t &microbatchCount, uint32_t &replicaCount,
             std::vector<Stage> &stageList, std::vector<StageEdge> &edgeList)
      : timeUnit(unit), microbatches(microbatchCount), replicas(replicaCount),
        stages(stageList), edges(edgeList) {}

  /// Reads the line if it is one of these; nothing if it is not.
  std::optional<bool> parse(Lexer &lexer);
  bool takeTime(Lexer &lexer, Ticks &ticks) {
    timeRead = true;
    return lexer.takeTicks(ticks, timeUnit);
  }
  /// Where the stage or edge of a fault stands.
  SourceLocation at(const StructureFault &fault) const;

private:
  bool parseTimeUnit(Lexer &lexer);
  bool parseStage(Lexer &lexer);
  bool parseField(Lexer &lexer, Stage &stage, Keys &seen);
  bool parseEdge(Lexer &lexer);
  bool parseReplicas(Lexer &lexer);

  TimeUnit &timeUnit;
  uint32_t &microbatches, &replicas;
  std::vector<Stage> &stages;
  std::vector<StageEdge> &edges;
  std::vector<SourceLocation> stageLines, edgeLines;
  uint32_t nextStage = 0;
  Keys keys;
  bool timeRead = false; ///< too late to change the unit
};

void printStages(TimeUnit unit, uint32_t microbatches, uint32_t replicas,
                 const std::vector<Stage> &stages,
                 const std::vector<StageEdge> &edges, llvm::raw_ostream &out);

/// `warmup 3 2 1 0`, of schedule and plan.
bool parseWarmup(Lexer &lexer, std::vector<uint32_t> &warmup);
void printWarmup(const std::vector<uint32_t> &warmup, llvm::raw_ostream &out);

/// Nodes by name. O(n log n) to make, O(log n) to ask, whatever the names.
class NodeNames {
public:
  explicit NodeNames(const Graph &graph);
  std::optional<Id> find(const OpRef &ref) const;
  /// The later node of each pair that has one name.
  std::vector<Id> duplicates() const;

private:
  bool before(Id a, Id b) const;
  const Graph &graph;
  std::vector<Id> sorted;
};

} // namespace sluice::text

#endif // SLUICE_IR_TEXT_SECTIONS_H
