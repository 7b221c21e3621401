#include "ir/PlanFile.h"
#include "ir/text/Text.h"
#include "tests/Catch.h"
#include "tests/ir/PlanFilePlans.h"

#include <algorithm>

using namespace sluice;
using namespace sluice::testing;

static std::string print(const IrText &ir) {
  std::string text;
  llvm::raw_string_ostream out(text);
  printIr(ir, out);
  return text;
}

/// A graph over the stages of a random plan: any nodes, values and uses.
static Graph randomGraph(std::mt19937_64 &random) {
  Plan plan = randomPlan(random);
  Graph graph;
  graph.stages = plan.stages;
  graph.edges = plan.edges;
  graph.microbatches = plan.microbatches;
  graph.replicas = plan.replicas;
  graph.timeUnit = plan.timeUnit;
  for (Id stage = 0; stage < graph.stages.size(); ++stage)
    for (Id microbatch = 0; microbatch < graph.microbatches; ++microbatch)
      for (Op op : {Op::Forward, Op::Backward, Op::BackwardInput,
                    Op::BackwardWeight, Op::Recompute})
        if (random() % 3 == 0)
          graph.nodes.push_back({random() % 2 != 0
                                     ? graph.stages[stage].duration(op)
                                     : static_cast<Ticks>(random() % 1000),
                                 stage, microbatch, op});
  std::shuffle(graph.nodes.begin(), graph.nodes.end(), random);
  for (Id node = 0; node < graph.nodes.size(); ++node)
    for (uint64_t i = random() % 4; i > 0; --i) {
      graph.values.push_back({random() % 3, node,
                              static_cast<Id>(graph.uses.size()),
                              static_cast<ValueKind>(random() % 6)});
      for (uint64_t j = random() % 3; j > 0; --j)
        graph.uses.push_back(static_cast<Id>(random() % graph.nodes.size()));
    }
  graph.finalize();
  return graph;
}

static Schedule randomSchedule(const Graph &graph, std::mt19937_64 &random) {
  Schedule schedule;
  schedule.name = random() % 2 != 0 ? "1f1b" : "";
  for (Id node = 0; node < graph.nodes.size(); ++node)
    schedule.order.push_back(node);
  std::shuffle(schedule.order.begin(), schedule.order.end(), random);
  schedule.firstOfRank = {0};
  for (uint64_t ranks = 1 + random() % 4; ranks > 1; --ranks)
    schedule.firstOfRank.push_back(static_cast<Id>(
        schedule.firstOfRank.back() +
        random() % (schedule.order.size() - schedule.firstOfRank.back() + 1)));
  schedule.firstOfRank.push_back(static_cast<Id>(schedule.order.size()));
  if (random() % 2 != 0)
    schedule.warmup.assign(schedule.ranks(), 3);
  return schedule;
}

static bool sameNode(const Node &a, const Node &b) {
  return a.duration == b.duration && a.stage == b.stage &&
         a.microbatch == b.microbatch && a.op == b.op;
}

static bool sameValue(const Value &a, const Value &b) {
  return a.bytes == b.bytes && a.producer == b.producer &&
         a.firstUse == b.firstUse && a.kind == b.kind;
}

TEST_CASE("text: graphs and schedules survive their text") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    IrText ir;
    ir.graph = randomGraph(random);
    ir.schedule = randomSchedule(*ir.graph, random);
    std::string text = print(ir);
    Diagnostics diagnostics;
    std::optional<IrText> read = parseIr(text, "a.ir", diagnostics);
    INFO(text << diagnostics.render());
    REQUIRE(read.has_value());
    REQUIRE(print(*read) == text);
    const Graph &a = *ir.graph, &b = *read->graph;
    REQUIRE(std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(),
                       b.nodes.end(), sameNode));
    REQUIRE(std::equal(a.values.begin(), a.values.end(), b.values.begin(),
                       b.values.end(), sameValue));
    REQUIRE(a.uses == b.uses);
    for (Id node = 0; node < a.nodes.size(); ++node) {
      REQUIRE(a.outputs(node) == b.outputs(node));
      REQUIRE(std::equal(a.inputs(node).begin(), a.inputs(node).end(),
                         b.inputs(node).begin(), b.inputs(node).end()));
    }
    REQUIRE(read->schedule->name == ir.schedule->name);
    REQUIRE(read->schedule->order == ir.schedule->order);
    REQUIRE(read->schedule->firstOfRank == ir.schedule->firstOfRank);
    REQUIRE(read->schedule->warmup == ir.schedule->warmup);
  }
}

