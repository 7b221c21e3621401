//===- tests/compiler/SchedulesOrders.cpp - Orders of the user's own -----===//
//
// What any schedule prints is read back to the same step, from the spec and
// from a CSV; each fault of such orders is told whole and at its place.
//
//===----------------------------------------------------------------------===//
#include "tests/compiler/ScheduleForTests.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace sluice;
using namespace sluice::tests;

namespace {

/// A file beside which a spec stands; gone afterwards.
class CsvFile {
public:
  explicit CsvFile(const std::string &text)
      : folder(std::filesystem::temp_directory_path() /
               ("sluice-orders-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "order.csv", std::ios::binary) << text;
  }
  ~CsvFile() { std::filesystem::remove_all(folder); }
  std::string spec() const { return (folder / "job.yaml").string(); }

private:
  std::filesystem::path folder;
};

/// The spec of `of` with `schedule` for its schedule and no virtual stages.
std::string withSchedule(ScheduleCase of, const std::string &schedule) {
  of.schedule = schedule;
  of.keys = "";
  std::string text = of.text(), chunks = ", virtual_stages: ";
  size_t at = text.find(chunks);
  return text.erase(at, text.find(',', at + 1) - at);
}

std::string listed(const std::vector<std::string> &orders) {
  std::string list;
  for (const std::string &order : orders)
    list += (list.empty() ? "\"" : ", \"") + order + "\"";
  return "{orders: [" + list + "]}";
}

void checkSame(const Compiled &read, const Compiled &written) {
  INFO(read.diagnostics.render());
  REQUIRE(read.ok);
  Report is = read.report(), was = written.report();
  CHECK(is.makespan == was.makespan);
  CHECK(is.span == was.span);
  CHECK(is.planMakespan == was.planMakespan);
  CHECK(is.schedule == "orders");
  CHECK(is.virtualStages == was.virtualStages);
  CHECK(peaksOf(is) == peaksOf(was));
  CHECK(read.orders() == written.orders());
}

void checkReadsBack(const ScheduleCase &of) {
  INFO(of.text());
  Compiled written(of.text());
  REQUIRE(written.ok);
  checkSame(Compiled(withSchedule(of, listed(written.orders()))), written);
  std::string csv;
  llvm::raw_string_ostream out(csv);
  emitTorchCsv(*written.compilation.graph, *written.compilation.schedule, out);
  CsvFile file(csv);
  checkSame(Compiled(withSchedule(of, "{csv: order.csv}"), fullPipeline(),
                     file.spec()),
            written);
}
} // namespace

TEST_CASE("schedule orders: what is printed is read back") {
  for (const ScheduleInfo &info : allSchedules()) {
    // Two copies of a stage, and a stage without its backward, cannot be said.
    if (info.lanes == Lanes::Copies || info.backward == BackwardRule::None)
      continue;
    for (uint32_t p : {1, 2, 4, 5})
      for (uint32_t m : {2 * p, 2 * p + 3}) {
        uint32_t chunks = info.chunks != 0 ? info.chunks : 2;
        ScheduleCase of{std::string(info.text), p, m, chunks, {3, 2, 1}};
        of.pair = 5;
        of.latency = 0.5;
        checkReadsBack(of);
        if (info.backward == BackwardRule::Either) {
          of.keys = ", backward: split";
          checkReadsBack(of);
        }
      }
  }
}

namespace {

std::string section(uint32_t ranks, const std::string &rest) {
  return "sluice: 1\nmodel: {layers: [{name: l, repeat: 4, forward: 1, "
         "backward: 2}]}\npipeline: {ranks: " +
         std::to_string(ranks) + ", microbatches: 2, schedule: " + rest + "}\n";
}

/// Of one rank, two microbatches, in a spec: its order is at 3:59.
std::string told(const std::string &order) {
  return toldBy(Compiled(section(1, "{orders: [\"" + order + "\"]}")));
}

/// The same of a CSV.
std::string toldOfCsv(uint32_t ranks, const std::string &csv) {
  CsvFile file(csv);
  Compiled compiled(section(ranks, "{csv: order.csv}"), fullPipeline(),
                    file.spec());
  return toldBy(compiled);
}

std::string notAnOperation(const std::string &cell) {
  return "error: '" + cell +
         "' is not an operation; they are written 0F3 (stage, one of F, B, I, "
         "W, microbatch)\n";
}
} // namespace

TEST_CASE("schedule orders: cells that are no operation") {
  CHECK(told("0F0 0X1 F0 0F 0F1x 0UNSHARD 0UNSHARD1 00F1") ==
        "3:59: " + notAnOperation("0X1") +
            "3:59: error: 'F0' is not an operation; its stage is missing, "
            "which stands first, as in 0F0\n"
            "3:59: " +
            notAnOperation("0F") + "3:59: " + notAnOperation("0F1x") +
            "3:59: error: '0UNSHARD1' is not an operation; it is of a stage, "
            "without a microbatch: 0UNSHARD\n" +
            "3:59: error: '00F1' is not an operation; numbers have no leading "
            "zeros "
            "and are at most 2147483647\n");
  CHECK(told("0F0 0R0 0STEP") ==
        "3:59: " + notAnOperation("0R0") + "3:59: " + notAnOperation("0STEP"));
  CHECK(told("0F0 0SEND_F0 0F1 0RECV_B0 0B0 0B1") ==
        "3:59: warning: 0SEND_F0 and all other messages of the orders are "
        "replaced by the compiler's own\n");
  CHECK(told("(0F1;0B0)") ==
        "3:59: error: '(0F1;0B0)' is not an operation; behind a group stands "
        "what it is: (0F1;0B0)BATCH_P2P of messages, (0F3;7B1)OVERLAP_F_B of a "
        "forward and a backward that run together\n");
  CHECK(told("(0F0;0B0;0B1)OVERLAP_F_B") ==
        "3:59: error: '(0F0;0B0;0B1)OVERLAP_F_B' is not a pair of two "
        "operations\n");
}

TEST_CASE("schedule orders: numbers out of range") {
  CHECK(told("0F0 0F1 0F2 0F3 0F4") ==
        "3:59: error: 0F2 is of microbatch 2, there are 2 "
        "(pipeline.microbatches)\n"
        "note: the highest in the orders is 4\n");
  CHECK(told("0F0 0F2") == "3:59: error: 0F2 is of microbatch 2, there are 2 "
                           "(pipeline.microbatches)\n");
  CHECK(toldBy(Compiled(section(1, "{orders: [\"0F0 2F0\"]}, "
                                   "virtual_stages: 2"))) ==
        "3:59: error: 2F0 is of stage 2, there are 2\n");
  CHECK(toldBy(Compiled(section(1, "{orders: [\"0F0\", \"1F0\"]}"))) ==
        "3:39: error: there are orders for 2 ranks, not for 1 "
        "(pipeline.ranks)\n");
}

static const std::string oneRank =
    "note: the operations of a stage stand on one rank; orders with two copies "
    "of a stage have no text\n";

TEST_CASE("schedule orders: a stage on two ranks") {
  CHECK(toldBy(Compiled(section(2, "{orders: [\"0F0 0B0\", \"1F0 0F1\"]}"))) ==
        "3:70: error: 0F1 is on rank 1, stage 0 before on rank 0\n" + oneRank);
}

TEST_CASE("schedule orders: operations twice") {
  std::string other = "3:59: note: the other is here\n";
  CHECK(told("0F0 0F0 0F1 0B0 0B0 0I1 0I1 0W1 0W1") ==
        "3:59: error: 0F0 stands twice\n" + other +
            "3:59: error: 0B0 stands twice\n" + other +
            "3:59: error: 0I1 stands twice\n" + other +
            "3:59: error: 0W1 stands twice\n" + other);
  std::string both = ": a backward is whole or split, not both\n";
  CHECK(told("0F0 0F1 0I0 0B0 0W0 0B1") ==
        "3:59: error: 0B0 stands beside 0I0" + both + other);
  CHECK(told("0F0 0F1 0B0 0I0 0B1 0W1") ==
        "3:59: error: 0I0 stands beside 0B0" + both + other +
            "3:59: error: 0W1 stands beside 0B1" + both + other);
}

TEST_CASE("schedule orders: what is missing or can never run") {
  CHECK(told("0F0 0F1 0B0") ==
        "3:39: error: missing: 0B1 is missing from the schedule\n");
  CHECK(told("0F0 0F1 0I0 0B1") ==
        "3:39: error: missing: 0W0 is missing from the schedule\n");
  CHECK(told("0F0 0F1 0W0 0I0 0B1") ==
        "3:39: error: deadlock: 0W0 on rank 0 needs 0I0 on rank 0, which comes "
        "after it\n");
}

TEST_CASE("schedule orders: a circle names a pair as one") {
  Compiled compiled("sluice: 1\nmodel: {layers: [{repeat: 4, forward: 1, "
                    "backward: 1}]}\npipeline: {ranks: 2, virtual_stages: 2, "
                    "microbatches: 2, schedule: {orders: [\"0F0 "
                    "(0F1;3B0)OVERLAP_F_B 3F0 3F1 3B1 0B0 0B1\", \"1F0 2F0 "
                    "1F1 2F1 2B0 2B1 1B0 1B1\"]}}\n");
  CHECK(compiled.diagnostics.render().find(
            "deadlock: (0F1;3B0)OVERLAP_F_B on rank 0 needs 3F0 on rank 0, "
            "which comes after it\n") != std::string::npos);
}

TEST_CASE("schedule orders: pairs that take no time have a critical path") {
  Compiled compiled(
      "sluice: 1\nmodel: {layers: [{forward: 0, backward_input: 0, "
      "backward_weight: 0}, {forward: 0, backward_input: 1, backward_weight: "
      "1}]}\npipeline: {ranks: 2, microbatches: 4, schedule: dualpipe, layout: "
      "[1, 1]}\ncluster: {link: {latency: 1}}\n");
  REQUIRE(compiled.ok);
  Report report = compiled.report();
  CHECK(report.criticalPath.size() <= compiled.compilation.graph->nodes.size());
  CHECK(!report.criticalPath.empty());
}

TEST_CASE(
    "schedule orders: stages of no time and bytes leave the bound right") {
  for (const char *schedule : {"hanayo", "interleaved-1f1b", "breadth-first"})
    for (const char *limit : {"1536", "3072", "6144", "12288"}) {
      Compiled compiled(
          std::string("sluice: 1\nmodel: {layers: [{forward: 0, backward: 0}, "
                      "{forward: 5, backward: 7, activation_bytes: 700}, "
                      "{forward: 2, backward_input: 3, backward_weight: 1, "
                      "activation_bytes: 300, kept_for_weight: 100}, {forward: "
                      "0, backward: 0}]}\npipeline: {ranks: 1, virtual_stages: "
                      "4, microbatches: 4, schedule: ") +
          schedule + ", memory_limit: " + limit + "}\n");
      if (compiled.ok)
        CHECK(compiled.report().lowerBound <= compiled.report().makespan);
    }
}

TEST_CASE("schedule orders: at least one operation") {
  CHECK(told(" ") == "3:39: error: the orders name no operation\n");
}

TEST_CASE("schedule orders: keys beside them") {
  CHECK(toldBy(Compiled(
            section(1, "{orders: [\"0F0 0F1 0B0 0B1\"]}, placement: linear, "
                       "group_size: 2, backward: split, warmup: [1]"))) ==
        "3:91: warning: pipeline.placement has no effect with schedule "
        "orders\n"
        "3:111: warning: pipeline.group_size has no effect with schedule "
        "orders\n"
        "3:124: warning: pipeline.backward has no effect with schedule "
        "orders\n"
        "3:139: warning: pipeline.warmup has no effect with schedule "
        "orders\n");
  CHECK(toldBy(Compiled(section(1, "{}"))) ==
        "3:39: error: pipeline.schedule must have one of csv and orders, not "
        "none\n");
}

TEST_CASE("schedule orders: faults of a CSV have their row and column") {
  CHECK(toldOfCsv(2, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n").empty());
  // Blanks, empty cells and the line ends of Windows are as nothing.
  CHECK(toldOfCsv(2, "0F0, 0F1,,0B0 ,0B1\r\n1F0,1B0,1F1,1B1\r\n").empty());
  CHECK(toldOfCsv(2, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1").empty());
  CHECK(toldOfCsv(2, "0F0,0F1,0X0,0B1\n1F0, 1F5,1B0,1F0\n") ==
        "1:9: " + notAnOperation("0X0") +
            "2:6: error: 1F5 is of microbatch 5, there are 2 "
            "(pipeline.microbatches)\n"
            "2:14: error: 1F0 stands twice\n"
            "2:1: note: the other is here\n");
  CHECK(toldOfCsv(2, "0F0,0F1,0B0,0B1\n1F0,1B0,(1F1;0B5)OVERLAP_F_B,0I0\n") ==
        "2:14: error: 0B5 is of microbatch 5, there are 2 "
        "(pipeline.microbatches)\n"
        "2:30: error: 0I0 is on rank 1, stage 0 before on rank 0\n" +
            oneRank);
  CHECK(toldOfCsv(2, "0F0,0F1,0B0,0B1\n") ==
        "3:39: error: there are orders for 1 rank, not for 2 "
        "(pipeline.ranks)\n");
  CHECK(toldBy(Compiled(section(1, "{csv: no-such-file.csv}"))) ==
        "3:55: error: cannot open 'no-such-file.csv': No such file or "
        "directory\n");
}
