//===- runtime/modules/gpt/MatrixProduct.h - Products by the library -----===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_MATRIXPRODUCT_H
#define SLUICE_RUNTIME_MODULES_GPT_MATRIXPRODUCT_H

#include "ir/Status.h"

#include <cstddef>
#include <cstdint>

namespace sluice::gpt {

/// A matrix stored row by row, `stride` elements from one row to the next;
/// `transposed`: the stored matrix is this one's transpose. Extents fit 31
/// bits.
template <typename Real> struct Matrix {
  const Real *data;
  size_t rows, columns, stride;
  bool transposed = false;
};

template <typename Real>
Matrix<Real> matrix(const Real *data, size_t rows, size_t columns) {
  return {data, rows, columns, columns};
}

template <typename Real>
Matrix<Real> matrix(const Real *data, size_t rows, size_t columns,
                    size_t stride) {
  return {data, rows, columns, stride};
}

template <typename Real> Matrix<Real> transpose(Matrix<Real> a) {
  return {a.data, a.columns, a.rows, a.stride, !a.transposed};
}

enum class Into : bool { Overwrite, Add };

/// After prepareMatrixProducts: c = a b, or c += a b, with rows of c `stride`
/// apart. c overlaps neither.
void multiply(Matrix<float> a, Matrix<float> b, float *c, size_t stride,
              Into into = Into::Overwrite);
void multiply(Matrix<double> a, Matrix<double> b, double *c, size_t stride,
              Into into = Into::Overwrite);

/// The same with c's rows one after the other.
template <typename Real>
void multiply(Matrix<Real> a, Matrix<Real> b, Real *c,
              Into into = Into::Overwrite) {
  multiply(a, b, c, b.columns, into);
}

/// Loads the library, sets it to one thread and compares some of its products
/// with plain loops; done once in a process. Old versions of the library go
/// wrong on processors they do not know. `threads` will use it at a time: room
/// for them is looked for first. A fault says how to go on.
Status prepareMatrixProducts(uint32_t threads = 1);

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_MATRIXPRODUCT_H
