//===- runtime/Backends.cpp - The table of backends ----------------------===//
#include "runtime/Backend.h"

#include "runtime/Modules.h"

#include <climits>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <unistd.h>

// Backends that are built as plug-ins, with a blank around each.
#ifndef SLUICE_PLUGINS
#error "SLUICE_PLUGINS comes from the build"
#endif

namespace sluice::runtime {

#define SLUICE_WHERE_BuiltIn(Name, Text)                                       \
  "", { make##Name##World, nullptr, nullptr, nullptr }
#define SLUICE_WHERE_Plugin(Name, Text)                                        \
  "libsluice_" Text ".so", {}
static constexpr BackendInfo kBackends[] = {
#define SLUICE_BACKEND(Name, Text, HostMemory, Groups, SharedProcess,          \
                       Collectives, Where)                                     \
  {Text,          HostMemory,  Groups,                                         \
   SharedProcess, Collectives, SLUICE_WHERE_##Where(Name, Text)},
#include "runtime/Backends.def"
};

std::span<const BackendInfo> backends() { return kBackends; }

const BackendInfo *findBackend(std::string_view text) {
  for (const BackendInfo &row : kBackends)
    if (row.text == text)
      return &row;
  return nullptr;
}

bool BackendInfo::isBuilt() const {
  const std::string wanted = " " + std::string(text) + " ";
  return library.empty() ||
         std::string_view(SLUICE_PLUGINS).find(wanted) != std::string::npos;
}

/// The folder of the running program, ending with '/'.
static std::string programFolder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string whole(path, length > 0 ? static_cast<size_t>(length) : 0);
  return whole.substr(0, whole.rfind('/') + 1);
}

/// Loads `library` from where programs and their libraries stand beside each
/// other. It stays loaded.
static Status loadPlugin(std::string_view text, std::string_view library,
                         BackendFunctions &functions) {
  const std::string folder = programFolder();
  std::string why;
  void *handle = nullptr;
  for (const char *beside : {"", "../lib/", "../bin/"}) {
    const std::string path = folder + beside + std::string(library);
    if (::access(path.c_str(), R_OK) != 0)
      continue;
    handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle)
      break;
    why = ::dlerror();
  }
  const std::string prefix = "cannot load backend " + std::string(text) + ": ";
  if (!handle)
    return Status::environment(
        prefix + (why.empty() ? "there is no " + std::string(library) +
                                    " beside the program or in ../lib"
                              : why));
  const auto *plugin =
      static_cast<const BackendPlugin *>(::dlsym(handle, "sluice_backend"));
  if (!plugin || plugin->version != kBackendVersion)
    return Status::environment(prefix + std::string(library) +
                               " is of another version of the program");
  functions = plugin->functions;
  return {};
}

Status BackendInfo::functions(const BackendFunctions *&found) const {
  if (library.empty()) {
    found = &builtIn;
    return {};
  }
  if (!isBuilt())
    return Status::environment("this program was built without backend " +
                               std::string(text));
  static std::mutex mutex;
  static std::map<std::string_view, BackendFunctions> loaded;
  const std::lock_guard lock(mutex);
  BackendFunctions &of = loaded[text];
  if (!of.make)
    if (Status s = loadPlugin(text, library, of); !s.ok())
      return s;
  found = &of;
  return {};
}

Status BackendInfo::placeModule(const sluice_module *&module,
                                bool &isOnDevice) const {
  const BackendFunctions *found = nullptr;
  if (Status s = functions(found); !s.ok())
    return s;
  const sluice_module *const own =
      found->moduleOnDevice && module == findModule(module->name)
          ? found->moduleOnDevice(module->name)
          : nullptr;
  isOnDevice = own != nullptr;
  if (own)
    module = own;
  return {};
}

Status BackendInfo::make(uint32_t ranks, std::span<const Channel> channels,
                         std::span<const Collective> collectives,
                         std::unique_ptr<World> &world) const {
  const BackendFunctions *found = nullptr;
  Status status = functions(found);
  return status.ok() ? found->make(ranks, channels, collectives, world)
                     : status;
}

} // namespace sluice::runtime
