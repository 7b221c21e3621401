#include "ir/Words.h"
#include "ir/text/Sections.h"
#include "ir/text/Text.h"

#include <algorithm>
#include <tuple>

namespace sluice {

static constexpr llvm::StringRef kValueKinds[] = {
    "activation", "gradient", "saved", "kept", "checkpoint", "order"};

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

/// `activation 100 [1F0, 2F0]`; without the bytes where there are none.
static void printValue(const Graph &graph, Id value, llvm::raw_ostream &out) {
  const Value &it = graph.values[value];
  out << kValueKinds[static_cast<unsigned>(it.kind)];
  if (it.bytes != 0)
    out << ' ' << it.bytes;
  out << " [";
  const char *separator = "";
  for (Id consumer : graph.consumers(value)) {
    out << separator << nameOf(graph.nodes[consumer]);
    separator = ", ";
  }
  out << ']';
}

/// `0F0 6 -> activation 100 [1F0], saved 20 [0B0]`.
static void printNode(const Graph &graph, Id node, llvm::raw_ostream &out) {
  const Node &it = graph.nodes[node];
  out << "  " << nameOf(it);
  if (it.duration != graph.stages[it.stage].duration(it.op))
    out << ' ' << formatDecimal(it.duration, graph.timeUnit);
  const char *separator = " -> ";
  auto [first, last] = graph.outputs(node);
  for (Id value = first; value < last; ++value) {
    out << separator;
    printValue(graph, value, out);
    separator = ", ";
  }
  out << '\n';
}

void printGraph(const Graph &graph, llvm::raw_ostream &out) {
  out << "graph {\n";
  text::printStages(graph.timeUnit, graph.microbatches, graph.replicas,
                    graph.stages, graph.edges, out);
  for (Id node = 0; node < graph.nodes.size(); ++node)
    printNode(graph, node, out);
  out << "}\n";
}

//===----------------------------------------------------------------------===//
// Parsing
//===----------------------------------------------------------------------===//

namespace text {

static auto keyOf(const Node &node) {
  return std::tuple(node.stage, node.op, node.microbatch);
}

NodeNames::NodeNames(const Graph &from)
    : graph(from), sorted(from.nodes.size()) {
  for (Id i = 0; i < sorted.size(); ++i)
    sorted[i] = i;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](Id a, Id b) { return before(a, b); });
}

bool NodeNames::before(Id a, Id b) const {
  return keyOf(graph.nodes[a]) < keyOf(graph.nodes[b]);
}

std::optional<Id> NodeNames::find(const OpRef &ref) const {
  std::tuple key(ref.stage, ref.op, ref.microbatch);
  auto found = std::lower_bound(sorted.begin(), sorted.end(), key,
                                [&](Id node, const auto &wanted) {
                                  return keyOf(graph.nodes[node]) < wanted;
                                });
  if (found == sorted.end() || keyOf(graph.nodes[*found]) != key)
    return std::nullopt;
  return *found;
}

std::vector<Id> NodeNames::duplicates() const {
  std::vector<Id> result;
  for (size_t i = 1; i < sorted.size(); ++i)
    if (!before(sorted[i - 1], sorted[i]))
      result.push_back(sorted[i]);
  std::sort(result.begin(), result.end());
  return result;
}

namespace {

class GraphParser {
public:
  GraphParser(Lexer &lexerOfText, Graph &result)
      : lexer(lexerOfText), graph(result),
        stageLines(result.timeUnit, result.microbatches, result.replicas,
                   result.stages, result.edges) {}
  void parse();

private:
  /// A consumer whose node may come later.
  struct Use {
    OpRef ref;
    SourceLocation where;
  };

  bool parseNode();
  bool parseValue(Id producer);
  bool checkStages();
  bool checkNodes(const NodeNames &names);
  bool resolveUses(const NodeNames &names);

  Lexer &lexer;
  Graph &graph;
  StageLines stageLines;
  std::vector<SourceLocation> nodeLines;
  std::vector<bool> hasDuration; ///< per node
  std::vector<Use> uses;
};

} // namespace

void parseGraph(Lexer &lexer, Graph &graph) {
  GraphParser(lexer, graph).parse();
}

void GraphParser::parse() {
  unsigned errorsBefore = lexer.errorCount();
  parseBlock(lexer, lexer.previous(), [&] {
    std::optional<bool> stageLine = stageLines.parse(lexer);
    return stageLine ? *stageLine : parseNode();
  });
  // Follow-up faults would hide the first ones.
  if (lexer.errorCount() != errorsBefore || !checkStages())
    return;
  NodeNames names(graph);
  bool nodesGood = checkNodes(names);
  if (resolveUses(names) && nodesGood)
    graph.finalize();
}

