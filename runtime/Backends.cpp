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

Status checkPaths(uint32_t ranks, std::span<const Channel> channels,
                  std::span<const Collective> collectives) {
  for (const Channel &channel : channels)
    if (channel.source >= ranks || channel.destination >= ranks)
      return Status::input(
          "a channel goes from rank " + std::to_string(channel.source) +
          " to rank " + std::to_string(channel.destination) +
          ", but there are " + std::to_string(ranks) + " ranks");
  for (const Collective &of : collectives)
    for (const Id rank : of.ranks)
      if (rank >= ranks)
        return Status::input("a collective names rank " + std::to_string(rank) +
                             ", but there are " + std::to_string(ranks) +
                             " ranks");
  return {};
}

} // namespace sluice::runtime
