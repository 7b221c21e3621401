//===- runtime/host/HostBackend.h - Threads and shared memory ------------===//
//
// Each rank is one thread (QueueBackend.h). A rank that cannot go on spins
// briefly if every rank has a core, then sleeps until a peer completes one of
// its messages.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_HOST_HOSTBACKEND_H
#define SLUICE_RUNTIME_HOST_HOSTBACKEND_H

#include "runtime/QueueBackend.h"
#include "runtime/host/Gathering.h"
#include "runtime/host/Mailbox.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

namespace sluice::runtime {

/// What the ranks share.
class HostWorld final : public World {
public:
  HostWorld(uint32_t ranks, std::span<const Channel> channels,
            std::span<const Collective> collectives);
  Status admit(std::span<const Bytes> arenas) const override;
  Status open(Id rank, std::unique_ptr<Backend> &backend) override;
  void abort() override;

  bool aborted() const { return stop.load(std::memory_order_acquire); }
  /// Number of wake-ups of `rank` so far; read it before polling, so that
  /// `sleep` cannot miss one.
  uint32_t wakeups(Id rank) const {
    return bells[rank].count.load(std::memory_order_acquire);
  }
  void wake(Id rank);
  /// Returns once wakeups(rank) differs from `seen`.
  void sleep(Id rank, uint32_t seen);

  /// Counts `bytes` of memory that will be touched; false if all ranks together
  /// would take more than the machine has (the kernel would notice only while
  /// they are filled, and kill the process).
  bool reserve(Bytes bytes);

  struct HostChannel {
    Mailbox mailbox;
    Id source = kNone;
    Id destination = kNone;
  };
  HostChannel &channel(Id id) { return channels[id]; }

  struct HostCollective {
    explicit HostCollective(const std::vector<Id> &members)
        : gathering(members.size()), ranks(members) {}
    /// Where `rank` sits; for a rank that is in it.
    uint32_t seatOf(Id rank) const {
      return static_cast<uint32_t>(
          std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
    }
    Gathering gathering;
    std::vector<Id> ranks;
  };
  HostCollective &collective(Id id) { return collectives[id]; }
  size_t collectiveCount() const { return collectives.size(); }

private:
  struct alignas(64) Bell {
    std::atomic<uint32_t> count{0};
  };
  std::vector<HostChannel> channels;
  std::deque<HostCollective> collectives; // never moved
  std::vector<Bell> bells;
  unsigned spins;
  std::atomic<Bytes> unreserved;
  alignas(64) std::atomic<bool> stop{false};
};

class HostBackend final : public QueueBackend {
public:
  HostBackend(HostWorld &sharedWorld, Id ownRank)
      : QueueBackend(ownRank), world(sharedWorld) {}

  Status prepare(const RankNeeds &needs) override;

private:
  Advance driveMessage(Command &command, Failure &failure) override;
  Advance driveCollective(Command &command, Failure &failure) override;
  bool aborted() const override { return world.aborted(); }
  uint32_t look() override { return world.wakeups(rank); }
  void rest(uint32_t seen, uint32_t) override { world.sleep(rank, seen); }
  bool reserve(Bytes bytes) override { return world.reserve(bytes); }

  HostWorld &world;
  std::vector<uint32_t> seats; ///< per collective: where the rank sits
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_HOST_HOSTBACKEND_H
