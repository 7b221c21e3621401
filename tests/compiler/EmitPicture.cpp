#include "compiler/emit/Emit.h"
#include "tests/Catch.h"
#include "tests/compiler/ReportForTests.h"

#include <cmath>
#include <map>
#include <regex>
#include <set>

using namespace sluice;
using namespace sluice::tests;

namespace {

std::string svgOf(const Timeline &timeline,
                  const PictureOptions &options = {}) {
  std::string text;
  llvm::raw_string_ostream out(text);
  emitSvg(timeline, out, options);
  return text;
}

/// What a cell of the picture says and where it is.
struct Cell {
  std::string title, number, fill;
  double x, y, width;
};

/// The labelled cells, in order.
std::vector<Cell> cellsOf(const std::string &svg) {
  static const std::regex form(
      "<rect x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\" "
      "height=\"[0-9.]+\" fill=\"(#[0-9a-f]+)\"><title>([^<]*)</title></rect>"
      "<text[^>]*>([0-9]+)</text>");
  std::vector<Cell> cells;
  for (std::sregex_iterator it(svg.begin(), svg.end(), form), end; it != end;
       ++it)
    cells.push_back({(*it)[5], (*it)[6], (*it)[4], std::stod((*it)[1]),
                     std::stod((*it)[2]), std::stod((*it)[3])});
  return cells;
}

/// Tags are balanced and nothing is unescaped: enough for what is written here.
/// No regular expression: one would recurse for every byte of a long path.
void checkWellFormed(const std::string &svg) {
  std::vector<std::string> open;
  size_t at = 0;
  for (size_t begin; (begin = svg.find('<', at)) != std::string::npos;) {
    CHECK(svg.find('>', at) > begin);
    at = svg.find_first_of("<>", begin + 1);
    REQUIRE(at != std::string::npos);
    REQUIRE(svg[at] == '>');
    std::string tag = svg.substr(begin + 1, at++ - begin - 1);
    bool closes = tag.starts_with("/"), isEmpty = tag.ends_with("/");
    size_t first = closes ? 1 : 0;
    std::string name = tag.substr(
        first,
        tag.find_first_not_of("abcdefghijklmnopqrstuvwxyz", first) - first);
    REQUIRE_FALSE(name.empty());
    if (closes) {
      REQUIRE_FALSE(open.empty());
      CHECK(open.back() == name);
      open.pop_back();
    } else if (!isEmpty) {
      open.push_back(name);
    }
  }
  CHECK(svg.find('>', at) == std::string::npos);
  CHECK(open.empty());
}

} // namespace

TEST_CASE("picture: a cell for each operation, in its row, at its time") {
  Chain chain = evenChain(4, 8, 1, 2);
  std::vector<Cell> cells =
      cellsOf(svgOf(Job(chain, oneFOneB(chain)).timeline()));
  REQUIRE(cells.size() == 64);
  CHECK(cells[0].title == "0F0: 0 to 1");
  CHECK(cells[0].number == "0");
  // Rank 3 starts at 3 of 33; its F7 is at 3 + 7 x 3.
  CHECK(cells[62].title == "3F7: 24 to 25");
  CHECK(cells[62].number == "7");
  CHECK(std::abs((cells[62].x - cells[0].x) - 1200.0 * 24 / 33) < 0.02);
  std::set<double> rows;
  for (const Cell &cell : cells)
    rows.insert(cell.y);
  CHECK(rows.size() == 4);
  // Backward takes twice the width of forward, less the gap between cells.
  CHECK(std::abs(cells[63].width + 0.6 - 2 * (cells[62].width + 0.6)) < 0.05);
}

TEST_CASE("picture: equal makespans have equal scales and colours") {
  Chain chain = evenChain(4, 8, 1, 1);
  std::vector<Cell> one = cellsOf(svgOf(Job(chain, gpipe(chain)).timeline()));
  std::vector<Cell> two =
      cellsOf(svgOf(Job(chain, oneFOneB(chain)).timeline()));
  std::map<std::string, Cell> byTitle;
  for (const Cell &cell : one)
    byTitle[cell.title.substr(0, cell.title.find(':'))] = cell;
  REQUIRE(two.size() == one.size());
  for (const Cell &cell : two) {
    const Cell &other = byTitle[cell.title.substr(0, cell.title.find(':'))];
    CHECK(cell.width == other.width);
    CHECK(cell.y == other.y);
    CHECK(cell.fill == other.fill);
  }
  // Another picture can be given the same scale: 24 on the scale of 48.
  Chain half = evenChain(1, 12, 1, 1);
  std::vector<Cell> scaled =
      cellsOf(svgOf(Job(half, gpipe(half)).timeline(), {.scale = 48 * kUnit}));
  CHECK(std::abs(scaled[0].width + 0.6 - 25) < 0.02);
}