// Through the file both ways, so that a number which the text forgets shows in
// the hash.
TEST_CASE("text: plans survive their text") {
  TemporaryFolder folder;
  std::mt19937_64 random(4);
  for (int i = 0; i < 300; ++i) {
    Plan plan = i == 0 ? smallPlan() : randomPlan(random);
    std::string text = textOf(plan);
    Diagnostics diagnostics;
    std::optional<IrText> read = parseIr(text, "a.ir", diagnostics);
    INFO(text << diagnostics.render());
    REQUIRE(read.has_value());
    REQUIRE(textOf(*read->plan) == text);
    REQUIRE(writePlanFile(plan, folder.file("a.plan")).ok());
    REQUIRE(writePlanFile(*read->plan, folder.file("b.plan")).ok());
    REQUIRE(readFile(folder.file("a.plan")) == readFile(folder.file("b.plan")));
  }
}

static const char *const kPieces[] = {
    "}",          "{",         "\n",    "graph {\n", "plan {\n",
    "rank 0 {\n", "->",        "[",     "]",         "\"",
    "\\",         ",",         "0F0",   "0SEND_F0",  "99999999999999999999",
    "4294967295", "1.0000001", "stage", "buffer",    "wait 0",
    "group 1",    "\xff",      "#"};

static std::string mutate(std::string text, std::mt19937_64 &random) {
  for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
    size_t at = random() % (text.size() + 1);
    size_t length = std::min<size_t>(random() % 6, text.size() - at);
    switch (random() % 4) {
    case 0:
      text.erase(at, length);
      break;
    case 1:
      text.insert(at, kPieces[random() % std::size(kPieces)]);
      break;
    case 2: // a line again, or somewhere else
      text.insert(at, text.substr(random() % (text.size() + 1), 40));
      break;
    case 3:
      if (at < text.size())
        text[at] = static_cast<char>(random());
      break;
    }
  }
  return text;
}

TEST_CASE("text: mutated texts never fool the reader") {
  std::mt19937_64 random(5);
  unsigned accepted = 0, refused = 0;
  for (int round = 0; round < 100; ++round) {
    IrText ir;
    if (round % 2 == 0) {
      ir.graph = randomGraph(random);
      ir.schedule = randomSchedule(*ir.graph, random);
    }
    ir.plan = randomPlan(random);
    std::string text = print(ir);
    for (int i = 0; i < 40; ++i) {
      std::string mutated = mutate(text, random);
      Diagnostics diagnostics;
      std::optional<IrText> read = parseIr(mutated, "a.ir", diagnostics);
      REQUIRE(read.has_value() == !diagnostics.hasErrors());
      if (!read) {
        ++refused;
        REQUIRE(diagnostics.render().starts_with("a.ir:"));
        continue;
      }
      ++accepted;
      std::string printed = print(*read);
      Diagnostics again;
      std::optional<IrText> reread = parseIr(printed, "b.ir", again);
      INFO(mutated << printed << again.render());
      REQUIRE(reread.has_value());
      REQUIRE(print(*reread) == printed);
    }
  }
  CHECK(accepted > 50);
  CHECK(refused > 1000);
}

TEST_CASE("text: a text full of faults is left in the end") {
  std::string text = "sluice-ir 1\ngraph {\n";
  for (int i = 0; i < 5000; ++i)
    text += "nonsense\n";
  Diagnostics diagnostics;
  CHECK_FALSE(parseIr(text, "a.ir", diagnostics).has_value());
  // A thousand, the one below, and the brace that is not closed.
  CHECK(diagnostics.errorCount() == 1002);
  CHECK(diagnostics.render().find("a.ir:1003:1: error: too many faults, the "
                                  "rest is not read\n") != std::string::npos);
}
