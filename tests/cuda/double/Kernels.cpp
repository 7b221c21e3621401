//===- tests/cuda/double/Kernels.cpp - The kernels on the CPU -------------===//
//
// The sources that nvcc compiles for GPUs, here for the CPU.
//
//===----------------------------------------------------------------------===//
#include "tests/cuda/double/Launch.h"

#include "runtime/cuda/Kernels.cu"
#include "runtime/cuda/gpt/EndKernels.cu"
#include "runtime/cuda/gpt/Kernels.cu"

#include "tests/cuda/double/Engine.h"

namespace sluice::runtime::cuda {

using namespace sluice::cudadouble;

cudaError_t launchWork(cudaStream_t stream,
                       std::initializer_list<Touched> touched,
                       std::function<void()> work) {
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
  for (const Touched &each : touched) {
    if (each.bytes == 0)
      continue;
    if (!engine.memory.holds(each.data, each.bytes)) {
      engine.fault(Fault::Kind::Misuse, "a kernel outside of all memory");
      return cudaErrorIllegalAddress;
    }
    item.accesses.push_back({each.data, each.bytes, each.writes});
  }
  item.work = std::move(work);
  engine.enqueue(on, std::move(item));
  return cudaSuccess;
}

} // namespace sluice::runtime::cuda
