//===- tests/cuda/CudaWrongPlans.cpp - Plans made wrong on purpose --------===//
//
// The verifier proves them wrong, the double sees it happen, and both name the
// same operation.
//
//===----------------------------------------------------------------------===//
#include "ir/verify/Verify.h"
#include "tests/cuda/CudaRuns.h"
#include "tests/cuda/WatchedModule.h"
#include "tests/ir/PlanBuilderForTests.h"
#include "tests/runtime/PlanForTests.h"

#include <algorithm>

using namespace sluice;
using namespace sluice::tests;

namespace {

/// What a run over the double had to say.
struct Outcome {
  Status status;
  std::string text; ///< of the status and of what the double has seen
  bool deadlock = false, race = false;
};

Outcome runWrong(const Plan &plan, const cudadouble::Settings &asked = {}) {
  cudadouble::Settings settings = asked;
  settings.failOnDeadlock = true;
  settings.measureHostFunctions = false;
  cudadouble::reset(settings);
  const Watching watching(plan);
  runtime::JobOptions options = cudaJob(watchedModule());
  options.recordLastStep = false;
  runtime::JobResult result;
  Outcome outcome;
  outcome.status = runtime::runJob(plan, options, result);
  outcome.text = outcome.status.message();
  for (const cudadouble::Fault &fault : cudadouble::faults())
    outcome.text += "\n" + fault.text;
  outcome.deadlock =
      !cudadouble::faults(cudadouble::Fault::Kind::Deadlock).empty();
  outcome.race = !cudadouble::faults(cudadouble::Fault::Kind::Race).empty();
  return outcome;
}

/// How the double names an operation of the plan.
std::string nameInDouble(const Plan &plan, const verify::OpPlace &place) {
  const std::vector<PlanOp> &ops = plan.ranks[place.rank].ops;
  const PlanOp &op = ops[place.index];
  if (!isMessage(op.op))
    return nameOf(op) + " of stream";
  const Channel &channel = plan.channels[op.channel];
  uint64_t number = 1; // the first contact was number 0
  for (uint32_t i = 0; i < place.index; ++i)
    number += isMessage(ops[i].op) && ops[i].channel == op.channel;
  return std::string(isSend(op.op) ? "ncclSend " : "ncclRecv ") +
         std::to_string(number) + " from " + std::to_string(channel.source) +
         " to " + std::to_string(channel.destination);
}

/// Whether what the run said names an operation of a finding.
bool names(const Plan &plan, const Outcome &outcome,
           const std::vector<verify::Finding> &findings) {
  for (const verify::Finding &finding : findings) {
    std::vector<verify::OpPlace> places = finding.cycle;
    if (finding.place)
      places.push_back(*finding.place);
    for (const verify::OpPlace &place : places)
      if (outcome.text.find(nameInDouble(plan, place)) != std::string::npos ||
          outcome.text.find("at " +
                            nameOf(plan.ranks[place.rank].ops[place.index])) !=
              std::string::npos)
        return true;
  }
  return false;
}

/// Two ranks that come to send to each other before they receive; with
/// parentheses between the two, one operation of both.
Plan exchange(testing::Streams streams, const std::string &open = "",
              const std::string &close = "") {
  testing::Net net = testing::chain(2, 2);
  net.streams = streams;
  net.reuse = false;
  return testing::buildPlan(
      net, std::vector<std::string>{
               "0F0 0SEND_F0 0F1 " + open + "0SEND_F1 0RECV_B0" + close +
                   " 0B0 0RECV_B1 0B1",
               "1RECV_F0 1F0 1B0 " + open + "1SEND_B0 1RECV_F1" + close +
                   " 1F1 1B1 1SEND_B1"});
}

std::vector<verify::Finding> deadlocksOf(const Plan &plan) {
  std::vector<verify::Finding> found = verify::verifyPlan(plan).errors;
  std::erase_if(found, [](const verify::Finding &each) {
    return each.kind != verify::FindingKind::Deadlock;
  });
  return found;
}

/// Whether one operation uses both buffers: then no order of two is amiss.
bool usesBoth(const RankPlan &list, Id one, Id other) {
  for (uint32_t op = 0; op < list.ops.size(); ++op) {
    const auto uses = [&](Id buffer) {
      const std::span<const Operand> all = list.operandsOf(op);
      return std::any_of(all.begin(), all.end(),
                         [&](Operand use) { return use.buffer == buffer; });
    };
    if (uses(one) && uses(other))
      return true;
  }
  return false;
}

Plan withoutWait(Plan plan, Id rank, uint32_t wait) {
  RankPlan &list = plan.ranks[rank];
  list.waits.erase(list.waits.begin() + wait);
  for (PlanOp &op : list.ops)
    op.firstWait -= op.firstWait > wait;
  return plan;
}

} // namespace

