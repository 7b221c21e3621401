#include "compiler/emit/Chart.h"
#include "compiler/emit/Emit.h"
#include "tests/Catch.h"
#include "tests/compiler/ReportForTests.h"

#include "llvm/Support/JSON.h"

using namespace sluice;
using namespace sluice::tests;

namespace {

template <typename Emit> std::string textOf(Emit emit) {
  std::string text;
  llvm::raw_string_ostream out(text);
  emit(out);
  return text;
}

/// Bytes, costs in seconds and a latency: every part of a report is filled.
Job fullJob() {
  Chain chain = evenChain(4, 8, 1, 2);
  for (Stage &stage : chain.stages) {
    stage.forward = 18'522'000'000; // 18.522 ms
    stage.backwardInput = 18'086'000'000;
    stage.backwardWeight = 9'337'000'000;
    stage.parameterCount = stage.activeParameterCount = 84'000'000;
    stage.bytes = {168'000'000, 336'000'000, 1'008'000'000,
                   1 << 30,     1 << 28,     1 << 24};
  }
  chain.stages[1].backwardInput += 1'000'000'000;
  chain.messageBytes = 1 << 22;
  Graph graph = chainGraph(chain);
  graph.timeUnit = TimeUnit::Seconds;
  return Job(graph, oneFOneB(chain), {5'000'000, 50'000'000'000});
}

Report fullReport() {
  Job job = fullJob();
  job.plan.memoryLimit = Bytes(8) << 30;
  job.plan.memoryAllowance = Bytes(1) << 29;
  ReportInput input{"gpt",      job.graph,   job.schedule,
                    job.timing, job.network, &job.plan};
  input.warnings = {"spec.yaml:3: a key without effect"};
  return buildReport(input);
}

llvm::json::Object parsed(const std::string &text) {
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(text);
  REQUIRE(static_cast<bool>(value));
  REQUIRE(value->getAsObject());
  return *value->getAsObject();
}

} // namespace

TEST_CASE("emit: operations, a line a rank") {
  Chain chain = evenChain(4, 8, 1, 1);
  Job job(chain, oneFOneB(chain));
  std::string text =
      textOf([&](auto &out) { emitOps(job.graph, job.schedule, out); });
  CHECK(text ==
        "rank 0: 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 "
        "0B7\n"
        "rank 1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 "
        "1B7\n"
        "rank 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 "
        "2B7\n"
        "rank 3: 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 "
        "3B7\n");
}

TEST_CASE("emit: a PyTorch CSV reads back as the same order") {
  for (bool split : {false, true}) {
    Chain chain = evenChain(3, 4, 1, 2, split ? 0.5 : 0);
    chain.split = split;
    Job job(chain, oneFOneB(chain));
    std::string text =
        textOf([&](auto &out) { emitTorchCsv(job.graph, job.schedule, out); });
    // Read as PyTorch does: rows by line, cells by comma, no header.
    std::vector<std::string> cells, expected;
    std::istringstream file(text);
    Id rank = 0;
    for (std::string row; std::getline(file, row); ++rank) {
      std::istringstream line(row);
      for (std::string cell; std::getline(line, cell, ',');)
        cells.push_back(cell);
    }
    CHECK(rank == 3);
    CHECK(text.find('\r') == std::string::npos);
    CHECK(text.back() == '\n');
    for (Id node : job.schedule.order) {
      const Node &n = job.graph.nodes[node];
      const char *type = n.op == Op::Forward         ? "F"
                         : n.op == Op::Backward      ? "B"
                         : n.op == Op::BackwardInput ? "I"
                                                     : "W";
      expected.push_back(std::to_string(n.stage) + type +
                         std::to_string(n.microbatch));
    }
    CHECK(cells == expected);
  }
}

TEST_CASE("emit: a CSV has no cell for a recompute") {
  Graph graph;
  graph.stages.resize(1);
  graph.microbatches = 1;
  graph.nodes = {{kUnit, 0, 0, Op::Forward},
                 {kUnit, 0, 0, Op::Recompute},
                 {kUnit, 0, 0, Op::Backward}};
  graph.finalize();
  Schedule schedule;
  schedule.order = {0, 1, 2};
  schedule.firstOfRank = {0, 3, 3};
  auto csv = [&](auto &out) { emitTorchCsv(graph, schedule, out); };
  auto ops = [&](auto &out) { emitOps(graph, schedule, out); };
  CHECK(textOf(csv) == "0F0,0B0\n\n");
  CHECK(textOf(ops) == "rank 0: 0F0 0R0 0B0\nrank 1:\n");
}

TEST_CASE("emit: a report as JSON keeps its contract") {
  std::string text =
      textOf([](auto &out) { emitReportJson(fullReport(), out); });
  llvm::json::Object report = parsed(text);
  for (const char *key :
       {"model", "schedule", "ranks", "virtual_stages", "stages",
        "microbatches", "time_unit", "makespan", "span", "plan_makespan",
        "bubble_fraction", "objective", "lower_bound", "per_rank",
        "critical_path", "notes", "pairs", "warnings"}) {
    CAPTURE(key);
    CHECK(report.get(key));
  }
  CHECK(report.getString("time_unit") == llvm::StringRef("s"));
  CHECK(report.getString("objective") == llvm::StringRef("makespan"));
  CHECK(report.getObject("model")->getInteger("parameters") == 336'000'000);
  REQUIRE(report.getArray("per_rank")->size() == 4);
  for (const llvm::json::Value &each : *report.getArray("per_rank")) {
    const llvm::json::Object &rank = *each.getAsObject();
    for (const char *key :
         {"rank", "stages", "layers", "warmup", "forwards_before_backward",
          "peak_in_flight", "peak_activation", "busy", "idle", "peak_bytes"})
      CHECK(rank.get(key));
    const llvm::json::Object &memory = *rank.getObject("memory");
    int64_t sum = 0;
    for (const char *key : {"parameters", "gradients", "optimizer",
                            "activations", "communication", "workspace"})
      sum += *memory.getInteger(key);
    CHECK(sum == *rank.getInteger("peak_bytes"));
    CHECK(memory.size() == 6);
  }
  // Rank 1 is the slowest: 8 x 46.945 ms of work.
  const auto &second = *(*report.getArray("per_rank"))[1].getAsObject();
  CHECK(text.find("\"busy\": 0.37556,") != std::string::npos);
  CHECK(second.getInteger("peak_in_flight") == 3);
  checkGolden("report/full.json", text);
}

TEST_CASE("emit: a report without plan or rule says null") {
  Chain chain = evenChain(2, 2, 1, 1);
  Job job(chain, gpipe(chain));
  Report report =
      buildReport({"chain", job.graph, job.schedule, job.timing, job.network});
  llvm::json::Object json =
      parsed(textOf([&](auto &out) { emitReportJson(report, out); }));
  CHECK(json.get("plan_makespan")->getAsNull());
  const auto &rank = *(*json.getArray("per_rank"))[0].getAsObject();
  CHECK(rank.get("warmup")->getAsNull());
  CHECK(rank.getObject("memory")->getInteger("activations") == 0);
}

TEST_CASE("emit: names from an input stay valid JSON") {
  Chain chain = evenChain(1, 1, 1, 1);
  Job job(chain, naive(chain));
  ReportInput input{"a\"\x01\xff<b>", job.graph, job.schedule, job.timing,
                    job.network};
  Report report = buildReport(input);
  llvm::json::Object json =
      parsed(textOf([&](auto &out) { emitReportJson(report, out); }));
  CHECK(json.getObject("model")->getString("name") ==
        llvm::StringRef("a\"\\x01\\xff<b>"));
}

TEST_CASE("emit: bars of one line and of two") {
  using Lines = std::vector<std::string>;
  CHECK(barChart({0, 1, 4, 8}, 8, 1) == Lines{" ▁▄█"});
  CHECK(barChart({0, 1, 4, 8}, 8, 2) == Lines{"   █", " ▂██"});
  CHECK(barChart({}, 8, 2) == Lines{"", ""});
}

TEST_CASE("emit: a report for people") {
  checkGolden("report/full.txt",
              textOf([](auto &out) { emitReportText(fullReport(), out); }));
  Chain chain = evenChain(4, 1, 1, 1);
  Report report = Job(chain, naive(chain)).report();
  checkGolden("report/naive.txt",
              textOf([&](auto &out) { emitReportText(report, out); }));
}

TEST_CASE("emit: a report tells of pairs and of ranks that leave apart") {
  // Rank 0 runs 0F1 together with 0B0, from 5 to 8: 3 for 1 + 3 of their own.
  Chain chain = evenChain(2, 2, 1, 3);
  chain.stages[0].overlapSaving = kUnit;
  Schedule schedule = oneFOneB(chain);
  auto first = std::find(schedule.order.begin(), schedule.order.end(),
                         chainNode(chain, Op::Forward, 0, 1));
  schedule.joined.resize(schedule.order.size());
  schedule.joined[first - schedule.order.begin()] = true;
  Job job(chain, schedule);
  Report report = job.report();
  CHECK(report.pairs == 1);
  CHECK(report.pairsSaved == kUnit);
  CHECK(report.makespan == report.span);
  CHECK(report.notes.empty());
  std::string text = textOf([&](auto &out) { emitReportText(report, out); });
  CHECK(text.find("pairs           1 pair runs together, which saves 1 of "
                  "computing\n") != std::string::npos);
  CHECK(text.find("(0F1;0B0)") != std::string::npos);
  std::string json = textOf([&](auto &out) { emitReportJson(report, out); });
  CHECK(json.find("\"pairs\": {\n    \"count\": 1,\n    \"saved\": 1\n") !=
        std::string::npos);

  // Forwards only: rank 1 begins and ends a unit after rank 0.
  Graph graph;
  graph.stages.resize(2);
  graph.microbatches = 1;
  for (Stage &stage : graph.stages)
    stage.backward = false;
  graph.nodes = {{kUnit, 0, 0, Op::Forward}, {kUnit, 1, 0, Op::Forward}};
  graph.values = {{0, 0, 0, ValueKind::Activation}};
  graph.uses = {1};
  graph.finalize();
  Schedule order;
  order.order = {0, 1};
  order.firstOfRank = {0, 1, 2};
  std::optional<ScheduleTiming> timing = simulateSchedule(graph, order, {});
  REQUIRE(timing);
  Network network;
  Report apart = buildReport({"chain", graph, order, *timing, network});
  REQUIRE(apart.notes.size() == 1);
  CHECK(apart.notes[0] ==
        "ranks begin and end the step at different times: from its first start "
        "to its last end none takes more than the span, 1 of the makespan's 2; "
        "the span counts where steps follow one another without a barrier; "
        "gradient clipping is a barrier between steps: with it span buys "
        "nothing");
}

TEST_CASE("emit: a Chrome trace has an event for each operation") {
  Timeline timeline = fullJob().timeline();
  llvm::json::Object trace =
      parsed(textOf([&](auto &out) { emitChromeTrace(timeline, out); }));
  std::vector<std::string> expected, found;
  for (const TimelineSpan &span : timeline.spans)
    expected.push_back(opName(span.op, span.stage, span.microbatch) + " " +
                       std::to_string(span.rank) + " " +
                       std::to_string(span.stream) + " " +
                       std::to_string(span.start / 1'000'000) + " " +
                       std::to_string((span.end - span.start) / 1'000'000));
  for (const llvm::json::Value &each : *trace.getArray("traceEvents")) {
    const llvm::json::Object &event = *each.getAsObject();
    if (*event.getString("ph") != "X")
      continue;
    auto whole = [&](const char *key) {
      return std::to_string(static_cast<int64_t>(*event.getNumber(key)));
    };
    found.push_back(event.getString("name")->str() + " " + whole("pid") + " " +
                    whole("tid") + " " + whole("ts") + " " + whole("dur"));
    CHECK(event.getObject("args")->getInteger("microbatch"));
  }
  CHECK(found == expected);

  Chain small = evenChain(2, 1, 1, 1.5);
  checkGolden("emit/trace.json", textOf([&](auto &out) {
                emitChromeTrace(Job(small, naive(small)).timeline(), out);
              }));
}
