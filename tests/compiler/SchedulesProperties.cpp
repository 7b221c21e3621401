//===- tests/compiler/SchedulesProperties.cpp - Any schedule, any sizes --===//
//
// What must hold of every schedule for random sizes, costs, links and limits:
// it is refused with a message, or right, complete and within its formula.
//
//===----------------------------------------------------------------------===//
#include "ir/PlanFile.h"
#include "ir/text/Text.h"
#include "ir/verify/Verify.h"
#include "tests/compiler/ScheduleForTests.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

using namespace sluice;
using namespace sluice::tests;

namespace {

/// A spec of any schedule with any costs, by `seed`.
class RandomCase {
public:
  explicit RandomCase(unsigned seed) : random(seed) {
    llvm::ArrayRef<ScheduleInfo> all = allSchedules();
    info = &all[seed % all.size()];
    ranks = oneIn(4) ? pick(1, 9) : 2 * pick(1, 4);
    chunks = info->chunks != 0 ? info->chunks : pick(1, 4);
    if (oneIn(20))
      chunks = pick(1, 4);
    microbatches = oneIn(2) ? pick(1, 12) : 2 * pick(ranks, 2 * ranks);
    text = "sluice: 1\nmodel:\n  layers:\n" + layers() + pipeline() + cluster();
  }

  const ScheduleInfo *info;
  uint32_t ranks, chunks, microbatches;
  uint32_t groupSize;      ///< 0: in rounds
  bool ownNumbers = false; ///< warmup or placement are the spec's own
  bool hasPairs = false;
  std::string text;

private:
  uint32_t pick(uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random);
  }
  bool oneIn(uint32_t count) { return pick(1, count) == 1; }

  std::string layers() {
    std::string lines;
    bool equal = oneIn(3);
    hasPairs = oneIn(3);
    uint32_t count = ranks * chunks + (equal ? 0 : pick(0, 3));
    for (uint32_t i = 0; i < count; i += equal ? count : 1) {
      uint32_t f = pick(1, 20), b = pick(1, 20), w = oneIn(9) ? 0 : pick(1, 20);
      lines +=
          "    - {name: l, repeat: " + std::to_string(equal ? count : 1) +
          ", forward: " + std::to_string(f) +
          ", backward_input: " + std::to_string(b) +
          ", backward_weight: " + std::to_string(w) +
          ", activation_bytes: " + std::to_string(pick(500, 3000)) +
          ", kept_for_weight: " + std::to_string(pick(0, 500)) +
          ", output_bytes: " + std::to_string(pick(0, 3) * 400) +
          ", params: " + std::to_string(pick(0, 900)) +
          (hasPairs ? ", overlapped_pair: " +
                          std::to_string(pick(std::max(f, b + w), f + b + w))
                    : "") +
          "}\n";
    }
    return lines;
  }

  std::string pipeline() {
    std::string line = "pipeline: {ranks: " + std::to_string(ranks) +
                       ", virtual_stages: " + std::to_string(chunks) +
                       ", microbatches: " + std::to_string(microbatches) +
                       ", schedule: " + std::string(info->text);
    groupSize = ranks;
    if (info->check == schedules::interleavedRules && oneIn(2)) {
      groupSize = oneIn(3) ? 0 : pick(1, microbatches + ranks);
      line += ", group_size: " +
              (groupSize == 0 ? "rounds" : std::to_string(groupSize));
    }
    if (info->adjustableWarmup && oneIn(4))
      line += ", warmup: " + warmup();
    if (info->lanes == Lanes::Groups && oneIn(6))
      line += ", placement: " + placement();
    if (info->backward == BackwardRule::Either && oneIn(2))
      line += ", backward: split";
    if (oneIn(3))
      line += ", objective: span";
    if (oneIn(3))
      line += ", memory_limit: " + std::to_string(pick(4000, 90000));
    return line + "}\n";
  }

  std::string warmup() {
    ownNumbers = true;
    std::string list;
    uint32_t count = pick(0, microbatches * chunks);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      list += (rank ? ", " : "[") + std::to_string(count);
      count = oneIn(30) ? count + 1 : count - std::min(count, pick(0, 3));
    }
    return list + "]";
  }

  /// Any, with as many stages on each rank.
  std::string placement() {
    ownNumbers = true;
    std::vector<uint32_t> of;
    for (uint32_t stage = 0; stage < ranks * chunks; ++stage)
      of.push_back(stage % ranks);
    std::shuffle(of.begin(), of.end(), random);
    std::string list;
    for (uint32_t rank : of)
      list += (list.empty() ? "[" : ", ") + std::to_string(rank);
    return list + "]";
  }

  std::string cluster() {
    if (oneIn(2))
      return "";
    return "cluster: {link: {latency: " + std::to_string(pick(0, 25)) +
           (oneIn(2) ? ", bandwidth: " + std::to_string(pick(50, 900)) : "") +
           "}}\n";
  }

  std::mt19937 random;
};

