//===- runtime/modules/gpt/MatrixProduct.cpp - Products by the library ---===//
#include "runtime/modules/gpt/MatrixProduct.h"

#include "ir/Units.h"

#include <cblas.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace sluice::gpt {
namespace {

/// The functions of the matrix library that are used here. It is loaded with
/// the first stage, not with the program: OpenBLAS starts a thread for every
/// core as it is loaded, unless the environment says otherwise by then, and
/// those threads spin.
struct Library {
  Library();
  decltype(&cblas_sgemm) multiplySingle = nullptr;
  decltype(&cblas_dgemm) multiplyDouble = nullptr;
  decltype(&openblas_set_num_threads) setThreads = nullptr;
  decltype(&openblas_get_corename) kernelName = nullptr;
  std::string fault; ///< why the functions are not there; empty if they are
};

template <typename Function>
void find(void *handle, const char *name, Function &function,
          std::string &fault) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (!function)
    fault = std::string("it has no function ") + name;
}

Library::Library() {
  ::setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/1);
  void *handle = ::dlopen(SLUICE_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *reason = ::dlerror();
    fault = reason ? reason : "unknown reason";
    return;
  }
  find(handle, "cblas_sgemm", multiplySingle, fault);
  find(handle, "cblas_dgemm", multiplyDouble, fault);
  find(handle, "openblas_set_num_threads", setThreads, fault);
  find(handle, "openblas_get_corename", kernelName, fault);
}

/// What the library takes as it is loaded, and for every thread that is inside
/// it: OpenBLAS 0.3 asks for a buffer of 128 MiB, of which it touches little.
/// Where it gets none it asks again, for ever.
constexpr uint64_t kLibraryBytes = uint64_t(48) << 20;
constexpr uint64_t kThreadBytes = uint64_t(128) << 20;

/// Finds out whether the address space has room for that, by taking it.
Status checkRoom(uint32_t threads) {
  const uint64_t bytes = kLibraryBytes + threads * kThreadBytes;
  void *room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    return Status::environment("the matrix library " SLUICE_OPENBLAS " needs " +
                               formatBytes(bytes) + " of address space for " +
                               std::to_string(threads) +
                               " ranks, and there is less: see ulimit -v");
  ::munmap(room, bytes);
  return Status();
}

const Library &library() {
  static const Library kLibrary;
  return kLibrary;
}

CBLAS_TRANSPOSE orientation(bool transposed) {
  return transposed ? CblasTrans : CblasNoTrans;
}

/// Small whole numbers: sums of up to 2^17 products of theirs are exact in any
/// order, so that right and wrong are told apart without a tolerance.
template <typename Real>
std::vector<Real> wholeNumbers(size_t count, unsigned state) {
  std::vector<Real> values(count);
  for (Real &value : values) {
    state = state * 1664525u + 1013904223u;
    value = Real(int(state >> 28) - 8);
  }
  return values;
}

template <typename Real> Real at(const Matrix<Real> &a, size_t i, size_t j) {
  return a.transposed ? a.data[j * a.stride + i] : a.data[i * a.stride + j];
}

/// Adds a b to c with plain loops.
template <typename Real>
void multiplyPlainly(Matrix<Real> a, Matrix<Real> b, std::vector<Real> &c) {
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t j = 0; j < b.columns; ++j)
      for (size_t k = 0; k < a.columns; ++k)
        c[i * b.columns + j] += at(a, i, k) * at(b, k, j);
}

/// Whether the library gets one product right, for each way the model uses it.
template <typename Real> bool isRight(size_t m, size_t n, size_t k) {
  std::vector<Real> left = wholeNumbers<Real>(m * k, 1);
  std::vector<Real> right = wholeNumbers<Real>(k * n, 2);
  Matrix<Real> a = matrix<Real>(left.data(), m, k);
  Matrix<Real> b = matrix<Real>(right.data(), k, n);
  Matrix<Real> stored = matrix<Real>(left.data(), k, m);
  Matrix<Real> wide = matrix<Real>(right.data(), n, k);
  std::pair<Matrix<Real>, Matrix<Real>> pairs[] = {
      {a, b}, {a, transpose(wide)}, {transpose(stored), b}};
  for (const auto &[first, second] : pairs) {
    std::vector<Real> result = wholeNumbers<Real>(m * n, 3), expected = result;
    multiply(first, second, result.data(), Into::Add);
    multiplyPlainly(first, second, expected);
    if (result != expected)
      return false;
  }
  return true;
}

Status prepareOnce(uint32_t threads) {
  if (Status status = checkRoom(threads); !status.ok())
    return status;
  if (!library().fault.empty())
    return Status::environment("cannot load the matrix library " SLUICE_OPENBLAS
                               ": " +
                               library().fault);
  library().setThreads(1);
  constexpr size_t kShapes[][3] = {
      {1, 1, 1}, {3, 5, 7}, {17, 33, 65}, {64, 48, 80}, {9, 20, 700}};
  for (const auto &[m, n, k] : kShapes)
    if (!isRight<float>(m, n, k) || !isRight<double>(m, n, k))
      return Status::environment(
          "the matrix library computes a " + std::to_string(m) + "x" +
          std::to_string(k) + " by " + std::to_string(k) + "x" +
          std::to_string(n) + " product wrongly (OpenBLAS, kernel " +
          library().kernelName() +
          "): set OPENBLAS_CORETYPE=Haswell in the environment");
  return Status();
}

} // namespace

void multiply(Matrix<float> a, Matrix<float> b, float *c, size_t stride,
              Into into) {
  library().multiplySingle(
      CblasRowMajor, orientation(a.transposed), orientation(b.transposed),
      int(a.rows), int(b.columns), int(a.columns), 1.0f, a.data, int(a.stride),
      b.data, int(b.stride), into == Into::Add ? 1.0f : 0.0f, c, int(stride));
}

void multiply(Matrix<double> a, Matrix<double> b, double *c, size_t stride,
              Into into) {
  library().multiplyDouble(
      CblasRowMajor, orientation(a.transposed), orientation(b.transposed),
      int(a.rows), int(b.columns), int(a.columns), 1.0, a.data, int(a.stride),
      b.data, int(b.stride), into == Into::Add ? 1.0 : 0.0, c, int(stride));
}

Status prepareMatrixProducts(uint32_t threads) {
  static const Status kStatus = prepareOnce(threads);
  return kStatus;
}

} // namespace sluice::gpt
