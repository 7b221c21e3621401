//===- tests/runtime/ScheduleTrainingPairs.cpp - Pairs under delays ------===//
//
// Both DualPipes with the module that checks every byte, while every call takes
// another random time.
//
//===----------------------------------------------------------------------===//
#include "tests/runtime/ScheduleTraining.h"

#include "runtime/modules/SplitMix.h"
#include "runtime/modules/synthetic/Synthetic.h"

#include "tests/Catch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using namespace sluice;
using namespace sluice::tests;

namespace {

constexpr uint64_t kSteps = 3;

struct Shape {
  bool dual; ///< dualpipe, else dualpipev
  uint32_t ranks, microbatches;
};

/// Stage and microbatch.
using Unit = std::pair<Id, Id>;

/// A call of a stage's function for a microbatch, and when it began and ended
/// by a clock that all ranks share.
struct Event {
  SpyMoment::Function function;
  Unit unit;
  std::thread::id thread;
  uint64_t begin = 0, end = 0;
};

/// What one rank's thread notes.
struct RankLog {
  std::vector<Event> steps[kSteps];
  /// Where a backward finds its output's gradient: every step in one place.
  std::map<Unit, sluice_buffer> gradients;
  /// The bytes there when the forward of its pair began.
  std::vector<unsigned char> early;
  uint32_t compared = 0; ///< gradients that were
  std::string fault;
};

std::string nameOf(const Unit &unit) {
  return std::to_string(unit.first) + "B" + std::to_string(unit.second);
}

class PairSpy {
public:
  PairSpy(const Plan &plan, uint64_t delaysSeed)
      : seed(delaysSeed), logs(plan.ranks.size()), pairs(plan.ranks.size()) {
    for (Id rank = 0; rank < plan.ranks.size(); ++rank)
      findPairs(plan.ranks[rank], pairs[rank]);
  }

  SpyHooks hooks() {
    return {[this](const SpyMoment &moment) { before(moment); },
            [this](const SpyMoment &moment) { after(moment); }};
  }

