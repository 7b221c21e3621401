//===- tests/cuda/double/CublasLt.cpp - cublasLt, as far as used ----------===//
//
// Products of matrices that are stored column by column, of 32-bit and 16-bit
// (bfloat) numbers, summed in 32 bits, with batches and a bias. What the real
// library refuses of that, this one does; what it takes beyond is refused here.
//
//===----------------------------------------------------------------------===//
#include "runtime/modules/gpt/BFloat16.h"
#include "tests/cuda/double/Engine.h"

#include <cstring>
#include <new>

#include <cublasLt.h>

using namespace sluice::cudadouble;
using sluice::gpt::BFloat16;

namespace {

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transposeA, transposeB;
  cublasLtEpilogue_t epilogue;
  const void *bias;
};
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));

struct Layout {
  cudaDataType_t type;
  int32_t batches;
  uint64_t rows, columns;
  int64_t leading, step; ///< elements from column to column, batch to batch
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Preference {
  uint32_t reductions;
  uint32_t alignments[4]; ///< of A, B, C, D, in bytes
  uint64_t workspace;
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

/// What an algorithm was chosen for.
struct Choice {
  uint32_t alignments[4];
  uint64_t m, n, k;
};
static_assert(sizeof(Choice) <= sizeof(cublasLtMatmulAlgo_t));

template <typename Real, typename Opaque> Real &inside(Opaque *opaque) {
  void *const data = opaque->data;
  return *std::launder(static_cast<Real *>(data));
}
template <typename Real, typename Opaque>
const Real &inside(const Opaque *opaque) {
  const void *const data = opaque->data;
  return *std::launder(static_cast<const Real *>(data));
}

class Call {
public:
  explicit Call(const char *function)
      : engine(Engine::get()), name(function), lock(engine.mutex) {
    if (engine.fails(function))
      refused = CUBLAS_STATUS_INTERNAL_ERROR;
  }
  cublasStatus_t misuse(cublasStatus_t code, const std::string &what) const {
    engine.fault(Fault::Kind::Misuse, std::string(name) + ": " + what);
    return code;
  }

  Engine &engine;
  const char *name;
  Engine::Lock lock;
  cublasStatus_t refused = CUBLAS_STATUS_SUCCESS;
};

template <typename Real>
cublasStatus_t take(Real &to, const void *from, size_t bytes) {
  if (bytes != sizeof(to) || !from)
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

size_t bytesOf(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

bool isKnown(cudaDataType_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF;
}

/// Elements from the first to the last that a matrix touches.
size_t extentOf(const Layout &of) {
  return static_cast<size_t>(of.batches - 1) * static_cast<size_t>(of.step) +
         (of.columns - 1) * static_cast<size_t>(of.leading) + of.rows;
}

/// One product, checked.
struct Product {
  Operation operation;
  Layout a, b, c, d;

  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.columns; }
  uint64_t k() const {
    return operation.transposeA == CUBLAS_OP_N ? a.columns : a.rows;
  }

  /// Why the library refuses it; null if it does not.
  const char *refusal(bool overwrites) const {
    const bool turnsA = operation.transposeA != CUBLAS_OP_N;
    const bool turnsB = operation.transposeB != CUBLAS_OP_N;
    if (operation.compute != CUBLAS_COMPUTE_32F ||
        operation.scale != CUDA_R_32F)
      return "computes other than in 32 bits";
    for (const Layout *each : {&a, &b, &c, &d}) {
      if (!isKnown(each->type))
        return "has numbers of another type";
      if (each->rows == 0 || each->columns == 0 || each->batches < 1)
        return "has no elements";
      if (each->leading < static_cast<int64_t>(each->rows))
        return "has columns closer than its rows are many";
    }
    if (a.type != b.type || c.type != d.type ||
        (d.type != a.type && d.type != CUDA_R_32F))
      return "mixes types";
    if ((turnsA ? a.columns : a.rows) != m() ||
        (turnsB ? b.rows : b.columns) != n() ||
        (turnsB ? b.columns : b.rows) != k() || c.rows != d.rows ||
        c.columns != d.columns)
      return "has matrices that do not fit each other";
    if (a.batches != d.batches || b.batches != d.batches ||
        c.batches != d.batches)
      return "has different counts of batches";
    if (d.batches > 1 && static_cast<int64_t>(d.rows) > d.step)
      return "has batches of the result over each other";
    if (operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
        operation.epilogue != CUBLASLT_EPILOGUE_BIAS)
      return "has another epilogue";
    if (operation.epilogue == CUBLASLT_EPILOGUE_BIAS && !operation.bias &&
        overwrites)
      return "has no bias";
    return nullptr;
  }
};

Product productOf(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                  cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                  cublasLtMatrixLayout_t d) {
  return {inside<Operation>(operation), inside<Layout>(a), inside<Layout>(b),
          inside<Layout>(c), inside<Layout>(d)};
}

float load(const void *data, cudaDataType_t type, size_t i) {
  return type == CUDA_R_32F ? static_cast<const float *>(data)[i]
                            : float(static_cast<const BFloat16 *>(data)[i]);
}

void store(void *data, cudaDataType_t type, size_t i, float value) {
  if (type == CUDA_R_32F)
    static_cast<float *>(data)[i] = value;
  else
    static_cast<BFloat16 *>(data)[i] = BFloat16(value);
}

/// Element (row, column) of a batch.
size_t at(const Layout &of, size_t batch, size_t row, size_t column) {
  return batch * static_cast<size_t>(of.step) +
         column * static_cast<size_t>(of.leading) + row;
}

struct Operands {
  const void *a, *b, *c;
  void *d;
  float alpha, beta;
};

float element(const Product &of, const Operands &with, size_t batch, size_t row,
              size_t column) {
  const bool turnsA = of.operation.transposeA != CUBLAS_OP_N;
  const bool turnsB = of.operation.transposeB != CUBLAS_OP_N;
  float sum = 0;
  for (size_t k = 0; k < of.k(); ++k)
    sum +=
        load(with.a, of.a.type,
             turnsA ? at(of.a, batch, k, row) : at(of.a, batch, row, k)) *
        load(with.b, of.b.type,
             turnsB ? at(of.b, batch, column, k) : at(of.b, batch, k, column));
  sum *= with.alpha;
  if (with.beta != 0) // else what is there is not read
    sum += with.beta * load(with.c, of.c.type, at(of.c, batch, row, column));
  if (of.operation.epilogue == CUBLASLT_EPILOGUE_BIAS)
    sum += load(of.operation.bias, of.d.type, row);
  return sum;
}

void multiply(const Product &of, const Operands &with) {
  for (size_t batch = 0; batch < static_cast<size_t>(of.d.batches); ++batch)
    for (size_t column = 0; column < of.n(); ++column)
      for (size_t row = 0; row < of.m(); ++row)
        store(with.d, of.d.type, at(of.d, batch, row, column),
              element(of, with, batch, row, column));
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  Call call("cublasLtCreate");
  if (call.refused != CUBLAS_STATUS_SUCCESS)
    return call.refused;
  void *made = ::operator new(1);
  call.engine.libraries.insert(made);
  *handle = static_cast<cublasLtHandle_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  Call call("cublasLtDestroy");
  if (call.refused != CUBLAS_STATUS_SUCCESS)
    return call.refused;
  if (call.engine.libraries.erase(handle) == 0)
    return call.misuse(CUBLAS_STATUS_NOT_INITIALIZED, "twice");
  ::operator delete(static_cast<void *>(handle));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation,
                                               size_t size,
                                               cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  Call call("cublasLtMatmulDescInit");
  if (size != sizeof(*operation))
    return CUBLAS_STATUS_INVALID_VALUE;
  inside<Operation>(operation) = {
      compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
      nullptr};
  return call.refused;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                               cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes) {
  Call call("cublasLtMatmulDescSetAttribute");
  if (call.refused != CUBLAS_STATUS_SUCCESS)
    return call.refused;
  auto &of = inside<Operation>(operation);
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
    return take(of.transposeA, value, bytes);
  case CUBLASLT_MATMUL_DESC_TRANSB:
    return take(of.transposeB, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    return take(of.epilogue, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    return take(of.bias, value, bytes);
  default:
    return call.misuse(CUBLAS_STATUS_NOT_SUPPORTED, "another attribute");
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout,
                                                 size_t size, cudaDataType type,
                                                 uint64_t rows,
                                                 uint64_t columns,
                                                 int64_t leading) {
  Call call("cublasLtMatrixLayoutInit");
  if (size != sizeof(*layout))
    return CUBLAS_STATUS_INVALID_VALUE;
  inside<Layout>(layout) = {type, 1, rows, columns, leading, 0};
  return call.refused;
}

cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                 cublasLtMatrixLayoutAttribute_t attribute,
                                 const void *value, size_t bytes) {
  Call call("cublasLtMatrixLayoutSetAttribute");
  if (call.refused != CUBLAS_STATUS_SUCCESS)
    return call.refused;
  auto &of = inside<Layout>(layout);
  switch (attribute) {
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
    return take(of.batches, value, bytes);
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
    return take(of.step, value, bytes);
  default:
    return call.misuse(CUBLAS_STATUS_NOT_SUPPORTED, "another attribute");
  }
}

cublasStatus_t
cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                      size_t size) {
  Call call("cublasLtMatmulPreferenceInit");
  if (size != sizeof(*preference))
    return CUBLAS_STATUS_INVALID_VALUE;
  inside<Preference>(preference) = {
      CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}, 0};
  return call.refused;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t bytes) {
  Call call("cublasLtMatmulPreferenceSetAttribute");
  if (call.refused != CUBLAS_STATUS_SUCCESS)
    return call.refused;
  auto &of = inside<Preference>(preference);
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    return take(of.workspace, value, bytes);
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    return take(of.reductions, value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    return take(of.alignments[0], value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    return take(of.alignments[1], value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    return take(of.alignments[2], value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return take(of.alignments[3], value, bytes);
  default:
    return call.misuse(CUBLAS_STATUS_NOT_SUPPORTED, "another attribute");
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int most,
    cublasLtMatmulHeuristicResult_t found[], int *count) {
  Call call("cublasLtMatmulAlgoGetHeuristic");
  if (call.refused != CUBLAS_STATUS_SUCCESS)
    return call.refused;
  if (!call.engine.libraries.count(handle))
    return call.misuse(CUBLAS_STATUS_NOT_INITIALIZED, "without a handle");
  const Product product = productOf(operation, a, b, c, d);
  *count = 0;
  if (const char *why = product.refusal(false))
    return call.misuse(CUBLAS_STATUS_NOT_SUPPORTED, why);
  const auto &of = inside<Preference>(preference);
  if (of.reductions != CUBLASLT_REDUCTION_SCHEME_NONE)
    return call.misuse(CUBLAS_STATUS_NOT_SUPPORTED,
                       "sums that may come in another order");
  if (most < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  *count = 1;
  found[0] = {};
  found[0].state = CUBLAS_STATUS_SUCCESS;
  Choice choice = {{}, product.m(), product.n(), product.k()};
  std::copy_n(of.alignments, 4, choice.alignments);
  inside<Choice>(&found[0].algo) = choice;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
               const void *alpha, const void *a, cublasLtMatrixLayout_t aLayout,
               const void *b, cublasLtMatrixLayout_t bLayout, const void *beta,
               const void *c, cublasLtMatrixLayout_t cLayout, void *d,
               cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t *algo,
               void *, size_t workspace, cudaStream_t stream) {
  Call call("cublasLtMatmul");
  if (call.refused != CUBLAS_STATUS_SUCCESS)
    return call.refused;
  Engine &engine = call.engine;
  if (!engine.libraries.count(handle))
    return call.misuse(CUBLAS_STATUS_NOT_INITIALIZED, "without a handle");
  Stream &on = *reinterpret_cast<Stream *>(stream);
  if (engine.host().device != on.device)
    return call.misuse(CUBLAS_STATUS_INVALID_VALUE,
                       "on another device's stream");
  const Product product =
      productOf(operation, aLayout, bLayout, cLayout, dLayout);
  if (const char *why = product.refusal(true))
    return call.misuse(CUBLAS_STATUS_INVALID_VALUE, why);
  if (!algo || workspace != 0)
    return call.misuse(CUBLAS_STATUS_NOT_SUPPORTED,
                       "without an algorithm, or with a workspace");
  const auto &choice = inside<Choice>(algo);
  if (choice.m != product.m() || choice.n != product.n() ||
      choice.k != product.k())
    return call.misuse(CUBLAS_STATUS_INVALID_VALUE,
                       "with the algorithm of another product");
  const Operands with = {a,
                         b,
                         c,
                         d,
                         *static_cast<const float *>(alpha),
                         *static_cast<const float *>(beta)};
  Item item;
  item.call = "cublasLtMatmul";
  const std::pair<const void *, const Layout *> operands[] = {
      {a, &product.a}, {b, &product.b}, {c, &product.c}, {d, &product.d}};
  for (size_t i = 0; i < 4; ++i) {
    const auto &[data, layout] = operands[i];
    const size_t bytes = extentOf(*layout) * bytesOf(layout->type);
    if (reinterpret_cast<uintptr_t>(data) % choice.alignments[i] != 0)
      return call.misuse(CUBLAS_STATUS_NOT_SUPPORTED,
                         "less aligned than its algorithm was chosen for");
    if (!engine.memory.holds(data, bytes))
      return call.misuse(CUBLAS_STATUS_EXECUTION_FAILED,
                         "outside of all memory");
    if (i != 2 || with.beta != 0)
      item.accesses.push_back({data, bytes, i == 3});
  }
  if (product.operation.epilogue == CUBLASLT_EPILOGUE_BIAS)
    item.accesses.push_back(
        {product.operation.bias, product.m() * bytesOf(product.d.type), false});
  item.work = [product, with] { multiply(product, with); };
  engine.enqueue(on, std::move(item));
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "the operation completed successfully";
  case CUBLAS_STATUS_INTERNAL_ERROR:
    return "an internal operation failed";
  default:
    return "an error of the double";
  }
}

} // extern "C"
