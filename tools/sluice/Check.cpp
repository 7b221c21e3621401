//===- tools/sluice/Check.cpp - `sluice check` ---------------------------===//
#include "ir/PlanFile.h"
#include "ir/text/Text.h"
#include "ir/verify/Verify.h"
#include "tools/sluice/Driver.h"

#include "llvm/Support/JSON.h"

namespace sluice {

namespace {
/// What was checked: a plan, or a schedule with its graph.
struct Subject {
  std::optional<Plan> plan;
  std::optional<Graph> graph;
  std::optional<Schedule> schedule;

  uint64_t ranks() const {
    return plan ? plan->ranks.size() : schedule ? schedule->ranks() : 0;
  }
  uint64_t operations() const {
    return plan ? operationCount(*plan) : schedule ? schedule->order.size() : 0;
  }
  /// Name of the operation at a place of a finding; empty if there is none.
  std::string opAt(verify::OpPlace place) const;
  std::string story(const verify::Finding &finding) const {
    return plan ? verify::describe(*plan, finding) : finding.message;
  }
};
} // namespace

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

static void writeFindings(llvm::json::OStream &json, llvm::StringRef key,
                          const Subject &subject,
                          llvm::ArrayRef<verify::Finding> findings) {
  json.attributeArray(key, [&] {
    for (const verify::Finding &finding : findings)
      json.object([&] {
        json.attribute("kind",
                       llvm::StringRef(verify::findingKindName(finding.kind)));
        json.attribute("message", finding.message);
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

static void writeJson(llvm::raw_ostream &out, const Arguments &arguments,
                      const Subject &subject, const verify::Result &result) {
  llvm::json::OStream json(out, 2);
  json.object([&] {
    json.attribute("ok", result.ok());
    json.attribute("ranks", subject.ranks());
    json.attribute("operations", subject.operations());
    json.attribute("progress", llvm::StringRef(verify::progressName(
                                   arguments.verify.progress)));
    json.attributeObject("holds", [&] {
      for (verify::Progress model :
           {verify::Progress::Rank, verify::Progress::Pair,
            verify::Progress::Edge})
        json.attribute(verify::progressName(model),
                       result.holds[static_cast<unsigned>(model)]);
    });
    if (result.minBuffering)
      json.attribute("min_buffering", *result.minBuffering);
    else
      json.attribute("min_buffering", nullptr);
    writeFindings(json, "errors", subject, result.errors);
    writeFindings(json, "warnings", subject, result.warnings);
  });
  out << '\n';
}

static void writeText(llvm::raw_ostream &out, const Arguments &arguments,
                      const Subject &subject, const verify::Result &result) {
  for (const verify::Finding &finding : result.errors)
    out << "error: " << verify::findingKindName(finding.kind) << ": "
        << subject.story(finding) << '\n';
  for (const verify::Finding &finding : result.warnings)
    out << "warning: " << verify::findingKindName(finding.kind) << ": "
        << subject.story(finding) << '\n';
  out << (result.ok() ? "ok: " : "refused: ") << subject.operations()
      << " operations on " << subject.ranks() << " ranks, progress "
      << verify::progressName(arguments.verify.progress);
  if (!result.ok() && result.minBuffering)
    out << ", least buffering " << *result.minBuffering;
  out << '\n';
}

/// Reads what can be checked.
static Status load(const Arguments &arguments, const Input &input,
                   Subject &subject) {
  Invocation invocation;
  switch (input.kind) {
  case InputKind::Plan: {
    Status status = loadPlan(arguments, input, invocation);
    subject.plan = std::move(invocation.compilation.plan);
    return status;
  }
  case InputKind::Ir: {
    std::optional<IrText> ir =
        parseIr(input.text, input.name, invocation.diagnostics);
    printDiagnostics(arguments, invocation);
    if (!ir)
      return Status::input("'" + escaped(input.name) +
                           "' is not IR text without faults");
    if (!ir->plan && !ir->schedule)
      return Status::input("'" + escaped(input.name) +
                           "' holds neither a schedule nor a plan");
    subject = {std::move(ir->plan), std::move(ir->graph),
               std::move(ir->schedule)};
    return Status();
  }
  case InputKind::Spec:
    return Status::input("'" + escaped(input.name) +
                         "' is not a plan or IR text; compile a spec first: "
                         "sluice compile SPEC -o F");
  case InputKind::Csv:
    return Status::input("'" + escaped(input.name) +
                         "' is a schedule CSV; reading these is not supported "
                         "yet");
  }
  return Status();
}

/// A plan's schedule must be right too, if the text holds one; else what is
/// told of a schedule holds for every progress model.
static verify::Result verifySubject(const Arguments &arguments,
                                    Subject &subject) {
  verify::Result result;
  if (subject.schedule)
    result = verify::verifySchedule(*subject.graph, *subject.schedule);
  if (!subject.plan || !result.ok()) {
    subject.plan.reset();
    return result;
  }
  return verify::verifyPlan(*subject.plan, arguments.verify);
}

/// What cannot even be read is malformed: the answer for a script.
static verify::Result malformed(const std::string &message) {
  verify::Result result;
  result.errors.push_back(
      {verify::FindingKind::Malformed, message, std::nullopt, {}});
  return result;
}

int commands::check(const Arguments &arguments) {
  Input input;
  Subject subject;
  Status status = readInput(arguments.input, input);
  if (status.ok())
    status = load(arguments, input, subject);
  if (!status.ok() && !(arguments.json && status.fault() == Fault::Input))
    return fail(status);
  verify::Result result = status.ok() ? verifySubject(arguments, subject)
                                      : malformed(status.message());
  if (!status.ok())
    (void)fail(status);
  status = writeOutput("", [&](llvm::raw_ostream &out) {
    (arguments.json ? writeJson : writeText)(out, arguments, subject, result);
  });
  if (!status.ok())
    return fail(status);
  return result.ok() ? 0 : 1;
}

} // namespace sluice
