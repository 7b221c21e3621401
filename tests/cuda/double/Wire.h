//===- tests/cuda/double/Wire.h - Communicators between processes ---------===//
//
// Where the ranks of a communicator are processes of one machine, they share a
// piece of memory: who is there, and for each sender and receiver room for a
// part of one message. It is a rendezvous: a sender copies nothing before its
// receive has started.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_CUDA_DOUBLE_WIRE_H
#define SLUICE_TESTS_CUDA_DOUBLE_WIRE_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice::cudadouble {

/// One rank's view of the memory of a communicator.
class Wire {
public:
  /// The name that all ranks of processes begin theirs with, from
  /// SLUICE_DOUBLE_SHARED; empty: ranks are in one process.
  static std::string prefix();

  static constexpr int kMostRanks = 8;
  /// Opens the memory called `name`, or makes it; null if the machine does not.
  static std::unique_ptr<Wire> open(const std::string &name, int ranks,
                                    int rank, int device);
  ~Wire();

  bool allThere() const;
  bool sharesDevices() const;
  /// Whether the process of a rank has ended without leaving.
  bool hasLost() const;
  void leave();
  const std::string &name() const { return ownName; }

  /// A part of the next split of all ranks: what this one wants.
  uint64_t split(int color, int key);
  /// Once all have said so: the ranks of `color`, in order of key and rank.
  bool splitIsOver(uint64_t number, int color, std::vector<int> &ranks) const;

  /// A message to or from a peer, the n-th of its direction, from 0.
  struct Progress {
    bool begun = false, met = false;
    size_t moved = 0;
  };
  enum class State { Waits, Ended, Differs };
  State send(int peer, uint64_t number, const std::byte *data, size_t bytes,
             Progress &progress);
  State receive(int peer, uint64_t number, std::byte *data, size_t bytes,
                Progress &progress);

private:
  struct Segment;
  struct Slot;
  Wire(std::string called, Segment *mapped, int rankCount, int ownRank)
      : ownName(std::move(called)), segment(mapped), ranks(rankCount),
        self(ownRank) {}

  std::string ownName;
  Segment *segment;
  int ranks, self;
  uint64_t splits = 0;
};

} // namespace sluice::cudadouble

#endif // SLUICE_TESTS_CUDA_DOUBLE_WIRE_H
