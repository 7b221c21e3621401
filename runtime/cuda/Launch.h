//===- runtime/cuda/Launch.h - Work over elements and over rows -----------===//
//
// What is computed on a device is a body over an index, or over a row by a team
// of threads. The two templates below are all that launches.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CUDA_LAUNCH_H
#define SLUICE_RUNTIME_CUDA_LAUNCH_H

#include "runtime/cuda/Touched.h"

#include <algorithm>

#include <cuda_runtime_api.h>

/// Of what a body calls.
#define SLUICE_DEVICE __device__

namespace sluice::runtime::cuda {

inline constexpr unsigned kTeamThreads = 256;
inline constexpr size_t kMostBlocks = 65535;

/// The threads that work on one row. Sums are made in an order that depends on
/// nothing but the number of threads.
struct Team {
  __device__ unsigned thread() const { return threadIdx.x; }
  __device__ static constexpr unsigned size() { return kTeamThreads; }

  /// The sum of all threads' values, for all of them.
  template <typename T> __device__ T sum(T value) const {
    return combine(value, [](T a, T b) { return a + b; });
  }
  template <typename T> __device__ T largest(T value) const {
    return combine(value, [](T a, T b) { return a < b ? b : a; });
  }

private:
  static constexpr unsigned kWarp = 32, kWarps = kTeamThreads / kWarp;

  template <typename T, typename Combine>
  __device__ T combine(T value, Combine with) const {
    __shared__ T parts[kWarps];
    for (unsigned other = kWarp / 2; other != 0; other /= 2)
      value = with(value, __shfl_xor_sync(0xffffffffu, value, other));
    if (threadIdx.x % kWarp == 0)
      parts[threadIdx.x / kWarp] = value;
    __syncthreads();
    T all = parts[0];
    for (unsigned warp = 1; warp < kWarps; ++warp)
      all = with(all, parts[warp]);
    __syncthreads(); // before the next one writes
    return all;
  }
};

template <typename Body>
__global__ void bodyForEach(const Body body, size_t count) {
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    body(i);
}

template <typename Body>
__global__ void bodyForEachRow(const Body body, size_t rows) {
  for (size_t row = blockIdx.x; row < rows; row += gridDim.x)
    body(row, Team());
}

/// Enqueues body(0) … body(count - 1), in any order, on `stream`, which is one
/// of the current device. `touched` is all that it reads and writes.
template <typename Body>
cudaError_t forEach(cudaStream_t stream, size_t count, const Body &body,
                    std::initializer_list<Touched>) {
  if (count == 0)
    return cudaSuccess;
  const size_t blocks =
      std::min(kMostBlocks, (count + kTeamThreads - 1) / kTeamThreads);
  bodyForEach<<<static_cast<unsigned>(blocks), kTeamThreads, 0, stream>>>(
      body, count);
  return cudaGetLastError();
}

/// The same of body(row, team).
template <typename Body>
cudaError_t forEachRow(cudaStream_t stream, size_t rows, const Body &body,
                       std::initializer_list<Touched>) {
  if (rows == 0)
    return cudaSuccess;
  bodyForEachRow<<<static_cast<unsigned>(std::min(kMostBlocks, rows)),
                   kTeamThreads, 0, stream>>>(body, rows);
  return cudaGetLastError();
}

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_LAUNCH_H
