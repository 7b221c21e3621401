#include "tools/sluice/Findings.h"

#include "ir/Words.h"
#include "tools/sluice/CsvNotes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

#include <span>

namespace sluice {

using verify::Progress;

/// Those of the contract: all but the plan's own streams.
static constexpr std::span<const Progress> kModels =
    std::span(verify::kProgressModels).first<3>();
static_assert(kModels.back() == Progress::Edge);

std::string Subject::opAt(verify::OpPlace place) const {
  if (csv)
    return csv->nameAt(place);
  if (plan) {
    const RankPlan &rank = plan->ranks[place.rank];
    return place.index < rank.ops.size() ? nameOf(rank.ops[place.index]) : "";
  }
  if (!schedule)
    return "";
  std::span<const Id> order = schedule->rank(place.rank);
  if (place.index >= order.size() || order[place.index] >= graph->nodes.size())
    return "";
  const Node &node = graph->nodes[order[place.index]];
  return nameOf(node);
}

SourceLocation Subject::locate(std::optional<verify::OpPlace> place) const {
  if (csv)
    return place ? csv->locate(*place)
                 : SourceLocation{csv->lines.front().where.file, 0, 0};
  if (!place || !ops || place->rank >= ops->size() ||
      place->index >= (*ops)[place->rank].size())
    return {};
  return (*ops)[place->rank][place->index];
}

namespace {
/// What is told beside the findings of a result, each at its place.
class Notes {
public:
  Notes(const Subject &of, const verify::Result &in) : subject(of), result(in) {
    if (of.csv)
      advice.emplace(*of.csv, of.plan, result);
  }

  std::vector<CsvNote> on(const verify::Finding &finding) {
    if (advice)
      return advice->on(finding);
    std::vector<CsvNote> notes;
    if (finding.meets)
      notes.push_back({subject.opAt(*finding.meets) + " of rank " +
                           std::to_string(finding.meets->rank) + " stands here",
                       subject.locate(finding.meets)});
    for (const verify::Step &step : finding.story)
      notes.push_back({step.text, subject.locate(step.from)});
    return notes;
  }

