//===- tests/cuda/double/Kernels.cpp - runtime/cuda/Kernels.cu on the CPU -===//
#include "runtime/cuda/Kernels.h"

#include "tests/cuda/double/Engine.h"

namespace sluice::runtime::cuda {

using namespace sluice::cudadouble;

template <typename T>
static void add(void *target, const void *other, Bytes bytes) {
  for (Bytes i = 0; i < bytes / sizeof(T); ++i)
    static_cast<T *>(target)[i] += static_cast<const T *>(other)[i];
}

cudaError_t addInPlace(cudaStream_t stream, Element element, void *target,
                       const void *other, Bytes bytes) {
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  if (engine.fails("cudaLaunchKernel"))
    return cudaErrorUnknown;
  Stream &on = *reinterpret_cast<Stream *>(stream);
  if (engine.host().device != on.device) {
    engine.fault(Fault::Kind::Misuse, "a kernel on another device's stream");
    return cudaErrorInvalidResourceHandle;
  }
  Item item;
  item.call = "cudaLaunchKernel";
  item.accesses = {{other, bytes, false}, {target, bytes, true}};
  item.work = [=] {
    switch (element) {
    case Element::Float32:
      return add<float>(target, other, bytes);
    case Element::Float64:
      return add<double>(target, other, bytes);
    case Element::None:
      return;
    }
  };
  engine.enqueue(on, std::move(item));
  return cudaSuccess;
}

} // namespace sluice::runtime::cuda
