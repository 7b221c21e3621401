//===- runtime/cuda/gpt/Products.h - Matrix products by cublasLt ----------===//
#ifndef SLUICE_RUNTIME_CUDA_GPT_PRODUCTS_H
#define SLUICE_RUNTIME_CUDA_GPT_PRODUCTS_H

#include "runtime/cuda/Codes.h"
#include "runtime/modules/gpt/BFloat16.h"
#include "runtime/modules/gpt/Primitives.h"

#include <array>

namespace sluice::runtime::cuda {

template <typename Real> inline constexpr cudaDataType_t kNumbers = CUDA_R_32F;
template <>
inline constexpr cudaDataType_t kNumbers<gpt::BFloat16> = CUDA_R_16BF;

/// A matrix as gpt::Matrix, of any type.
struct Operand {
  const void *data;
  size_t rows, columns, stride;
  bool transposed;

  Operand() = default;
  template <typename Real>
  explicit Operand(const gpt::Matrix<Real> &of)
      : data(of.data), rows(of.rows), columns(of.columns), stride(of.stride),
        transposed(of.transposed) {}
};

/// d = a b (+ bias, a row that is added to each) (+ c); rows of c and d are
/// `stride` apart.
struct ProductCall {
  Operand a, b;
  cudaDataType_t in; ///< of a and b
  const void *bias = nullptr;
  const void *c = nullptr; ///< null: nothing is added; may be d
  void *d = nullptr;
  size_t stride = 0;
  cudaDataType_t out; ///< of bias, c and d
  gpt::Batches batches = {};
};

/// The library's handle, and for each product that was asked for once how it
/// is computed: in 32 bits, without a workspace, in an order of sums that is
/// always the same.
class Products {
public:
  Products() = default;
  Products(const Products &) = delete;
  Products &operator=(const Products &) = delete;
  ~Products();

  Answer open();
  /// Enqueues it on `stream`, of the current device. Allocates nothing.
  Answer multiply(cudaStream_t stream, const ProductCall &call);

private:
  /// All that an algorithm is chosen by. The library's matrices are stored
  /// column by column: of a product of ours, stored row by row, it computes the
  /// transpose, with the operands in the other order.
  struct Shape {
    uint64_t m, n, k;
    int64_t first, second, result; ///< elements from column to column
    int64_t firstStep, secondStep, resultStep; ///< from batch to batch
    int32_t batches;
    cudaDataType_t in, out;
    bool transposesFirst, transposesSecond, hasBias;
    /// Of first, second, c, result, and of the bias.
    std::array<uint32_t, 5> alignments;
    bool operator==(const Shape &) const = default;
  };
  struct Entry {
    Shape shape;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t first, second, result;
    cublasLtMatmulAlgo_t algorithm;
  };
  /// As a stage has shapes of products, and more.
  static constexpr size_t kMost = 64;

  static Shape shapeOf(const ProductCall &call);
  Answer find(const ProductCall &call, Entry *&entry);
  Answer prepare(Entry &entry, const void *bias);
  Answer choose(Entry &entry);

  cublasLtHandle_t handle = nullptr;
  std::array<Entry, kMost> entries;
  size_t used = 0, next = 0;
};

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_GPT_PRODUCTS_H