uint32_t groupOf(const RandomCase &of) {
  uint32_t m = of.microbatches, rounds = std::max(1u, m / of.ranks);
  return of.groupSize != 0 ? of.groupSize : (m + rounds - 1) / rounds;
}

/// The standard count at `place` along the pipeline, of schedules of which a
/// spec may change it.
uint32_t standardWarmup(const RandomCase &of, uint32_t place) {
  uint32_t behind = of.ranks - 1 - place, v = of.chunks, m = of.microbatches;
  if (of.info->text == "eager-1f1b" || of.info->text == "zb-h2")
    return std::min(m, 2 * behind);
  if (v == 1)
    return std::min(m, behind);
  return std::min(m * v, 2 * behind + (v - 1) * std::min(groupOf(of), m));
}

/// Whether the counts are those of the formula: not the spec's own, nor raised
/// for its own placement or a short last group.
bool hasStandardWarmup(const RandomCase &of) {
  uint32_t m = of.microbatches, rest = m % groupOf(of);
  bool isShort = of.chunks > 1 && m > rest && rest != 0 && rest < of.ranks;
  return of.info->adjustableWarmup && !of.ownNumbers && !isShort;
}

/// The most stage-microbatches in flight that a schedule allows at `place`
/// along the pipeline, with the warmup that its rule was given, and `first` to
/// the first rank. A rank's M_B is v of them.
uint32_t mostInFlight(const RandomCase &of, uint32_t place, uint32_t warmup,
                      uint32_t first) {
  std::string_view name = of.info->text;
  uint32_t p = of.ranks, v = of.chunks, all = of.microbatches * v;
  uint32_t near = std::min(place, p - 1 - place);
  uint32_t most = all; // gpipe, breadth-first
  if (name == "naive")
    most = 1;
  else if (name == "1f1b" || name == "eager-1f1b" || name == "interleaved-1f1b")
    most = warmup + 1;
  else if (name == "zb-h1" || name == "zb-h2")
    most = first + 1;
  else if (name == "zb-v")
    most = 2 * p;
  else if (name == "v-half")
    most = (p + 2) / 2 * 2;
  else if (name == "v-min")
    most = (p + 4) / 3 * 2;
  else if (name == "dualpipe")
    most = p + 1;
  else if (name == "dualpipev")
    most = 2 * p + 1;
  else if (name == "chimera")
    most = p / 2 + near + 1;
  else if (name == "hanayo")
    most = p * v;
  else if (name == "forward-only")
    most = 1;
  return std::min(most, all);
}

void checkInFlight(const RandomCase &of, const Compilation &c,
                   const Report &report) {
  std::vector<Id> order = c.choice->placement.ranksInOrder();
  auto warmup = [&](uint32_t place) {
    return hasStandardWarmup(of)
               ? standardWarmup(of, place)
               : report.perRank[order[place]].warmup.value_or(0);
  };
  for (uint32_t place = 0; place < of.ranks; ++place) {
    CAPTURE(order[place]);
    CHECK(report.perRank[order[place]].peakInFlight <=
          mostInFlight(of, place, warmup(place), warmup(0)));
  }
}

/// One forward for each stage and microbatch, and one backward, whole or in its
/// two parts, on the rank of that stage.
void checkComplete(const RandomCase &of, const Compilation &c) {
  std::map<std::pair<Id, Id>, std::array<uint32_t, kOpCount>> counts;
  for (Id rank = 0; rank < of.ranks; ++rank)
    for (Id id : c.schedule->rank(rank)) {
      const Node &node = c.graph->nodes[id];
      ++counts[{node.stage, node.microbatch}][unsigned(node.op)];
      if (c.choice->placement.rankOf(node.stage, node.microbatch) != rank)
        FAIL("on another rank than its stage");
    }
  CHECK(counts.size() == size_t(of.ranks) * of.chunks * of.microbatches);
  uint32_t backwards = of.info->backward == BackwardRule::None ? 0 : 1;
  for (const auto &entry : counts) {
    const auto &cell = entry.first;
    auto number = [&](Op op) { return entry.second[unsigned(op)]; };
    bool right = number(Op::Forward) == 1 &&
                 number(Op::BackwardInput) == number(Op::BackwardWeight) &&
                 number(Op::Backward) + number(Op::BackwardInput) == backwards;
    if (!right)
      FAIL("stage " << cell.first << ", microbatch " << cell.second
                    << " is not complete");
  }
}

