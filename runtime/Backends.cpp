//===- runtime/Backends.cpp - The table of backends ----------------------===//
#include "runtime/Backend.h"

namespace sluice::runtime {

static constexpr BackendInfo kBackends[] = {
#define SLUICE_BACKEND(Name, Text, HostMemory, Groups, SharedProcess,          \
                       Collectives)                                            \
  {Text, HostMemory, Groups, SharedProcess, Collectives, make##Name##World},
#include "runtime/Backends.def"
};

std::span<const BackendInfo> backends() { return kBackends; }

const BackendInfo *findBackend(std::string_view text) {
  for (const BackendInfo &row : kBackends)
    if (row.text == text)
      return &row;
  return nullptr;
}

} // namespace sluice::runtime
