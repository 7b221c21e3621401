//===- runtime/cuda/Kernels.cu --------------------------------------------===//
#include "runtime/cuda/Kernels.h"

#include <algorithm>

namespace sluice::runtime::cuda {

template <typename T>
__global__ void addKernel(T *target, const T *other, size_t count) {
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    target[i] += other[i];
}

template <typename T>
static cudaError_t add(cudaStream_t stream, void *target, const void *other,
                       Bytes bytes) {
  constexpr unsigned kThreads = 256;
  constexpr size_t kBlocks = 1024;
  const size_t count = bytes / sizeof(T);
  if (count == 0)
    return cudaSuccess;
  const auto blocks = static_cast<unsigned>(
      std::min(kBlocks, (count + kThreads - 1) / kThreads));
  addKernel<T><<<blocks, kThreads, 0, stream>>>(
      static_cast<T *>(target), static_cast<const T *>(other), count);
  return cudaGetLastError();
}

cudaError_t addInPlace(cudaStream_t stream, Element element, void *target,
                       const void *other, Bytes bytes) {
  switch (element) {
  case Element::Float32:
    return add<float>(stream, target, other, bytes);
  case Element::Float64:
    return add<double>(stream, target, other, bytes);
  case Element::None:
    return cudaSuccess; // nothing to add: loading knows no such operation
  }
  return cudaSuccess; // not reached: the switch is complete
}

} // namespace sluice::runtime::cuda
