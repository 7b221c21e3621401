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

#include <cublasLt.h>
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

/// A product of column-major matrices of floats, with a bias where it has one.
struct LtProduct {
  LtProduct(uint64_t m, uint64_t n, uint64_t k) {
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F,
                                   CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    layout(a, m, k, m);
    layout(b, k, n, k);
    layout(d, m, n, m);
  }
  ~LtProduct() { (void)cublasLtDestroy(handle); }

  static void layout(cublasLtMatrixLayoutOpaque_t &of, uint64_t rows,
                     uint64_t columns, int64_t leading,
                     cudaDataType_t type = CUDA_R_32F) {
    REQUIRE(cublasLtMatrixLayoutInit(&of, type, rows, columns, leading) ==
            CUBLAS_STATUS_SUCCESS);
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    CHECK(cublasLtMatmulDescSetAttribute(&operation, attribute, &value,
                                         sizeof(value)) ==
          CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t choose(uint32_t alignment = 4) {
    cublasLtMatmulPreferenceOpaque_t preference;
    (void)cublasLtMatmulPreferenceInit(&preference);
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    (void)cublasLtMatmulPreferenceSetAttribute(
        &preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
        sizeof(none));
    for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      (void)cublasLtMatmulPreferenceSetAttribute(&preference, attribute,
                                                 &alignment, sizeof(alignment));
    int count = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, &operation, &a, &b, &d, &d,
                                          &preference, 1, &found, &count);
  }
  cublasStatus_t run(const void *aData, const void *bData, void *dData,
                     cudaStream_t stream, float beta = 0) {
    const float alpha = 1;
    return cublasLtMatmul(handle, &operation, &alpha, aData, &a, bData, &b,
                          &beta, dData, &d, dData, &d, &found.algo, nullptr, 0,
                          stream);
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;
  cublasLtMatmulHeuristicResult_t found = {};
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

TEST_CASE("double: products are those of the matrices, in stream order") {
  Bench bench;
  auto *const data = reinterpret_cast<float *>(bench.memory);
  // A = (1 3; 2 4) and B = (5 7; 6 8), column by column, then D and a bias.
  const float values[] = {1, 2, 3, 4, 5, 6, 7, 8, 100, 100, 100, 100, 10, 20};
  std::memcpy(data, values, sizeof(values));
  LtProduct product(2, 2, 2);
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  product.set<const void *>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, data + 12);
  REQUIRE(product.choose() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(product.run(data, data + 4, data + 8, bench.streams[0], 1) ==
          CUBLAS_STATUS_SUCCESS);
  CHECK(data[8] == 100); // not yet
  bench.finish();
  // A B = (23 31; 34 46): the first row gets 10 more, the second 20.
  CHECK(data[8] == 23 + 10 + 100);
  CHECK(data[9] == 34 + 20 + 100);
  CHECK(data[10] == 31 + 10 + 100);
  CHECK(data[11] == 46 + 20 + 100);
  // Aᵀ B = (17 23; 39 53), without a bias.
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  REQUIRE(product.choose() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(product.run(data, data + 4, data + 8, bench.streams[0]) ==
          CUBLAS_STATUS_SUCCESS);
  bench.finish();
  CHECK(data[8] == 17);
  CHECK(data[9] == 39);
  CHECK(data[10] == 23);
  CHECK(data[11] == 53);
  CHECK(faults().empty());
  CHECK(product.run(data, data + 4, data + 8, bench.streams[0]) ==
        CUBLAS_STATUS_SUCCESS);
  CHECK(product.run(data, data + 4, data + 8, bench.streams[1]) ==
        CUBLAS_STATUS_SUCCESS);
  bench.finish();
  CHECK(faults(Fault::Kind::Race).size() == 1);
}

TEST_CASE("double: a product that does not fit is refused") {
  Bench bench;
  auto *const data = reinterpret_cast<float *>(bench.memory);
  const auto refused = [&](auto change, bool chosen) {
    LtProduct product(2, 3, 4);
    if (chosen)
      REQUIRE(product.choose() == CUBLAS_STATUS_SUCCESS);
    change(product);
    return chosen ? product.run(data, data + 8, data + 20, bench.streams[0])
                  : product.choose();
  };
  const auto nothing = [](LtProduct &) {};
  CHECK(refused(nothing, false) == CUBLAS_STATUS_SUCCESS);
  CHECK(refused(nothing, true) == CUBLAS_STATUS_SUCCESS);
  CHECK(faults().empty());
  for (const bool chosen : {false, true}) {
    CHECK(refused([](LtProduct &p) { LtProduct::layout(p.a, 2, 5, 2); },
                  chosen) != CUBLAS_STATUS_SUCCESS);
    CHECK(refused([](LtProduct &p) { LtProduct::layout(p.b, 4, 3, 3); },
                  chosen) != CUBLAS_STATUS_SUCCESS);
    CHECK(
        refused(
            [](LtProduct &p) { LtProduct::layout(p.b, 4, 3, 4, CUDA_R_16BF); },
            chosen) != CUBLAS_STATUS_SUCCESS);
    CHECK(refused(
              [](LtProduct &p) {
                p.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
              },
              chosen) != CUBLAS_STATUS_SUCCESS);
  }
  CHECK(refused(
            [](LtProduct &p) {
              p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
            },
            true) == CUBLAS_STATUS_INVALID_VALUE);
  LtProduct product(2, 3, 4);
  REQUIRE(product.choose(16) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.run(data + 1, data + 12, data + 24, bench.streams[0]) ==
        CUBLAS_STATUS_NOT_SUPPORTED); // less aligned than was said
  float outside[8] = {};
  CHECK(product.run(outside, data + 12, data + 24, bench.streams[0]) !=
        CUBLAS_STATUS_SUCCESS);
  bench.finish();
}
