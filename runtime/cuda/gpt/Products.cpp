//===- runtime/cuda/gpt/Products.cpp - Matrix products by cublasLt --------===//
#include "runtime/cuda/gpt/Products.h"

#include <algorithm>
#include <iterator>

namespace sluice::runtime::cuda {

namespace {

/// Calls of the library one after the other, until one fails.
class Calls {
public:
  template <typename Make> void operator()(const char *call, Make make) {
    if (answer.ok())
      answer = answerOf(make(), call);
  }
  template <typename Value>
  void set(cublasLtMatmulDescOpaque_t &of, cublasLtMatmulDescAttributes_t what,
           const Value &value) {
    (*this)("cublasLtMatmulDescSetAttribute", [&] {
      return cublasLtMatmulDescSetAttribute(&of, what, &value, sizeof(value));
    });
  }
  template <typename Value>
  void set(cublasLtMatrixLayoutOpaque_t &of,
           cublasLtMatrixLayoutAttribute_t what, const Value &value) {
    (*this)("cublasLtMatrixLayoutSetAttribute", [&] {
      return cublasLtMatrixLayoutSetAttribute(&of, what, &value, sizeof(value));
    });
  }
  template <typename Value>
  void set(cublasLtMatmulPreferenceOpaque_t &of,
           cublasLtMatmulPreferenceAttributes_t what, const Value &value) {
    (*this)("cublasLtMatmulPreferenceSetAttribute", [&] {
      return cublasLtMatmulPreferenceSetAttribute(&of, what, &value,
                                                  sizeof(value));
    });
  }
  void layout(cublasLtMatrixLayoutOpaque_t &of, cudaDataType_t type,
              uint64_t rows, uint64_t columns, int64_t leading, int32_t batches,
              int64_t step) {
    (*this)("cublasLtMatrixLayoutInit", [&] {
      return cublasLtMatrixLayoutInit(&of, type, rows, columns, leading);
    });
    if (batches == 1)
      return;
    set(of, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches);
    set(of, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }

  Answer answer;
};

/// The largest power of two that divides an address, up to what a library
/// takes for the best.
uint32_t alignmentOf(const void *data) {
  constexpr uintptr_t kBest = 256;
  const auto at = reinterpret_cast<uintptr_t>(data) | kBest;
  return static_cast<uint32_t>(at & (~at + 1));
}

} // namespace

Products::~Products() {
  if (handle)
    (void)cublasLtDestroy(handle);
}

Answer Products::open() {
  return answerOf(cublasLtCreate(&handle), "cublasLtCreate");
}

Products::Shape Products::shapeOf(const ProductCall &call) {
  const Operand &first = call.b, &second = call.a;
  const void *const added = call.c ? call.c : call.d;
  return {.m = first.columns,
          .n = second.rows,
          .k = first.rows,
          .first = static_cast<int64_t>(first.stride),
          .second = static_cast<int64_t>(second.stride),
          .result = static_cast<int64_t>(call.stride),
          .firstStep = static_cast<int64_t>(call.batches.b),
          .secondStep = static_cast<int64_t>(call.batches.a),
          .resultStep = static_cast<int64_t>(call.batches.c),
          .batches = static_cast<int32_t>(call.batches.count),
          .in = call.in,
          .out = call.out,
          .transposesFirst = first.transposed,
          .transposesSecond = second.transposed,
          .hasBias = call.bias != nullptr,
          .alignments = {alignmentOf(first.data), alignmentOf(second.data),
                         alignmentOf(added), alignmentOf(call.d),
                         alignmentOf(call.bias)}};
}

/// Of more shapes than there are entries, the oldest go.
Answer Products::find(const ProductCall &call, Entry *&entry) {
  const Shape shape = shapeOf(call);
  const auto known =
      std::find_if(entries.begin(), entries.begin() + used,
                   [&](const Entry &each) { return each.shape == shape; });
  entry = known;
  if (known != entries.begin() + used)
    return {};
  entry = &entries[next];
  entry->shape = shape;
  Answer answer = prepare(*entry, call.bias);
  if (!answer.ok())
    return answer;
  next = (next + 1) % kMost;
  used = std::min(used + 1, kMost);
  return {};
}

/// The library looks at the bias to see how it is aligned.
Answer Products::prepare(Entry &entry, const void *bias) {
  const Shape &shape = entry.shape;
  const auto turned = [](bool isTransposed) {
    return isTransposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  Calls calls;
  calls("cublasLtMatmulDescInit", [&] {
    return cublasLtMatmulDescInit(&entry.operation, CUBLAS_COMPUTE_32F,
                                  CUDA_R_32F);
  });
  calls.set(entry.operation, CUBLASLT_MATMUL_DESC_TRANSA,
            turned(shape.transposesFirst));
  calls.set(entry.operation, CUBLASLT_MATMUL_DESC_TRANSB,
            turned(shape.transposesSecond));
  if (bias) {
    calls.set(entry.operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
              CUBLASLT_EPILOGUE_BIAS);
    calls.set(entry.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  // As they are stored: before they are transposed.
  const bool turnsFirst = shape.transposesFirst;
  const bool turnsSecond = shape.transposesSecond;
  calls.layout(entry.first, shape.in, turnsFirst ? shape.k : shape.m,
               turnsFirst ? shape.m : shape.k, shape.first, shape.batches,
               shape.firstStep);
  calls.layout(entry.second, shape.in, turnsSecond ? shape.n : shape.k,
               turnsSecond ? shape.k : shape.n, shape.second, shape.batches,
               shape.secondStep);
  calls.layout(entry.result, shape.out, shape.m, shape.n, shape.result,
               shape.batches, shape.resultStep);
  return calls.answer.ok() ? choose(entry) : calls.answer;
}

/// The best algorithm by the library's own judgement.
Answer Products::choose(Entry &entry) {
  const Shape &shape = entry.shape;
  cublasLtMatmulPreferenceOpaque_t preference;
  Calls calls;
  calls("cublasLtMatmulPreferenceInit",
        [&] { return cublasLtMatmulPreferenceInit(&preference); });
  calls.set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(0));
  calls.set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
            uint32_t(CUBLASLT_REDUCTION_SCHEME_NONE));
  constexpr cublasLtMatmulPreferenceAttributes_t kAlignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  for (size_t i = 0; i < std::size(kAlignments); ++i)
    calls.set(preference, kAlignments[i], shape.alignments[i]);
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  calls("cublasLtMatmulAlgoGetHeuristic", [&] {
    return cublasLtMatmulAlgoGetHeuristic(
        handle, &entry.operation, &entry.first, &entry.second, &entry.result,
        &entry.result, &preference, 1, &found, &count);
  });
  if (calls.answer.ok() && (count == 0 || found.state != CUBLAS_STATUS_SUCCESS))
    return {"cublasLtMatmulAlgoGetHeuristic: no algorithm for a product of " +
            std::to_string(shape.m) + "x" + std::to_string(shape.k) + " by " +
            std::to_string(shape.k) + "x" + std::to_string(shape.n)};
  entry.algorithm = found.algo;
  return calls.answer;
}

Answer Products::multiply(cudaStream_t stream, const ProductCall &call) {
  Entry *entry = nullptr;
  if (Answer answer = find(call, entry); !answer.ok())
    return answer;
  if (call.bias)
    if (Answer answer =
            answerOf(cublasLtMatmulDescSetAttribute(
                         &entry->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                         &call.bias, sizeof(call.bias)),
                     "cublasLtMatmulDescSetAttribute");
        !answer.ok())
      return answer;
  const float alpha = 1, beta = call.c ? 1 : 0;
  return answerOf(cublasLtMatmul(handle, &entry->operation, &alpha, call.b.data,
                                 &entry->first, call.a.data, &entry->second,
                                 &beta, call.c ? call.c : call.d,
                                 &entry->result, call.d, &entry->result,
                                 &entry->algorithm, nullptr, 0, stream),
                  "cublasLtMatmul");
}

} // namespace sluice::runtime::cuda