  uint64_t seed;
  std::atomic<uint64_t> clock{0};
  std::vector<RankLog> logs;
  /// Per rank: the backward that runs with a forward.
  std::vector<std::map<Unit, Unit>> pairs;

private:
  static void findPairs(const RankPlan &rank, std::map<Unit, Unit> &pairs);
  void before(const SpyMoment &moment);
  void after(const SpyMoment &moment);
  void keepEarly(Id rank, const Unit &forward);
  static void compareEarly(RankLog &log, const Unit &backward,
                           const sluice_buffer &gradient);
  void delay(const SpyMoment &moment) const;
};

void PairSpy::findPairs(const RankPlan &rank, std::map<Unit, Unit> &pairs) {
  for (size_t i = 1; i < rank.ops.size(); ++i) {
    const PlanOp &first = rank.ops[i - 1], &second = rank.ops[i];
    if (first.op == Op::Forward && second.group != kNone &&
        second.group == first.group && second.op == Op::Backward)
      pairs[{first.stage, first.microbatch}] = {second.stage,
                                                second.microbatch};
  }
}

/// Half of the calls take up to 300 microseconds longer.
void PairSpy::delay(const SpyMoment &moment) const {
  uint64_t bits = mixBits(seed + 1);
  for (const uint64_t part :
       {uint64_t(moment.function), uint64_t(moment.rank),
        uint64_t(moment.stage), moment.step,
        uint64_t(moment.call ? moment.call->microbatch : 0)})
    bits = mixBits(bits + part);
  if (bits % 2 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(bits / 2 % 300));
}

/// Keeps the gradient of the backward that `forward` runs with as it is now.
void PairSpy::keepEarly(Id rank, const Unit &forward) {
  RankLog &log = logs[rank];
  log.early.clear();
  const auto pair = pairs[rank].find(forward);
  if (pair == pairs[rank].end())
    return;
  const auto place = log.gradients.find(pair->second);
  if (place == log.gradients.end())
    return; // the first step, or the last stage
  const auto *bytes = static_cast<const unsigned char *>(place->second.data);
  log.early.assign(bytes, bytes + place->second.bytes);
}

/// Compares that with what the backward is given.
void PairSpy::compareEarly(RankLog &log, const Unit &backward,
                           const sluice_buffer &gradient) {
  log.gradients[backward] = gradient;
  if (log.early.empty())
    return;
  ++log.compared;
  if (std::memcmp(log.early.data(), gradient.data, gradient.bytes) != 0)
    log.fault = "the gradient of " + nameOf(backward) +
                " came after the forward of its pair began";
  log.early.clear();
}

void PairSpy::before(const SpyMoment &moment) {
  RankLog &log = logs[moment.rank];
  if (const sluice_call *call = moment.call) {
    const Unit unit{moment.stage, call->microbatch};
    log.steps[moment.step].push_back(
        {moment.function, unit, std::this_thread::get_id(), ++clock});
    if (moment.function == SpyMoment::Forward)
      keepEarly(moment.rank, unit);
    if (moment.function == SpyMoment::BackwardInput && call->output_count != 0)
      compareEarly(log, unit, call->output_gradients[0]);
  }
  delay(moment);
}

void PairSpy::after(const SpyMoment &moment) {
  RankLog &log = logs[moment.rank];
  if (moment.call)
    log.steps[moment.step].back().end = ++clock;
}

std::string specOf(const Shape &shape) {
  return std::string("sluice: 1\n"
                     "model:\n"
                     "  layers:\n"
                     "    - {name: layer, repeat: 8, forward: 1, backward: 2, "
                     "params: 40, activation_bytes: 300, kept_for_weight: 100, "
                     "output_bytes: 200, workspace_bytes: 64}\n"
                     "pipeline: {ranks: ") +
         std::to_string(shape.ranks) +
         ", microbatches: " + std::to_string(shape.microbatches) +
         ", schedule: " + (shape.dual ? "dualpipe" : "dualpipev") + "}\n";
}

/// How many pairs a rank has: two a step of the main phase and one a step of
/// the next, but for the first of the innermost rank, whose backward needs its
/// own forward.
uint32_t pairsOf(const Shape &shape, Id rank) {
  const uint32_t p = shape.ranks;
  const uint32_t half = shape.dual ? p / 2 : p;
  const uint32_t lane =
      shape.dual ? shape.microbatches / 2 : shape.microbatches;
  const uint32_t h = shape.dual ? std::min(rank, p - 1 - rank) : rank;
  const uint32_t next = half - h - 1;
  return 2 * (lane - 2 * half + h + 1) + next - (next == 0 ? 1 : 0);
}

/// The calls that the computing operations of a rank's list make, in order.
std::vector<std::pair<SpyMoment::Function, Unit>>
callsOf(const RankPlan &rank) {
  std::vector<std::pair<SpyMoment::Function, Unit>> calls;
  for (const PlanOp &op : rank.ops) {
    const Unit unit{op.stage, op.microbatch};
    if (op.op == Op::Forward)
      calls.push_back({SpyMoment::Forward, unit});
    if (op.op == Op::Backward || op.op == Op::BackwardInput)
      calls.push_back({SpyMoment::BackwardInput, unit});
    if (op.op == Op::Backward || op.op == Op::BackwardWeight)
      calls.push_back({SpyMoment::BackwardWeight, unit});
  }
  return calls;
}

using Ends = std::map<std::tuple<SpyMoment::Function, Id, Id>, uint64_t>;

/// When each call of a step ended, on whatever rank.
Ends endsOf(const std::vector<RankLog> &logs, uint64_t step) {
  Ends ends;
  for (const RankLog &log : logs)
    for (const Event &event : log.steps[step])
      ends[{event.function, event.unit.first, event.unit.second}] = event.end;
  return ends;
}

/// Whether what `pair` needs was made before its first call began.
bool hasInputs(const std::pair<const Unit, Unit> &pair, Id stages,
               uint64_t begin, Ends &ends) {
  const auto &[forward, backward] = pair;
  const auto endedBefore = [&](SpyMoment::Function function, Id stage, Id of) {
    const uint64_t end = ends[{function, stage, of}];
    return end != 0 && end < begin;
  };
  return (forward.first == 0 ||
          endedBefore(SpyMoment::Forward, forward.first - 1, forward.second)) &&
         endedBefore(SpyMoment::Forward, backward.first, backward.second) &&
         (backward.first + 1 == stages ||
          endedBefore(SpyMoment::BackwardInput, backward.first + 1,
                      backward.second));
}

void checkStep(const Plan &plan, const PairSpy &spy, Id rank, uint64_t step) {
  const std::vector<Event> &events = spy.logs[rank].steps[step];
  const auto calls = callsOf(plan.ranks[rank]);
  REQUIRE(events.size() == calls.size());
  Ends ends = endsOf(spy.logs, step);
  const auto stages = static_cast<Id>(plan.stages.size());
  for (size_t i = 0; i < events.size(); ++i) {
    const Event &event = events[i];
    if (event.function != calls[i].first || event.unit != calls[i].second ||
        event.thread != events[0].thread)
      FAIL("call " << i << " is another than the plan's");
    const auto pair = spy.pairs[rank].find(event.unit);
    if (event.function != SpyMoment::Forward || pair == spy.pairs[rank].end())
      continue;
    INFO("the pair of " << nameOf(pair->second));
    REQUIRE(i + 2 < events.size());
    CHECK(events[i + 1].function == SpyMoment::BackwardInput);
    CHECK(events[i + 1].unit == pair->second);
    CHECK(events[i + 2].function == SpyMoment::BackwardWeight);
    CHECK(events[i + 2].unit == pair->second);
    CHECK(hasInputs(*pair, stages, event.begin, ends));
  }
}

} // namespace

TEST_CASE("training: a pair runs side by side with all inputs there",
          "[training]") {
  const Shape shape =
      GENERATE(Shape{true, 2, 4}, Shape{true, 4, 8}, Shape{true, 4, 10},
               Shape{false, 2, 4}, Shape{false, 4, 8}, Shape{false, 4, 9});
  const std::string spec = specOf(shape);
  const Plan plan = compileSpec(spec);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    INFO(spec << "seed " << seed);
    PairSpy spy(plan, seed);
    runSpied(plan, sluice_synthetic_module(), kSteps, spy.hooks());
    for (Id rank = 0; rank < shape.ranks; ++rank) {
      INFO("rank " << rank);
      CHECK(spy.pairs[rank].size() == pairsOf(shape, rank));
      CHECK(spy.logs[rank].fault.empty());
      CHECK(spy.logs[rank].compared > 0);
    }
    for (Id rank = 0; rank < shape.ranks; ++rank)
      for (uint64_t step = 0; step < kSteps; ++step) {
        INFO("rank " << rank << ", step " << step);
        checkStep(plan, spy, rank, step);
      }
  }
}