bool GraphParser::parseNode() {
  SourceLocation where = lexer.here();
  OpRef ref = {};
  if (!parseOpName({lexer.peek().data(), lexer.peek().size()}))
    return lexer.unexpected("'time_unit', 'microbatches', 'replicas', 'stage', "
                            "'edge', an operation such as 0F3, or '}'");
  if (!lexer.takeOp(ref))
    return false;
  if (!isCompute(ref.op))
    return lexer.errorAt(where, isMessage(ref.op) ? "a message is no node of "
                                                    "a graph"
                                : isCopy(ref.op)  ? "a copy is no node of a "
                                                    "graph"
                                : isCollective(ref.op)
                                    ? "a collective is no node of a graph"
                                    : nameOf(ref) +
                                          " is no node of a graph, which has "
                                          "what computes a microbatch");
  auto node = static_cast<Id>(graph.nodes.size());
  graph.nodes.push_back({0, ref.stage, ref.microbatch, ref.op});
  nodeLines.push_back(where);
  hasDuration.push_back(!lexer.atEnd() && lexer.peek() != "->");
  if (hasDuration.back() &&
      !stageLines.takeTime(lexer, graph.nodes.back().duration))
    return false;
  if (lexer.atEnd())
    return true;
  if (!lexer.take("->"))
    return false;
  do
    if (!parseValue(node))
      return false;
  while (lexer.accept(","));
  return true;
}

bool GraphParser::parseValue(Id producer) {
  const auto *kind = llvm::find(kValueKinds, lexer.peek());
  if (kind == std::end(kValueKinds))
    return lexer.unexpected(
        "'activation', 'gradient', 'saved', 'kept', 'checkpoint' or 'order'");
  lexer.accept(*kind);
  graph.values.push_back({0, producer, static_cast<Id>(uses.size()),
                          static_cast<ValueKind>(kind - kValueKinds)});
  Bytes &bytes = graph.values.back().bytes;
  if (lexer.peek() != "[" &&
      !lexer.takeNumber(bytes, "a number of bytes or '['", kMaxBytes))
    return false;
  if (!lexer.take("["))
    return false;
  if (lexer.accept("]"))
    return true;
  do {
    Use &use = uses.emplace_back(Use{{}, lexer.here()});
    if (!lexer.takeOp(use.ref))
      return false;
  } while (lexer.accept(","));
  return lexer.take("]");
}

/// Stages and edges are what they are in a plan.
bool GraphParser::checkStages() {
  Plan plan;
  plan.ranks.resize(1);
  plan.timeUnit = graph.timeUnit;
  plan.microbatches = graph.microbatches;
  plan.replicas = graph.replicas;
  plan.stages.swap(graph.stages);
  plan.edges.swap(graph.edges);
  SectionFaults faults(lexer);
  findHeaderFaults(plan, [&](const StructureFault &fault) {
    if (fault.part != StructureFault::Part::Plan) // a graph may be empty
      faults.tell(stageLines.at(fault), describe(plan, 0, fault));
    return true;
  });
  faults.finish();
  plan.stages.swap(graph.stages);
  plan.edges.swap(graph.edges);
  return faults.none();
}

bool GraphParser::checkNodes(const NodeNames &names) {
  SectionFaults faults(lexer);
  for (Id i = 0; i < graph.nodes.size(); ++i) {
    Node &node = graph.nodes[i];
    if (node.stage >= graph.stages.size())
      faults.tell(nodeLines[i],
                  nameOf(node) + " belongs to " +
                      tooHigh("stage", node.stage, graph.stages.size()));
    else if (node.microbatch >= graph.microbatches)
      faults.tell(nodeLines[i], nameOf(node) + " belongs to " +
                                    tooHigh("microbatch", node.microbatch,
                                            graph.microbatches));
    else if (!hasDuration[i])
      node.duration = graph.stages[node.stage].duration(node.op);
  }
  for (Id i : names.duplicates())
    faults.tell(nodeLines[i],
                nameOf(graph.nodes[i]) + " stands here a second time");
  faults.finish();
  return faults.none();
}

bool GraphParser::resolveUses(const NodeNames &names) {
  SectionFaults faults(lexer);
  graph.uses.reserve(uses.size());
  for (const Use &use : uses) {
    std::optional<Id> node = names.find(use.ref);
    if (!node)
      faults.tell(use.where, "there is no node " + nameOf(use.ref));
    graph.uses.push_back(node.value_or(0));
  }
  faults.finish();
  return faults.none();
}

} // namespace text
} // namespace sluice