  /// What is told of all deadlocks together, once those told one by one are.
  std::vector<std::string> onDeadlocks() const {
    std::vector<std::string> notes;
    if (!result.advice.empty() && !(advice && advice->movesWaits()))
      notes.push_back(result.advice);
    if (std::string more = advice ? advice->onDeadlocks() : ""; !more.empty())
      notes.push_back(std::move(more));
    return notes;
  }

private:
  const Subject &subject;
  const verify::Result &result;
  std::optional<CsvAdvice> advice;
};
} // namespace

/// Tells each finding, of some deadlocks or of `all` the story; returns what is
/// to be told of all deadlocks together.
static std::vector<std::string> tellEach(const Subject &subject,
                                         const verify::Result &result, bool all,
                                         Diagnostics &diagnostics) {
  constexpr unsigned kStories = 3; // of the others only who waits, and a fix
  unsigned deadlocks = 0;
  Notes notes(subject, result);
  auto tell = [&](const verify::Finding &finding, bool isError) {
    std::string message = std::string(verify::findingKindName(finding.kind)) +
                          ": " + finding.message;
    // The first source is what was read; the others are of what it names.
    SourceLocation where = subject.locate(finding.place);
    Diagnostic &told = isError ? diagnostics.error(where, std::move(message))
                               : diagnostics.warning(where, std::move(message));
    if (finding.kind == verify::FindingKind::Deadlock &&
        ++deadlocks > kStories && !all)
      return;
    for (CsvNote &note : notes.on(finding))
      told.note(std::move(note.message), note.where);
  };
  for (const verify::Finding &finding : result.errors)
    tell(finding, /*isError=*/true);
  for (const verify::Finding &finding : result.warnings)
    tell(finding, /*isError=*/false);
  return notes.onDeadlocks();
}

void tellFindings(const Subject &subject, const verify::Result &result,
                  Diagnostics &diagnostics) {
  for (std::string &note :
       tellEach(subject, result, /*all=*/false, diagnostics))
    diagnostics.lastError().note(std::move(note));
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

static void writeLocation(llvm::json::OStream &json, SourceLocation where) {
  if (where.line == 0)
    return;
  json.attribute("line", where.line);
  json.attribute("column", where.column);
}

/// The rank and name of a place, null without one.
static void writePlace(llvm::json::OStream &json, const Subject &subject,
                       std::optional<verify::OpPlace> place) {
  std::string name = place ? subject.opAt(*place) : "";
  if (place)
    json.attribute("rank", place->rank);
  else
    json.attribute("rank", nullptr);
  if (!name.empty())
    json.attribute("op", name);
  else
    json.attribute("op", nullptr);
}

/// What is told beside a finding.
static void writeNote(llvm::json::OStream &json, llvm::StringRef message,
                      SourceLocation where) {
  json.object([&] {
    json.attribute("message", message);
    writeLocation(json, where);
  });
}

static void writeFinding(llvm::json::OStream &json, const Subject &subject,
                         const verify::Finding &finding, bool isFirstDeadlock,
                         Notes &notes) {
  json.attribute("kind",
                 llvm::StringRef(verify::findingKindName(finding.kind)));
  json.attribute("message", finding.message);
  writeLocation(json, subject.locate(finding.place));
  writePlace(json, subject, finding.place);
  json.attributeArray("cycle", [&] {
    for (verify::OpPlace place : finding.cycle)
      json.object([&] {
        writePlace(json, subject, place);
        writeLocation(json, subject.locate(place));
      });
  });
  json.attributeArray("notes", [&] {
    for (const CsvNote &note : notes.on(finding))
      writeNote(json, note.message, note.where);
    if (isFirstDeadlock)
      for (const std::string &note : notes.onDeadlocks())
        writeNote(json, note, {});
  });
}

static void writeFindings(llvm::json::OStream &json, llvm::StringRef key,
                          const Subject &subject,
                          llvm::ArrayRef<verify::Finding> findings,
                          Notes &notes) {
  bool deadlocks = false;
  json.attributeArray(key, [&] {
    for (const verify::Finding &finding : findings) {
      bool isOne = finding.kind == verify::FindingKind::Deadlock;
      json.object([&] {
        writeFinding(json, subject, finding, isOne && !deadlocks, notes);
      });
      deadlocks |= isOne;
    }
  });
}

/// The faults of a file that could not be read.
static void writeFaults(llvm::json::OStream &json, bool rowsAreRanks,
                        const Diagnostics &faults) {
  json.attributeArray("errors", [&] {
    for (const Diagnostic &fault : faults.all())
      json.object([&] {
        json.attribute("kind", llvm::StringRef(verify::findingKindName(
                                   verify::FindingKind::Malformed)));
        json.attribute("message", fault.message);
        writeLocation(json, fault.location);
        if (rowsAreRanks && fault.location.line != 0)
          json.attribute("rank", fault.location.line - 1);
        else
          json.attribute("rank", nullptr);
        json.attribute("op", nullptr);
        json.attributeArray("cycle", [] {});
        json.attributeArray("notes", [&] {
          for (const Diagnostic &note : fault.notes)
            writeNote(json, note.message, note.location);
        });
      });
  });
}

/// The value of --p2p.
static std::string p2pOf(const Arguments &arguments) {
  uint32_t buffered = arguments.verify.buffered;
  return buffered == 0 ? "rendezvous" : "buffered:" + std::to_string(buffered);
}

void writeFindingsJson(const Arguments &arguments, const Subject &subject,
                       const verify::Result &result, llvm::raw_ostream &out) {
  llvm::json::OStream json(out, 2);
  Notes notes(subject, result);
  json.object([&] {
    json.attribute("ok", result.ok());
    json.attribute("ranks", subject.ranks());
    json.attribute("operations", subject.operations());
    json.attribute("progress", llvm::StringRef(verify::progressName(
                                   arguments.verify.progress)));
    json.attribute("p2p", p2pOf(arguments));
    // As the contract has it: the fourth model is asked for by name.
    json.attributeObject("holds", [&] {
      for (Progress model : kModels)
        json.attribute(verify::progressName(model), result.holdsUnder(model));
    });
    if (result.minBuffering)
      json.attribute("min_buffering", *result.minBuffering);
    else
      json.attribute("min_buffering", nullptr);
    if (subject.file && !subject.csv && !subject.ops)
      writeFaults(json, subject.rowsAreRanks, *subject.file);
    else
      writeFindings(json, "errors", subject, result.errors, notes);
    writeFindings(json, "warnings", subject, result.warnings, notes);
  });
  out << '\n';
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static void writePlain(const Subject &subject,
                       llvm::ArrayRef<verify::Finding> findings,
                       llvm::StringRef severity, llvm::raw_ostream &out) {
  for (const verify::Finding &finding : findings) {
    out << severity << ": " << verify::findingKindName(finding.kind) << ": ";
    if (subject.plan) {
      out << verify::describe(*subject.plan, finding) << '\n';
      continue;
    }
    out << finding.message << '\n';
    for (const verify::Step &step : finding.story)
      out << "  " << step.text << '\n';
  }
}

/// " (8 of the file; 8 messages and 2 steps added)" of a schedule that came
/// without messages.
static std::string addedTo(const Subject &subject) {
  if (!subject.csv || subject.csv->actions.hasMessages || !subject.plan)
    return "";
  uint64_t messages = 0, steps = 0;
  for (const RankPlan &rank : subject.plan->ranks)
    for (const PlanOp &op : rank.ops) {
      messages += isMessage(op.op);
      steps += op.op == Op::OptimizerStep;
    }
  if (messages + steps == 0)
    return "";
  std::string text = " (" + std::to_string(subject.csv->actions.list.size()) +
                     " of the file; " + counted(messages, "message");
  if (steps != 0)
    text += " and " + counted(steps, "step");
  return text + " added)";
}

/// The models that hold, or do not: "rank and pair".
static std::string modelsThat(const verify::Result &result, bool hold) {
  std::vector<std::string> names;
  for (Progress model : kModels)
    if (result.holdsUnder(model) == hold)
      names.emplace_back(verify::progressName(model));
  return llvm::join(names, " and ");
}

/// Under what the verdict stands, and under what it would be another.
static std::string assumptions(const Arguments &arguments,
                               const Subject &subject,
                               const verify::Result &result) {
  const verify::Options &options = arguments.verify;
  if (!subject.plan && subject.schedule && result.ok())
    return ", by their order alone: messages are added when it is lowered, in "
           "an order that holds under every progress model";
  std::string text = ", progress ";
  text += verify::progressName(options.progress);
  if (options.buffered != 0)
    text += ", buffered " + std::to_string(options.buffered);
  if (result.ok()) {
    if (std::string failing = modelsThat(result, false); !failing.empty())
      text += "; under " + failing + " it deadlocks";
    if (options.buffered != 0 && result.minBuffering.value_or(0) != 0)
      text += "; without buffering it deadlocks";
    return text;
  }
  bool deadlocks = llvm::any_of(result.errors, [](const auto &finding) {
    return finding.kind == verify::FindingKind::Deadlock;
  });
  if (!deadlocks)
    return text;
  text += result.minBuffering
              ? ", least buffering " + std::to_string(*result.minBuffering)
              : ", no buffering helps";
  if (std::string holding = modelsThat(result, true); !holding.empty())
    text += "; under " + holding + " it does not deadlock";
  return text;
}

void writeFindingsText(const Arguments &arguments, const Subject &subject,
                       const verify::Result &result, llvm::raw_ostream &out) {
  verify::Result told = result;
  if (arguments.quiet)
    told.warnings.clear();
  if (subject.file) {
    Diagnostics shown = *subject.file;
    std::vector<std::string> whole;
    if (subject.csv || subject.ops)
      whole = tellEach(subject, told, arguments.verbose, shown);
    out << shown.render();
    for (const std::string &note : whole)
      out << "note: " << note << '\n';
  } else {
    writePlain(subject, told.errors, "error", out);
    writePlain(subject, told.warnings, "warning", out);
    if (!told.advice.empty())
      out << "note: " << told.advice << '\n';
  }
  if (result.ok() && arguments.quiet)
    return;
  out << (result.ok() ? "ok: " : "refused: ")
      << counted(subject.operations(), "operation") << addedTo(subject)
      << " on " << counted(subject.ranks(), "rank")
      << assumptions(arguments, subject, result) << '\n';
}

} // namespace sluice
