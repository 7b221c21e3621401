//===- tools/sluice/LargePages.h - Memory in large pages ------------------===//
#ifndef SLUICE_TOOLS_SLUICE_LARGEPAGES_H
#define SLUICE_TOOLS_SLUICE_LARGEPAGES_H

namespace sluice {

/// Asks for large pages under what this process allocates from now on, and
/// keeps what it frees: reading and proving a plan takes about 100 bytes an
/// operation, all new, and a fault for every 4096 of them was a seventh of the
/// time. Where the system has no large pages or limits the memory, nothing
/// changes. Call it before other threads start.
void useLargePages();

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_LARGEPAGES_H
