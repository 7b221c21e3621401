#include "tools/sluice/Findings.h"

#include "llvm/Support/JSON.h"

namespace sluice {

std::string Subject::opAt(verify::OpPlace place) const {
  if (plan) {
    const RankPlan &rank = plan->ranks[place.rank];
    if (place.index >= rank.ops.size())
      return "";
    const PlanOp &op = rank.ops[place.index];
    return nameOf(op);
  }
  std::span<const Id> order = schedule->rank(place.rank);
  if (place.index >= order.size() || order[place.index] >= graph->nodes.size())
    return "";
  const Node &node = graph->nodes[order[place.index]];
  return nameOf(node);
}

SourceLocation Subject::locate(std::optional<verify::OpPlace> place) const {
  if (!place)
    return {};
  if (csv)
    return csv->locate(*place);
  if (!ops || place->rank >= ops->size() ||
      place->index >= (*ops)[place->rank].size())
    return {};
  return (*ops)[place->rank][place->index];
}

void tellFindings(const Subject &subject, const verify::Result &result,
                  Diagnostics &diagnostics) {
  auto tell = [&](const verify::Finding &finding, bool isError) {
    std::string message = std::string(verify::findingKindName(finding.kind)) +
                          ": " + finding.message;
    // The first source is what was read; the others are of what it names.
    SourceLocation where = subject.locate(finding.place);
    Diagnostic &told = isError ? diagnostics.error(where, std::move(message))
                               : diagnostics.warning(where, std::move(message));
    if (finding.meets)
      told.note(subject.opAt(*finding.meets) + " of rank " +
                    std::to_string(finding.meets->rank) + " stands here",
                subject.locate(finding.meets));
    if (!subject.plan)
      return;
    std::vector<std::string> story = verify::storyOf(*subject.plan, finding);
    for (size_t i = 0; i < story.size(); ++i)
      told.note(std::move(story[i]), subject.locate(finding.cycle[i]));
  };
  for (const verify::Finding &finding : result.errors)
    tell(finding, /*isError=*/true);
  for (const verify::Finding &finding : result.warnings)
    tell(finding, /*isError=*/false);
}

static void writeLocation(llvm::json::OStream &json, SourceLocation where) {
  if (where.line == 0)
    return;
  json.attribute("line", where.line);
  json.attribute("column", where.column);
}

static void writeFindings(llvm::json::OStream &json, llvm::StringRef key,
                          const Subject &subject,
                          llvm::ArrayRef<verify::Finding> findings) {
  json.attributeArray(key, [&] {
    for (const verify::Finding &finding : findings)
      json.object([&] {
        json.attribute("kind",
                       llvm::StringRef(verify::findingKindName(finding.kind)));
        json.attribute("message", finding.message);
        writeLocation(json, subject.locate(finding.place));
        if (finding.place) {
          json.attribute("rank", finding.place->rank);
          json.attribute("op", subject.opAt(*finding.place));
        } else {
          json.attribute("rank", nullptr);
          json.attribute("op", nullptr);
        }
        json.attributeArray("cycle", [&] {
          for (verify::OpPlace place : finding.cycle)
            json.object([&] {
              json.attribute("rank", place.rank);
              json.attribute("op", subject.opAt(place));
            });
        });
      });
  });
}

/// The faults of a CSV that could not be read: a row is a rank.
static void writeFaults(llvm::json::OStream &json, const Diagnostics &faults) {
  json.attributeArray("errors", [&] {
    for (const Diagnostic &fault : faults.all())
      json.object([&] {
        json.attribute("kind", llvm::StringRef(verify::findingKindName(
                                   verify::FindingKind::Malformed)));
        json.attribute("message", fault.message);
        writeLocation(json, fault.location);
        if (fault.location.line != 0)
          json.attribute("rank", fault.location.line - 1);
        else
          json.attribute("rank", nullptr);
        json.attribute("op", nullptr);
        json.attributeArray("cycle", [] {});
      });
  });
}

void writeFindingsJson(const Arguments &arguments, const Subject &subject,
                       const verify::Result &result, llvm::raw_ostream &out) {
  llvm::json::OStream json(out, 2);
  json.object([&] {
    json.attribute("ok", result.ok());
    json.attribute("ranks", subject.ranks());
    json.attribute("operations", subject.operations());
    json.attribute("progress", llvm::StringRef(verify::progressName(
                                   arguments.verify.progress)));
    // As the contract has it: the fourth model is asked for by name.
    json.attributeObject("holds", [&] {
      for (verify::Progress model :
           {verify::Progress::Rank, verify::Progress::Pair,
            verify::Progress::Edge})
        json.attribute(verify::progressName(model), result.holdsUnder(model));
    });
    if (result.minBuffering)
      json.attribute("min_buffering", *result.minBuffering);
    else
      json.attribute("min_buffering", nullptr);
    if (subject.file && !subject.csv && !subject.ops)
      writeFaults(json, *subject.file);
    else
      writeFindings(json, "errors", subject, result.errors);
    writeFindings(json, "warnings", subject, result.warnings);
  });
  out << '\n';
}

static void writePlain(const Subject &subject,
                       llvm::ArrayRef<verify::Finding> findings,
                       llvm::StringRef severity, llvm::raw_ostream &out) {
  for (const verify::Finding &finding : findings)
    out << severity << ": " << verify::findingKindName(finding.kind) << ": "
        << (subject.plan ? verify::describe(*subject.plan, finding)
                         : finding.message)
        << '\n';
}

void writeFindingsText(const Arguments &arguments, const Subject &subject,
                       const verify::Result &result, llvm::raw_ostream &out) {
  if (subject.file) {
    Diagnostics shown = *subject.file;
    if (subject.csv || subject.ops)
      tellFindings(subject, result, shown);
    out << shown.render();
  } else {
    writePlain(subject, result.errors, "error", out);
    writePlain(subject, result.warnings, "warning", out);
  }
  out << (result.ok() ? "ok: " : "refused: ") << subject.operations()
      << " operations on " << subject.ranks() << " ranks, progress "
      << verify::progressName(arguments.verify.progress);
  if (!result.ok() && result.minBuffering.value_or(0) != 0)
    out << ", least buffering " << *result.minBuffering;
  if (result.ok() && subject.csv && !subject.csv->actions.hasMessages)
    out << ", messages added";
  out << '\n';
}

} // namespace sluice
