//===- runtime/CheckPaths.cpp - Channels and collectives to nowhere ------===//
#include "runtime/Backend.h"

namespace sluice::runtime {

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
