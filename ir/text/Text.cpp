#include "ir/text/Text.h"
#include "ir/text/Sections.h"

namespace sluice {

static constexpr llvm::StringRef kMagic = "sluice-ir";

/// The first line of a text form.
static std::string firstLine() {
  return kMagic.str() + " " + std::to_string(kIrTextVersion);
}

void printIr(const Graph *graph, const Schedule *schedule, const Plan *plan,
             llvm::raw_ostream &out) {
  out << firstLine() << '\n';
  if (graph)
    printGraph(*graph, out);
  if (graph && schedule)
    printSchedule(*graph, *schedule, out);
  if (plan)
    printPlan(*plan, out);
}

bool isIrText(std::string_view text) {
  llvm::StringRef rest = text;
  while (!rest.empty()) {
    auto [line, after] = rest.split('\n');
    line = line.ltrim(" \t\r");
    if (!line.empty() && line[0] != '#')
      return line.starts_with(kMagic);
    rest = after;
  }
  return false;
}

/// The first line.
static bool parseVersion(text::Lexer &lexer) {
  if (!lexer.nextLine() || lexer.peek() != kMagic)
    return lexer.unexpected(("'" + firstLine() + "'").c_str());
  lexer.accept(kMagic);
  uint64_t version = 0;
  SourceLocation where = lexer.here();
  if (!lexer.takeNumber(version, "the version of the text form", ~0u))
    return false;
  if (version != kIrTextVersion)
    return lexer.errorAt(
        where, "text form has version " + llvm::Twine(version) +
                   ", this program reads " + llvm::Twine(kIrTextVersion));
  return lexer.finishLine();
}

namespace {
/// The sections in their order.
enum class Section : uint8_t { Graph, Schedule, Plan };
} // namespace

static constexpr llvm::StringRef kSections[] = {"graph", "schedule", "plan"};

/// From a section's name to its closing brace. `good` means no faults so far.
static bool parseSection(text::Lexer &lexer, bool good, IrText &ir,
                         unsigned &next) {
  const auto *name = llvm::find(kSections, lexer.peek());
  if (name == std::end(kSections))
    return lexer.unexpected("'graph', 'schedule' or 'plan'");
  auto number = static_cast<unsigned>(name - kSections);
  if (number < next)
    return lexer.error("the sections are graph, schedule and plan, in that "
                       "order, each once");
  if (number == static_cast<unsigned>(Section::Schedule) && !ir.graph)
    return lexer.error("a schedule needs its graph before it");
  next = number + 1;
  lexer.accept(*name);
  if (!lexer.take("{") || !lexer.finishLine())
    return false;
  switch (static_cast<Section>(number)) {
  case Section::Graph:
    text::parseGraph(lexer, ir.graph.emplace());
    break;
  case Section::Schedule:
    text::parseSchedule(lexer, *ir.graph, good, ir.schedule.emplace(),
                        ir.scheduleOps);
    break;
  case Section::Plan:
    text::parsePlan(lexer, ir.plan.emplace(), ir.planOps);
    break;
  }
  return true;
}

std::optional<IrText> parseIr(std::string_view text, const std::string &file,
                              Diagnostics &diagnostics) {
  unsigned errorsBefore = diagnostics.errorCount();
  uint32_t number = diagnostics.addSource(file, std::string(text));
  text::Lexer lexer(text, number, diagnostics);
  IrText ir;
  unsigned next = 0;
  if (!parseVersion(lexer))
    return std::nullopt;
  while (lexer.nextLine())
    if (!parseSection(lexer, lexer.errorCount() == errorsBefore, ir, next))
      lexer.skipStatement();
  if (next == 0)
    lexer.unexpected("a section, 'graph {', 'schedule {' or 'plan {'");
  if (diagnostics.errorCount() != errorsBefore)
    return std::nullopt;
  return ir;
}

} // namespace sluice
