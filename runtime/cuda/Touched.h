//===- runtime/cuda/Touched.h - What a launch reads and writes ------------===//
#ifndef SLUICE_RUNTIME_CUDA_TOUCHED_H
#define SLUICE_RUNTIME_CUDA_TOUCHED_H

#include <cstddef>
#include <initializer_list>

namespace sluice::runtime::cuda {

/// Memory that a launch touches. A GPU does not ask; who proves that launches
/// are ordered does.
struct Touched {
  const void *data;
  size_t bytes;
  bool writes;
};

template <typename T> Touched reads(const T *data, size_t count) {
  return {data, data ? count * sizeof(T) : 0, false};
}
template <typename T> Touched writes(T *data, size_t count) {
  return {data, data ? count * sizeof(T) : 0, true};
}

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_TOUCHED_H
