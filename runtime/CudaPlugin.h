//===- runtime/CudaPlugin.h - What libsluice_cuda.so exports -------------===//
//
// The backend `cuda` is a shared library beside the program, loaded where a
// world of it is made, so that nothing else needs CUDA. Both are built from the
// same sources: the version says so.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CUDAPLUGIN_H
#define SLUICE_RUNTIME_CUDAPLUGIN_H

#include "runtime/Backend.h"

namespace sluice::runtime {

/// Raised whenever Backend.h or what it uses changes.
inline constexpr uint32_t kCudaPluginVersion = 1;

struct CudaPlugin {
  uint32_t version;
  Status (*make)(uint32_t ranks, std::span<const Channel> channels,
                 std::span<const Collective> collectives,
                 std::unique_ptr<World> &world);
};

/// `const CudaPlugin *sluice_cuda_plugin()`, in C's calling convention.
inline constexpr const char *kCudaPluginEntry = "sluice_cuda_plugin";
using CudaPluginEntry = const CudaPlugin *();

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_CUDAPLUGIN_H
