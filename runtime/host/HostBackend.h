//===- runtime/host/HostBackend.h - Threads and shared memory ------------===//
//
// Each rank is one thread. Its streams are queues in fixed arrays; the executor
// fills them as it would fill a GPU's, and `synchronize` works them off in the
// rank's own thread: messages are polled, computations run when they stand at
// the head of their queue with their waits fired. A rank that cannot go on
// spins briefly if every rank has a core, then sleeps until a peer completes
// one of its messages.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_HOST_HOSTBACKEND_H
#define SLUICE_RUNTIME_HOST_HOSTBACKEND_H

#include "runtime/Backend.h"
#include "runtime/host/Gathering.h"
#include "runtime/host/Mailbox.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <new>
#include <vector>

namespace sluice::runtime {

/// Memory that this process can still get: what the machine has left, within
/// the limits on its address space and its control group.
Bytes availableMemory();

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

class HostBackend final : public Backend {
public:
  HostBackend(HostWorld &sharedWorld, Id ownRank)
      : world(sharedWorld), rank(ownRank) {}

  Status prepare(const RankNeeds &needs) override;
  void *arena() override { return memory.get(); }
  Bytes arenaBytes() const override { return allocated; }
  void *hostArena() override { return hostMemory.get(); }
  Bytes hostArenaBytes() const override { return hostAllocated; }
  void recordTimes(OpTime *target) override { times = target; }
  void wait(uint8_t stream, uint32_t event) override;
  void record(uint8_t stream, uint32_t event) override;
  void launch(uint8_t stream, uint32_t op) override;
  void send(uint8_t stream, uint32_t op, Id channel, void *data,
            Bytes bytes) override;
  void receive(uint8_t stream, uint32_t op, Id channel, void *data,
               Bytes bytes) override;
  void allReduce(uint8_t stream, uint32_t op, Id collective, Element element,
                 void *data, Bytes bytes) override;
  void reduceScatter(uint8_t stream, uint32_t op, Id collective,
                     Element element, void *data, Bytes bytes) override;
  void allGather(uint8_t stream, uint32_t op, Id collective, void *data,
                 Bytes bytes) override;
  void copy(uint8_t stream, uint32_t op,
            std::span<const CopyPiece> pieces) override;
  void beginGroup(uint8_t stream) override;
  void endGroup(uint8_t stream) override;
  Outcome synchronize(Failure &failure) override;

private:
  enum class Kind : uint8_t {
    Wait,
    Record,
    Launch,
    Send,
    Receive,
    Collective,
    Copy,
    Group
  };
  enum class State : uint8_t { Queued, Posted, Ended };
  struct Command {
    void *data = nullptr;
    const CopyPiece *pieces = nullptr; ///< of a copy, `number` of them
    Bytes bytes = 0;
    uint32_t op = kNone;
    uint32_t number = 0;             ///< event, path, or members of the group
    Pattern pattern = Pattern::None; ///< of a collective
    Element element = Element::None;
    Kind kind = Kind::Wait;
    State state = State::Queued;
  };
  struct Stream {
    std::vector<Command> commands; ///< of the capacity that was prepared
    uint32_t head = 0;
    uint32_t tail = 0;
    uint32_t done = 0;
    uint32_t group = kNone; ///< open while enqueueing
  };
  enum class Advance : uint8_t { Blocked, Moved, Failed };

  void push(uint8_t stream, const Command &command);
  Advance advance(uint8_t number, Failure &failure);
  Advance execute(Stream &stream, Command &command, Failure &failure);
  static uint32_t operationsOf(const Command &command);
  Advance runLaunch(const Command &command, Failure &failure);
  Advance runCopy(const Command &command);
  Advance drive(Stream &stream, uint32_t first, uint32_t count,
                Failure &failure);
  Advance driveMessage(Command &command, Failure &failure);
  Advance driveCollective(Command &command, Failure &failure);
  Advance end(Command &command, int64_t when);
  bool empty() const;
  void reset();

  struct FreeArena {
    void operator()(std::byte *p) const {
      ::operator delete (p, std::align_val_t{kBufferAlignment});
    }
  };

  using Arena = std::unique_ptr<std::byte, FreeArena>;
  Status allocate(Bytes bytes, const char *what, Arena &arena);

  HostWorld &world;
  Id rank;
  Arena memory, hostMemory;
  Bytes allocated = 0, hostAllocated = 0;
  std::vector<Stream> streams;
  std::vector<uint32_t> seats; ///< per collective: where the rank sits
  /// Per event, the number of the synchronization in which it fired last.
  std::vector<uint32_t> fired;
  uint32_t epoch = 1;
  Compute *compute = nullptr;
  RankProgress *progress = nullptr;
  OpTime *times = nullptr;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_HOST_HOSTBACKEND_H