TEST_CASE(
    "picture: operations, communication and idle have their own colours") {
  std::set<std::string> colors{"#eceff1"};
  for (Op op :
       {Op::Forward, Op::Backward, Op::BackwardInput, Op::BackwardWeight,
        Op::Recompute, Op::SendForward, Op::SendBackward, Op::OptimizerStep})
    colors.insert(std::string(info(op).color));
  CHECK(colors.size() == 9);

  Chain chain = evenChain(2, 2, 1, 2, 0.5);
  chain.split = true;
  std::string svg =
      svgOf(Job(chain, oneFOneB(chain), {kUnit / 2, 0}).timeline());
  for (Op op : {Op::Forward, Op::BackwardInput, Op::BackwardWeight,
                Op::SendForward, Op::SendBackward})
    CHECK(svg.find(info(op).color) != std::string::npos);
  CHECK(svg.find(">idle<") != std::string::npos);
  CHECK(svg.find(">communication: activations<") != std::string::npos);
}

/// Two ranks that face each other: stage 0 of microbatch 0 on rank 0, of
/// microbatch 1 on rank 1. On rank 0 a forward and a backward run together.
static Timeline facing() {
  auto at = [](int64_t units) { return units * kUnit; };
  Timeline timeline;
  timeline.title = "facing";
  timeline.ranks = 2;
  timeline.spans = {{at(0), at(1), 0, 0, 0, Op::Forward, 0},
                    {at(1), at(4), 0, 1, 1, Op::Backward, 0},
                    {at(1), at(4), 0, 0, 12, Op::Forward, 0},
                    {at(0), at(1), 1, 0, 1, Op::Forward, 0},
                    {at(1), at(2), 1, 1, 0, Op::Forward, 0},
                    {at(2), at(4), 1, 0, 1, Op::Backward, 0}};
  return timeline;
}

TEST_CASE("picture: a pair is one cell in two halves, the forward above") {
  std::string svg = svgOf(facing());
  checkWellFormed(svg);
  std::map<std::string, Cell> cells;
  for (const Cell &cell : cellsOf(svg))
    cells[cell.title] = cell;
  REQUIRE(cells.size() == 6);
  const Cell &forward = cells["0F12: 1 to 4"], &backward = cells["1B1: 1 to 4"];
  CHECK(forward.number == "12");
  CHECK(backward.number == "1");
  CHECK(forward.x == backward.x);
  CHECK(forward.width == backward.width);
  double top = cells["0F0: 0 to 1"].y;
  CHECK(forward.y == top);
  CHECK(backward.y > top + 10);
  CHECK(svg.find("half as high: a pair that runs together") !=
        std::string::npos);
  // Each rank works all of the time: a pair takes its rank's time once.
  CHECK(svg.find("makespan 4, bubble 0.0 %") != std::string::npos);
}

TEST_CASE("picture: a second copy has a tone of its own") {
  std::string svg = svgOf(facing());
  std::map<std::string, std::string> fills;
  for (const Cell &cell : cellsOf(svg))
    fills[cell.title.substr(0, cell.title.find(':')) + "@" +
          std::to_string(static_cast<int>(cell.y / 100))] = cell.fill;
  std::string forward(info(Op::Forward).color),
      backward(info(Op::Backward).color);
  // The first copy of stage 0 is on rank 0, of stage 1 on rank 1.
  CHECK(fills["0F0@0"] == forward);
  CHECK(fills["0F12@0"] == forward);
  CHECK(fills["1F0@1"] == forward);
  CHECK(fills["1B1@0"] != backward);
  CHECK(fills["0F1@1"] != forward);
  CHECK(fills["0B1@1"] == fills["1B1@0"]);
  CHECK(svg.find("lighter: second copy of the stages") != std::string::npos);
  CHECK(svg.find("later stages") == std::string::npos);
}

