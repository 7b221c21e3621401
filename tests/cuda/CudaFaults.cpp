//===- tests/cuda/CudaFaults.cpp - Every call fails once ------------------===//
#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/cuda/CudaRuns.h"
#include "tests/runtime/PlanForTests.h"

#include <chrono>
#include <regex>
#include <set>

using namespace sluice;
using namespace sluice::tests;

namespace {

Plan smallPlan() {
  ChainOptions chain;
  chain.ranks = 2;
  chain.microbatches = 2;
  return makeChain(chain);
}

/// Calls whose failure leaves nothing undone that anybody waits for: those of
/// the end, and one that is made again anyway.
const std::set<std::string> kHarmless = {
    "cudaEventDestroy",    "cudaStreamDestroy", "cudaFree",
    "cudaFreeHost",        "cudaSetDevice",     "ncclCommFinalize",
    "ncclCommDestroy",     "cudaStreamQuery",   "ncclCommGetAsyncError",
    "cudaGraphExecDestroy"};
/// Those after which something is kept: what they were to give back, or memory
/// that a device may still use for all that it says.
const std::set<std::string> kKeep = {"cudaEventDestroy", "cudaStreamDestroy",
                                     "cudaFree", "cudaFreeHost",
                                     "cudaStreamQuery"};

/// How the small plan is run.
struct Way {
  const char *name;
  uint32_t devices;
  bool graphs;
  size_t functions; ///< of CUDA and NCCL that it calls, at least
};
constexpr Way kOwn = {"a GPU a rank", 0, false, 24};
constexpr Way kShared = {"one GPU", 1, false, 17};
constexpr Way kGraphs = {"graphs", 0, true, 30};

Status runSmall(const Plan &plan, const Way &way, uint64_t steps,
                double timeoutSeconds = 20) {
  runtime::JobOptions options = cudaJob(sluice_synthetic_module(), steps);
  options.devices = way.devices;
  options.graphs = way.graphs;
  options.timeoutSeconds = timeoutSeconds;
  runtime::JobResult result;
  return runtime::runJob(plan, options, result);
}

/// One failing call: the job ends with what failed, and gives back all else.
void checkFailure(const Plan &plan, const Way &way, const std::string &call,
                  uint64_t number) {
  INFO(call << ", number " << number << ", " << way.name);
  cudadouble::reset();
  cudadouble::failCall(call, number);
  const Status status = runSmall(plan, way, 2);
  if (status.ok())
    CHECK(kHarmless.count(call) == 1);
  else {
    INFO(status.message());
    CHECK(status.fault() == Fault::Environment);
    CHECK(status.message().find(call + ": ") != std::string::npos);
  }
  for (const auto &[kind, count] : cudadouble::objects()) {
    INFO(count << " " << kind << " are left");
    CHECK(kKeep.count(call) == 1);
    CHECK(count <= 1);
  }
  for (const cudadouble::Fault &fault : cudadouble::faults()) {
    INFO(fault.text);
    CHECK(fault.kind == cudadouble::Fault::Kind::Deadlock);
  }
}

} // namespace

TEST_CASE("faults: every call fails once, and the job ends with it") {
  const Way way = GENERATE(kOwn, kShared, kGraphs);
  const Plan plan = smallPlan();
  cudadouble::reset();
  REQUIRE(runSmall(plan, way, 2).ok());
  checkClean();
  const std::map<std::string, uint64_t> calls = cudadouble::calls();
  CHECK(calls.size() >= way.functions);
  for (const auto &[call, count] : calls) {
    const bool isPolled = call == "cudaEventQuery" || call == "cudaStreamQuery";
    const bool isMany =
        call == "cudaEventCreateWithFlags" || call == "cudaEventDestroy";
    for (uint64_t number = 1; number <= count;
         number += isMany || number > 60 ? 17 : 1)
      if (!isPolled || number <= 8)
        checkFailure(plan, way, call, number);
  }
}

TEST_CASE("faults: a call of a step is told with operation and line") {
  const Plan plan = smallPlan();
  const std::map<std::string, std::string> calls = {
      {"ncclSend", "(0SEND_F|1SEND_B)"},
      {"ncclRecv", "(1RECV_F|0RECV_B)"},
      {"cudaLaunchHostFunc", "[01](F|B)"},
      {"cudaStreamWaitEvent", "[01](F|B|SEND_F|SEND_B|RECV_F|RECV_B)"}};
  for (const auto &[call, operation] : calls) {
    const bool isNccl = call.starts_with("nccl");
    cudadouble::reset();
    // The first two messages are the first contact, one each way.
    cudadouble::failCall(call, isNccl ? 3 : 1);
    const Status status = runSmall(plan, kOwn, 1);
    INFO(status.message());
    CHECK(std::regex_match(
        status.message(),
        std::regex("rank [01] failed at " + operation +
                   "[01] \\(chain.yaml:1[01]\\) of step 0: " + call +
                   ": (unknown error|unhandled system error.*)")));
  }
}

TEST_CASE("faults: an error that NCCL reports later ends the job") {
  cudadouble::reset();
  runtime::JobOptions options = cudaJob(sluice_synthetic_module(), 3);
  options.onStep = [](const runtime::StepInfo &info) {
    if (info.step == 0)
      cudadouble::failCommunicators();
  };
  runtime::JobResult result;
  const Status status = runtime::runJob(smallPlan(), options, result);
  CHECK(status.fault() == Fault::Environment);
  INFO(status.message());
  CHECK(status.message().find("remote process exited") != std::string::npos);
  CHECK(cudadouble::objects().empty());
}

TEST_CASE("faults: what never ends, ends the job by its timeout") {
  // Operations of the first contact, then of memory, then of steps.
  const uint64_t number = GENERATE(1, 3, 5, 8, 15);
  INFO("operation " << number);
  cudadouble::reset();
  cudadouble::hangOperation(number);
  const auto start = std::chrono::steady_clock::now();
  const Status status = runSmall(smallPlan(), kOwn, 1, 0.3);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  INFO(status.message());
  CHECK(status.fault() == Fault::Environment);
  CHECK((status.message().find("has made no progress for 0.3 s") !=
             std::string::npos ||
         status.message().find("NCCL does not connect in time") !=
             std::string::npos));
  CHECK(seconds < 0.3 + 10);
}