/// A stage sums its weight gradients in the order of microbatches wherever it
/// has one copy.
void checkWeightOrder(const RandomCase &of, const Compilation &c,
                      const Report &report) {
  std::vector<Id> last(size_t(of.ranks) * of.chunks, 0), rankOf(last.size());
  bool ascends = true;
  for (Id rank = 0; rank < of.ranks; ++rank)
    for (Id id : c.schedule->rank(rank)) {
      const Node &node = c.graph->nodes[id];
      if (node.op != Op::Backward && node.op != Op::BackwardWeight)
        continue;
      bool first = last[node.stage] == 0;
      ascends &= first || (rankOf[node.stage] == rank &&
                           node.microbatch + 1 > last[node.stage]);
      last[node.stage] = node.microbatch + 1;
      rankOf[node.stage] = rank;
    }
  CHECK(report.weightsInOrder == ascends);
  CHECK((ascends || c.choice->placement.copies() == 2));
}

void checkRight(const Plan &plan) {
  for (verify::Progress progress :
       {verify::Progress::Rank, verify::Progress::Pair,
        verify::Progress::Edge}) {
    verify::Result result = verify::verifyPlan(plan, {.progress = progress});
    for (const verify::Finding &finding : result.errors)
      FAIL(verify::describe(plan, finding));
    CHECK(result.holdsUnder(progress));
    CHECK(result.minBuffering == 0u);
  }
}

void checkTimes(const Spec &spec, const Report &report) {
  bool span = spec.pipeline.objective.value == Objective::Span;
  CHECK((span ? report.span : report.makespan) >= report.lowerBound);
  CHECK(report.span <= report.makespan);
  REQUIRE(report.planMakespan.has_value());
  CHECK(*report.planMakespan >= report.makespan);
}

/// Where messages take no time a plan takes as long as its schedule: buffers
/// that share bytes make nothing late.
void checkFreeMessages(const Spec &spec, const Report &report) {
  const LinkSpec &link = spec.cluster.link;
  if (link.latency.value == 0 && link.bandwidth.value == 0)
    CHECK(*report.planMakespan == report.makespan);
}

std::string planText(const Plan &plan) {
  std::string text;
  llvm::raw_string_ostream out(text);
  printPlan(plan, out);
  return text;
}

std::string planBytes(const Plan &plan) {
  auto path = std::filesystem::temp_directory_path() /
              ("sluice-schedules-" + std::to_string(::getpid()) + ".plan");
  REQUIRE(writePlanFile(plan, path.string()).ok());
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  std::filesystem::remove(path);
  return bytes.str();
}

/// Only what the spec's own numbers make wrong, with several chunks on a rank,
/// is left to the proofs to find; all else is refused by a rule that says why.
void checkRefusal(const RandomCase &of, const Compiled &compiled) {
  CHECK(compiled.diagnostics.hasErrors());
  for (const Diagnostic &told : compiled.diagnostics.all()) {
    CHECK(!told.message.empty());
    CHECK(told.location.line > 0);
    bool proof = told.severity == Severity::Error &&
                 told.message.rfind("deadlock: ", 0) == 0;
    CHECK((!proof || (of.chunks > 1 && of.ownNumbers)));
  }
}

/// Whether the case was accepted.
bool checkRandom(unsigned seed) {
  RandomCase of(seed);
  INFO("seed " << seed << "\n" << of.text);
  Compiled compiled(of.text);
  INFO(compiled.diagnostics.render());
  if (!compiled.ok) {
    checkRefusal(of, compiled);
    return false;
  }
  const Compilation &c = compiled.compilation;
  Report report = compiled.report();
  checkComplete(of, c);
  checkWeightOrder(of, c, report);
  checkRight(*c.plan);
  checkInFlight(of, c, report);
  checkTimes(*c.spec, report);
  checkFreeMessages(*c.spec, report);
  if (seed % 4 == 0) {
    Compiled again(of.text);
    CHECK(planText(*again.compilation.plan) == planText(*c.plan));
    if (seed % 64 == 0)
      CHECK(planBytes(*again.compilation.plan) == planBytes(*c.plan));
  }
  return true;
}
} // namespace

TEST_CASE("schedule properties: refused with a reason, or right") {
  std::map<std::string_view, unsigned> accepted;
  for (unsigned seed = 0; seed < 3000; ++seed)
    accepted[RandomCase(seed).info->text] += checkRandom(seed);
  for (const ScheduleInfo &info : allSchedules()) {
    CAPTURE(info.text);
    CHECK(accepted[info.text] > 50);
  }
}
