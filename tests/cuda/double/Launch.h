//===- tests/cuda/double/Launch.h - runtime/cuda/Launch.h on the CPU ------===//
//
// The same two templates, included before the sources of the kernels: a launch
// is work in the queue of its stream, a team is one thread.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CUDA_LAUNCH_H // instead of the real one
#define SLUICE_RUNTIME_CUDA_LAUNCH_H

#include "runtime/cuda/Touched.h"

#include <functional>

#include <cuda_runtime_api.h>

#define SLUICE_DEVICE

namespace sluice::runtime::cuda {

struct Team {
  static constexpr unsigned thread() { return 0; }
  static constexpr unsigned size() { return 1; }
  template <typename T> T sum(T value) const { return value; }
  template <typename T> T largest(T value) const { return value; }
};

/// Enqueues `work` as a launch.
cudaError_t launchWork(cudaStream_t stream,
                       std::initializer_list<Touched> touched,
                       std::function<void()> work);

template <typename Body>
cudaError_t forEach(cudaStream_t stream, size_t count, const Body &body,
                    std::initializer_list<Touched> touched) {
  if (count == 0)
    return cudaSuccess;
  return launchWork(stream, touched, [body, count] {
    for (size_t i = 0; i < count; ++i)
      body(i);
  });
}

template <typename Body>
cudaError_t forEachRow(cudaStream_t stream, size_t rows, const Body &body,
                       std::initializer_list<Touched> touched) {
  if (rows == 0)
    return cudaSuccess;
  return launchWork(stream, touched, [body, rows] {
    for (size_t row = 0; row < rows; ++row)
      body(row, Team());
  });
}

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_LAUNCH_H
