//===- runtime/Memory.h - How much memory there is -----------------------===//
#ifndef SLUICE_RUNTIME_MEMORY_H
#define SLUICE_RUNTIME_MEMORY_H

#include "ir/Status.h"
#include "ir/Units.h"

#include <span>

namespace sluice::runtime {

/// Memory that this process can still get: what the machine has left, within
/// the limits on its address space and its control group.
Bytes availableMemory();

/// Refuses arenas, one per rank of this process, that do not fit into that
/// together.
Status admitArenas(std::span<const Bytes> arenas);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_MEMORY_H