TEST_CASE("wrong plans: an exchange that is no group hangs") {
  const Plan good = exchange(testing::Streams::One, "( ", " )");
  const Outcome goes = runWrong(good);
  INFO(goes.text);
  CHECK(goes.text.empty());
  CHECK(verify::verifyPlan(good).ok());

  const Plan plan = exchange(testing::Streams::One);
  const Outcome bad = runWrong(plan);
  INFO(bad.text);
  CHECK(bad.deadlock);
  CHECK(bad.status.fault() == Fault::Environment);
  CHECK(names(plan, bad, deadlocksOf(plan)));

  // A library that buffers hides it.
  cudadouble::Settings eager;
  eager.eagerBytes = 64;
  CHECK(runWrong(plan, eager).text.empty());
}

TEST_CASE("wrong plans: two communicators in opposite orders, one at a time") {
  const Plan plan = exchange(testing::Streams::Direction);
  const Outcome any = runWrong(plan);
  INFO(any.text);
  CHECK(any.text.empty());
  cudadouble::Settings one;
  one.residentCommunicators = 1;
  const Outcome bad = runWrong(plan, one);
  INFO(bad.text);
  CHECK(bad.deadlock);
  CHECK(names(plan, bad, deadlocksOf(plan)));
  // What the compiler makes holds all the same (tests/cuda/CudaSchedules.cpp).
}

TEST_CASE("wrong plans: of every wait that is dropped") {
  ChainOptions chain;
  chain.ranks = 3;
  chain.microbatches = 4;
  chain.slots = GENERATE(1u, 2u);
  const Plan good = makeChain(chain);
  REQUIRE(verify::verifyPlan(good).ok());
  CHECK(runWrong(good).text.empty());
  size_t caught = 0, named = 0;
  for (Id rank = 0; rank < 3; ++rank)
    for (uint32_t wait = 0; wait < good.ranks[rank].waits.size(); ++wait) {
      const Plan plan = withoutWait(good, rank, wait);
      const verify::Result result = verify::verifyPlan(plan);
      // On a loaded machine a host may see by chance that what nobody waits for
      // has ended, before it goes on: then that run has no race.
      constexpr int kTries = 5;
      Outcome outcome = runWrong(plan);
      const auto isSeen = [&] { return outcome.race || !outcome.status.ok(); };
      for (int again = 1; again < kTries && !result.ok() && !isSeen(); ++again)
        outcome = runWrong(plan);
      INFO("rank " << rank << ", wait " << wait << ": " << outcome.text);
      CHECK(isSeen() == !result.ok());
      if (result.ok())
        continue;
      ++caught;
      INFO(verify::describe(plan, result.errors[0]));
      // Where it is a module that saw the wrong data, it names who read them.
      if (outcome.race)
        CHECK(names(plan, outcome, result.errors));
      named += outcome.race;
    }
  CHECK(caught > 10);
  CHECK(named > 0);
}

TEST_CASE("wrong plans: buffers that share bytes without an order") {
  const Plan good = makeChain({});
  size_t caught = 0;
  const std::vector<Buffer> &buffers = good.ranks[1].buffers;
  for (Id one = 0; one < buffers.size(); ++one)
    for (Id other = one + 1; other < buffers.size(); ++other) {
      if ((buffers[one].kind != BufferKind::Activation &&
           buffers[other].kind != BufferKind::Gradient) ||
          usesBoth(good.ranks[1], one, other))
        continue;
      Plan plan = good;
      plan.ranks[1].buffers[other].offset = buffers[one].offset;
      const verify::Result result = verify::verifyPlan(plan);
      const Outcome outcome = runWrong(plan);
      INFO("buffers " << one << " and " << other << ": " << outcome.text);
      CHECK((outcome.race || !outcome.status.ok()) == !result.ok());
      caught += !result.ok();
    }
  CHECK(caught > 10);
}
