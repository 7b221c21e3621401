//===- tests/cuda/DoubleTest.cpp - The double itself ----------------------===//
//
// What other tests rely on: that it refuses what CUDA and NCCL refuse, and sees
// what it says it sees.
//
//===----------------------------------------------------------------------===//
#include "tests/cuda/double/Double.h"
#include "tests/Catch.h"

#include <cmath>
#include <cstring>

#include <cuda_runtime_api.h>
#include <nccl.h>

using namespace sluice::cudadouble;

namespace {

/// Streams, an event each, and memory of the first device.
struct Bench {
  explicit Bench(const Settings &settings = {}) {
    reset(settings);
    for (int i = 0; i < 2; ++i) {
      REQUIRE(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) ==
              cudaSuccess);
      REQUIRE(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming) ==
              cudaSuccess);
    }
    void *data = nullptr;
    REQUIRE(cudaMalloc(&data, 256) == cudaSuccess);
    memory = static_cast<char *>(data);
  }
  void set(int stream, int value) {
    CHECK(cudaMemsetAsync(memory, value, 64, streams[stream]) == cudaSuccess);
  }
  void order(int before, int after) {
    CHECK(cudaEventRecord(events[before], streams[before]) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(streams[after], events[before], 0) ==
          cudaSuccess);
  }
  void finish() {
    for (cudaStream_t stream : streams)
      CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  }

  cudaStream_t streams[2] = {};
  cudaEvent_t events[2] = {};
  char *memory = nullptr;
};

} // namespace

TEST_CASE("double: memory is poisoned, and no more than there is") {
  Settings settings;
  settings.deviceMemory = 1000;
  Bench bench(settings);
  float number = 0;
  std::memcpy(&number, bench.memory, sizeof(number));
  CHECK(std::isnan(number));
  void *more = nullptr;
  CHECK(cudaMalloc(&more, 745) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&more, 744) == cudaSuccess);
  CHECK(cudaFree(more) == cudaSuccess);
  CHECK(cudaFree(more) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(bench.memory, 0, 257, bench.streams[0]) ==
        cudaErrorIllegalAddress);
}

TEST_CASE("double: two writes without an order are a race, whoever is first") {
  const bool ordered = GENERATE(false, true);
  const uint64_t seed = GENERATE(0, 1, 2, 3);
  Settings settings;
  settings.seed = seed;
  Bench bench(settings);
  bench.set(0, 1);
  if (ordered)
    bench.order(0, 1);
  bench.set(1, 2);
  bench.finish();
  CHECK(faults(Fault::Kind::Race).size() == (ordered ? 0 : 1));
  if (ordered)
    CHECK(bench.memory[0] == 2);
}

TEST_CASE("double: what the host has waited for is ordered") {
  Bench bench;
  bench.set(0, 1);
  CHECK(cudaStreamSynchronize(bench.streams[0]) == cudaSuccess);
  bench.set(1, 2);
  bench.finish();
  CHECK(faults().empty());
}

TEST_CASE("double: a host function may not call CUDA") {
  Bench bench;
  CHECK(cudaLaunchHostFunc(
            bench.streams[0], [](void *) { (void)cudaStreamQuery(nullptr); },
            nullptr) == cudaSuccess);
  bench.finish();
  CHECK(faults(Fault::Kind::Misuse).size() == 1);
}

TEST_CASE("double: a capture must come back, and asks nothing") {
  Bench bench;
  cudaGraph_t graph = nullptr;
  const cudaStream_t first = bench.streams[0], second = bench.streams[1];
  const auto begin = [&] {
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
    bench.set(0, 1);
    bench.order(0, 1);
    bench.set(1, 2);
  };
  begin();
  CHECK(cudaStreamEndCapture(first, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(graph == nullptr);
  begin();
  CHECK(cudaStreamQuery(second) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(first, &graph) ==
        cudaErrorStreamCaptureInvalidated);

  bench.memory[0] = 9;
  begin();
  bench.order(1, 0);
  CHECK(cudaEventQuery(bench.events[1]) == cudaErrorCapturedEvent);
  CHECK(cudaStreamEndCapture(first, &graph) == cudaSuccess);
  bench.finish();
  CHECK(bench.memory[0] == 9); // noted, not done
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  for (int i = 0; i < 2; ++i) {
    bench.memory[0] = 9;
    CHECK(cudaGraphLaunch(exec, first) == cudaSuccess);
    bench.finish();
    CHECK(bench.memory[0] == 2);
  }
  CHECK(cudaStreamWaitEvent(second, bench.events[1], 0) ==
        cudaErrorCapturedEvent);
  CHECK(faults(Fault::Kind::Race).empty());
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
}

TEST_CASE("double: NCCL refuses two ranks on one device") {
  Bench bench;
  ncclUniqueId id;
  ncclComm_t handles[2];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRankConfig(&handles[0], 2, id, 0, &config) ==
        ncclInvalidArgument); // would block
  config.blocking = 0;
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank)
    CHECK(ncclCommInitRankConfig(&handles[rank], 2, id, rank, &config) ==
          ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInProgress);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(handles[0], &state) == ncclSuccess);
  CHECK(state == ncclInvalidUsage);
  for (ncclComm_t handle : handles)
    CHECK(ncclCommAbort(handle) == ncclSuccess);
  CHECK(ncclCommAbort(handles[0]) == ncclInvalidArgument);
}
