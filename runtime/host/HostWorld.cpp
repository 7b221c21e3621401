//===- runtime/host/HostWorld.cpp - What the ranks of a process share ----===//
#include "runtime/Memory.h"
#include "runtime/host/HostBackend.h"

#include <thread>
#include <unistd.h>

namespace sluice::runtime {

/// Looks at its bell this often before a rank sleeps: some 20 microseconds.
static constexpr unsigned kSpins = 1000;

static void pauseBriefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

static Bytes memoryOfMachine() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0
             ? static_cast<Bytes>(pages) * static_cast<Bytes>(bytes)
             : ~Bytes(0);
}

HostWorld::HostWorld(uint32_t ranks, std::span<const Channel> list,
                     std::span<const Collective> collectiveList)
    : channels(list.size()), bells(ranks),
      spins(ranks <= std::thread::hardware_concurrency() ? kSpins : 0),
      unreserved(memoryOfMachine()) {
  for (size_t i = 0; i < list.size(); ++i) {
    channels[i].source = list[i].source;
    channels[i].destination = list[i].destination;
  }
  for (const Collective &of : collectiveList)
    collectives.emplace_back(of.ranks);
}

Status HostWorld::open(Id rank, std::unique_ptr<Backend> &backend) {
  backend = std::make_unique<HostBackend>(*this, rank);
  return {};
}

bool HostWorld::reserve(Bytes bytes) {
  Bytes left = unreserved.load();
  while (left >= bytes)
    if (unreserved.compare_exchange_weak(left, left - bytes))
      return true;
  return false;
}

void HostWorld::abort() {
  stop.store(true, std::memory_order_release);
  for (Id rank = 0; rank < bells.size(); ++rank)
    wake(rank);
}

void HostWorld::wake(Id rank) {
  bells[rank].count.fetch_add(1, std::memory_order_seq_cst);
  bells[rank].count.notify_one();
}

void HostWorld::sleep(Id rank, uint32_t seen) {
  std::atomic<uint32_t> &bell = bells[rank].count;
  for (unsigned i = 0; i < spins; ++i) {
    if (bell.load(std::memory_order_acquire) != seen)
      return;
    pauseBriefly();
  }
  bell.wait(seen, std::memory_order_acquire);
}

Status HostWorld::admit(std::span<const Bytes> arenas) const {
  return admitArenas(arenas);
}

Status makeHostWorld(uint32_t ranks, std::span<const Channel> channels,
                     std::span<const Collective> collectives,
                     std::unique_ptr<World> &world) {
  if (Status s = checkPaths(ranks, channels, collectives); !s.ok())
    return s;
  world = std::make_unique<HostWorld>(ranks, channels, collectives);
  return {};
}

} // namespace sluice::runtime
