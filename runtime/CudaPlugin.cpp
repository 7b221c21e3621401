//===- runtime/CudaPlugin.cpp - Finds the backend `cuda` -----------------===//
#include "runtime/CudaPlugin.h"

#include <dlfcn.h>
#include <unistd.h>

namespace sluice::runtime {

/// Where the program lies; empty if the system does not say.
static std::string programFolder() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0 || static_cast<size_t>(length) == sizeof(path))
    return {};
  const std::string whole(path, static_cast<size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

/// Stays loaded until the process ends.
static void *open(std::string &faults) {
  const std::string folder = programFolder();
  for (const char *below : {"", "/../lib"}) {
    const std::string path = folder + below + "/libsluice_cuda.so";
    if (::access(path.c_str(), F_OK) != 0)
      continue;
    if (void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
      return library;
    faults = ::dlerror();
    return nullptr;
  }
  faults = "this build has none (it needs CUDA and NCCL): no libsluice_cuda.so "
           "beside the program";
  return nullptr;
}

Status makeCudaWorld(uint32_t ranks, std::span<const Channel> channels,
                     std::span<const Collective> collectives,
                     std::unique_ptr<World> &world) {
  std::string faults;
  void *library = open(faults);
  if (!library)
    return Status::environment("backend cuda: " + faults);
  auto *entry =
      reinterpret_cast<CudaPluginEntry *>(::dlsym(library, kCudaPluginEntry));
  if (!entry)
    return Status::environment("backend cuda: the library has no " +
                               std::string(kCudaPluginEntry));
  const CudaPlugin &plugin = *entry();
  if (plugin.version != kCudaPluginVersion)
    return Status::environment(
        "backend cuda: the library has version " +
        std::to_string(plugin.version) + ", this program needs " +
        std::to_string(kCudaPluginVersion) + "; build both together");
  return plugin.make(ranks, channels, collectives, world);
}

} // namespace sluice::runtime