TEST_CASE("picture: each stage of a rank has a tone") {
  Timeline timeline;
  timeline.ranks = 1;
  for (Id stage = 0; stage < 6; ++stage)
    timeline.spans.push_back(
        {stage * kUnit, (stage + 1) * kUnit, 0, stage, 0, Op::Forward, 0});
  std::string svg = svgOf(timeline);
  std::set<std::string> fills;
  for (const Cell &cell : cellsOf(svg))
    fills.insert(cell.fill);
  CHECK(fills.size() == 6);
  CHECK(svg.find("lighter: later stages of the rank") != std::string::npos);
}

TEST_CASE("picture: a legend too wide for a line takes another") {
  Timeline timeline = facing();
  for (Op op : {Op::BackwardInput, Op::BackwardWeight, Op::SendForward,
                Op::SendBackward, Op::OptimizerStep}) {
    Ticks start = makespanOf(timeline);
    timeline.spans.push_back({start, start + kUnit, 0, 0, 0, op, 0});
  }
  std::string svg = svgOf(timeline), narrow = svgOf(facing());
  static const std::regex entry("<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" "
                                "fill=\"#444\">([^<]*)</text>");
  std::set<std::string> lines;
  size_t entries = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), entry), end; it != end;
       ++it, ++entries) {
    lines.insert((*it)[2]);
    CHECK(std::stod((*it)[1]) + 6.4 * static_cast<double>((*it)[3].length()) <
          1304);
  }
  CHECK(entries == 9); // seven operations, idle, what lighter and half mean
  CHECK(lines == std::set<std::string>{"47", "66"});
  CHECK(cellsOf(svg).front().y == cellsOf(narrow).front().y + 19);
}

TEST_CASE("picture: pairs in rows without room count once") {
  Timeline timeline;
  timeline.ranks = 1;
  for (Id k = 0; k < 3000; ++k)
    for (Op op : {Op::Forward, Op::Backward})
      timeline.spans.push_back({k * kUnit, (k + 1) * kUnit, 0, 0, k, op, 0});
  std::string svg = svgOf(timeline);
  checkWellFormed(svg);
  CHECK(svg.find("bubble 0.0 %") != std::string::npos);
  CHECK(svg.find("half as high") == std::string::npos);
  for (Op op : {Op::Forward, Op::Backward})
    CHECK(svg.find("<path fill=\"" + std::string(info(op).color)) !=
          std::string::npos);
}

TEST_CASE("picture: size is bounded and narrow cells lose their numbers") {
  Chain chain = evenChain(64, 512, 1, 1);
  std::string svg = svgOf(Job(chain, oneFOneB(chain)).timeline());
  CHECK(cellsOf(svg).empty());
  CHECK(svg.size() < 2'000'000);

  // More operations than pixels: shares of columns.
  Chain longer = evenChain(4, 3000, 1, 1);
  std::string crowded = svgOf(Job(longer, oneFOneB(longer)).timeline());
  CHECK(crowded.size() < 300'000);
  CHECK(crowded.find("height: share of the time") != std::string::npos);
}

TEST_CASE("picture: a title from an input is escaped") {
  Timeline timeline;
  timeline.title = "<b>&\"\x01\xff</b>";
  timeline.ranks = 1;
  timeline.spans = {{5 * kUnit, 7 * kUnit, 0, 0, kNone, Op::OptimizerStep, 0}};
  std::string svg = svgOf(timeline);
  CHECK(svg.find("&lt;b&gt;&amp;&quot;\\x01\\xff&lt;/b&gt;") !=
        std::string::npos);
  CHECK(svg.find("makespan 2, bubble 100.0 %") != std::string::npos);
  checkWellFormed(svg);
  checkWellFormed(svgOf(Timeline{}));
}

TEST_CASE("picture: golden") {
  Chain chain = evenChain(2, 2, 1, 2, 0.5);
  chain.split = true;
  Job job(chain, oneFOneB(chain), {kUnit / 2, 0});
  std::string svg = svgOf(job.timeline());
  checkWellFormed(svg);
  checkGolden("emit/timeline.svg", svg);

  std::string page;
  llvm::raw_string_ostream out(page);
  emitHtml(job.timeline(), job.report(), out);
  CHECK(page.find(svg) != std::string::npos);
  CHECK(page.find("http") == page.find("http://www.w3.org/2000/svg"));
  checkGolden("emit/page.html", page);
}
