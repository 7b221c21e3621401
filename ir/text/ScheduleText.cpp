#include "ir/text/Sections.h"
#include "ir/text/Text.h"

namespace sluice {

void printSchedule(const Graph &graph, const Schedule &schedule,
                   llvm::raw_ostream &out) {
  out << "schedule {\n";
  if (!schedule.name.empty()) {
    out << "  name ";
    text::printName(schedule.name, out);
    out << '\n';
  }
  text::printWarmup(schedule.warmup, out);
  for (Id rank = 0; rank < schedule.ranks(); ++rank) {
    out << "  rank " << rank << ':';
    for (const std::string &name : entryNames(graph, schedule, rank))
      out << ' ' << name;
    out << '\n';
  }
  out << "}\n";
}

namespace text {

/// `0F0`; looked up if there are names.
static bool parseEntry(Lexer &lexer, const NodeNames *names, bool joined,
                       Schedule &schedule, std::vector<SourceLocation> &ops) {
  OpRef ref = {};
  ops.push_back(lexer.here());
  if (!lexer.takeOp(ref))
    return false;
  std::optional<Id> node = names ? names->find(ref) : 0;
  if (!node)
    return lexer.errorAt(lexer.previous(),
                         "there is no node " +
                             opName(ref.op, ref.stage, ref.microbatch) +
                             " in the graph");
  if (joined)
    schedule.joined.resize(schedule.order.size());
  schedule.order.push_back(*node);
  if (joined || !schedule.joined.empty())
    schedule.joined.push_back(joined);
  return true;
}

/// What is behind `rank`: ` 0: 0F0 (0F1;1B0)OVERLAP_F_B …`.
static bool parseRank(Lexer &lexer, const NodeNames *names, uint32_t &next,
                      Schedule &schedule, std::vector<SourceLocation> &ops) {
  if (!lexer.takeIndex("rank", next) || !lexer.take(":"))
    return false;
  while (!lexer.atEnd()) {
    bool pair = lexer.accept("(");
    if (!parseEntry(lexer, names, pair, schedule, ops))
      return false;
    if (pair &&
        (!lexer.take(";") || !parseEntry(lexer, names, false, schedule, ops) ||
         !lexer.take(")") || !lexer.take("OVERLAP_F_B")))
      return false;
  }
  schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
  return true;
}

void parseSchedule(Lexer &lexer, const Graph &graph, bool graphIsGood,
                   Schedule &schedule, OpLocations &ops) {
  std::optional<NodeNames> names;
  if (graphIsGood)
    names.emplace(graph);
  unsigned errorsBefore = lexer.errorCount();
  uint32_t nextRank = 0;
  SourceLocation warmupLine = {};
  Keys keys;
  schedule.firstOfRank = {0};
  parseBlock(lexer, lexer.previous(), [&] {
    if (lexer.peek() != "rank" && !keys.isFirst(lexer))
      return false;
    if (lexer.accept("name"))
      return lexer.takeName(schedule.name, "a name");
    if (lexer.accept("warmup")) {
      warmupLine = lexer.previous();
      return parseWarmup(lexer, schedule.warmup);
    }
    if (lexer.accept("rank"))
      return parseRank(lexer, names ? &*names : nullptr, nextRank, schedule,
                       ops.emplace_back());
    return lexer.unexpected("'name', 'warmup', 'rank' or '}'");
  });
  if (lexer.errorCount() == errorsBefore && !schedule.warmup.empty() &&
      schedule.warmup.size() != schedule.ranks())
    lexer.errorAt(warmupLine, "the schedule has " +
                                  llvm::Twine(schedule.warmup.size()) +
                                  " warmup counts for " +
                                  llvm::Twine(schedule.ranks()) + " ranks");
}

} // namespace text
} // namespace sluice
