//===- runtime/cuda/Kernels.cu --------------------------------------------===//
#include "runtime/cuda/Kernels.h"

#include "runtime/cuda/Launch.h"

namespace sluice::runtime::cuda {

template <typename T> struct AddInPlace {
  T *target;
  const T *other;
  SLUICE_DEVICE void operator()(size_t i) const { target[i] += other[i]; }
};

template <typename T>
static cudaError_t add(cudaStream_t stream, void *target, const void *other,
                       Bytes bytes) {
  const AddInPlace<T> body = {static_cast<T *>(target),
                              static_cast<const T *>(other)};
  const size_t count = bytes / sizeof(T);
  return forEach(stream, count, body,
                 {reads(body.other, count), writes(body.target, count)});
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
