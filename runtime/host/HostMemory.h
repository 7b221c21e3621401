//===- runtime/host/HostMemory.h - How much memory there is --------------===//
#ifndef SLUICE_RUNTIME_HOST_HOSTMEMORY_H
#define SLUICE_RUNTIME_HOST_HOSTMEMORY_H

#include "ir/Status.h"
#include "ir/Units.h"

#include <span>

namespace sluice::runtime {

/// Memory that this process can still get: what the machine has left, within
/// the limits on its address space and its control group.
Bytes availableMemory();

/// Refuses arenas, one per rank, that do not fit into it together.
Status admitToHost(std::span<const Bytes> arenas);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_HOST_HOSTMEMORY_H
