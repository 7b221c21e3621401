//===- runtime/QueueBackend.h - Streams worked off by the rank's thread ---===//
//
// What backends on the CPU share. A rank is one thread; its streams are queues
// in fixed arrays, which the executor fills as it would fill a GPU's, and
// `synchronize` works them off in the rank's own thread: messages are polled,
// computations run when they stand at the head of their queue with their waits
// fired. How messages and collectives move is the derived class's.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_QUEUEBACKEND_H
#define SLUICE_RUNTIME_QUEUEBACKEND_H

#include "runtime/CommandBackend.h"

#include <memory>
#include <new>
#include <vector>

namespace sluice::runtime {

class QueueBackend : public CommandBackend {
public:
  Status prepare(const RankNeeds &needs) override;
  void *arena() override { return memory.get(); }
  Bytes arenaBytes() const override { return allocated; }
  void *hostArena() override { return hostMemory.get(); }
  Bytes hostArenaBytes() const override { return hostAllocated; }
  void recordTimes(OpTime *target) override { times = target; }
  void beginGroup(uint8_t stream) override;
  void endGroup(uint8_t stream) override;
  Outcome synchronize(Failure &failure) override;

protected:
  explicit QueueBackend(Id ownRank) : rank(ownRank) {}

  /// Posts a message, or looks whether it has ended: Moved when its state has
  /// changed. Of one channel and direction at most one is under way; a further
  /// one of its group is Blocked until then.
  virtual Advance driveMessage(Command &command, Failure &failure) = 0;
  /// The same of a collective.
  virtual Advance driveCollective(Command &command, Failure &failure) = 0;
  virtual bool aborted() const = 0;
  /// A number to give to `rest`, read before everything that may move.
  virtual uint32_t look() { return 0; }
  /// Nothing has moved since `look` gave `seen`, for `rounds` times in a row:
  /// lets others go first, or sleeps until something may have.
  virtual void rest(uint32_t seen, uint32_t rounds) = 0;
  /// Counts `bytes` that will be touched; false: there are not so many.
  virtual bool reserve(Bytes bytes) = 0;

  /// Ends a message or collective at the time `when`.
  Advance end(Command &command, int64_t when);

  const Id rank;

private:
  struct Stream {
    std::vector<Command> commands; ///< of the capacity that was prepared
    uint32_t head = 0;
    uint32_t tail = 0;
    uint32_t done = 0;
    uint32_t group = kNone; ///< open while enqueueing
  };

  void push(uint8_t stream, const Command &command) final;
  Advance advance(uint8_t number, Failure &failure);
  Advance execute(Stream &stream, Command &command, Failure &failure);
  void noteStart(Command &command, int64_t now);
  void noteEnd(const Command &command, int64_t now);
  static uint32_t operationsOf(const Command &command);
  Advance runLaunch(Command &command, Failure &failure);
  Advance runCopy(Command &command);
  Advance drive(Stream &stream, uint32_t first, uint32_t count,
                Failure &failure);
  bool empty() const;
  void reset();

  struct FreeArena {
    void operator()(std::byte *p) const {
      ::operator delete (p, std::align_val_t{kBufferAlignment});
    }
  };

  using Arena = std::unique_ptr<std::byte, FreeArena>;
  Status allocate(Bytes bytes, const char *what, Arena &arena);

  Arena memory, hostMemory;
  Bytes allocated = 0, hostAllocated = 0;
  std::vector<Stream> streams;
  /// Per event, the number of the synchronization in which it fired last.
  std::vector<uint32_t> fired;
  uint32_t epoch = 1;
  Compute *compute = nullptr;
  RankProgress *progress = nullptr;
  OpTime *times = nullptr; ///< per operation of the list, if they are kept
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_QUEUEBACKEND_H
