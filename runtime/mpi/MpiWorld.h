//===- runtime/mpi/MpiWorld.h - Ranks whose messages go by MPI -----------===//
//
// Either a process a rank, or, where MPI has one process only, all ranks as
// threads of that: what the conformance suite runs. Every channel and every
// pair of ranks in a collective has tags of its own, so that MPI's order of
// messages is the order of each path and of nothing else.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MPI_MPIWORLD_H
#define SLUICE_RUNTIME_MPI_MPIWORLD_H

#include "runtime/Backend.h"
#include "runtime/mpi/Session.h"

#include <atomic>
#include <span>
#include <vector>

namespace sluice::runtime::mpi {

/// What one MPI message carries at most; larger ones go in pieces, since MPI
/// counts with an int.
#ifdef SLUICE_TEST_PIECE_BYTES // of a plug-in of the tests
inline constexpr Bytes kPieceBytes = SLUICE_TEST_PIECE_BYTES;
#else
inline constexpr Bytes kPieceBytes = Bytes(1) << 30;
#endif

class MpiWorld final : public World {
public:
  /// What a message takes: to or from whom, and by which tag.
  struct Path {
    int process;
    int tag;
  };

  static Status make(uint32_t ranks, std::span<const Channel> channels,
                     std::span<const Collective> collectives,
                     std::unique_ptr<World> &world);
  ~MpiWorld() override;

  Status admit(std::span<const Bytes> arenas) const override;
  Status open(Id rank, std::unique_ptr<Backend> &backend) override;
  void abort() override { stop.store(true, std::memory_order_release); }
  bool aborted() const { return stop.load(std::memory_order_acquire); }

  MPI_Comm communicator() const { return data; }
  /// How often a rank looks again before it lets others go first.
  uint32_t spins() const { return spinRounds; }

  std::span<const Channel> allChannels() const { return channels; }
  std::span<const Collective> allCollectives() const { return collectives; }
  /// The way of the data of a channel, as `sends` or receives.
  Path dataPath(Id channel, bool sends) const;
  /// The way of the receiver's word that it is ready, as its receiver sees it
  /// (`sends`) or its sender.
  Path readyPath(Id channel, bool sends) const;
  /// The way from a collective's member number `from` to number `to`, as the
  /// first (`sends`) or the second sees it.
  Path memberPath(Id collective, uint32_t from, uint32_t to, bool sends) const;

private:
  MpiWorld(const Session &opened, std::span<const Channel> list,
           std::span<const Collective> collectiveList)
      : session(opened), channels(list.begin(), list.end()),
        collectives(collectiveList.begin(), collectiveList.end()) {}
  Status layTags();
  Status takeCommunicator(uint32_t ranks);
  int processOf(Id rank) const {
    return session.size == 1 ? 0 : static_cast<int>(rank);
  }

  const Session &session;
  std::vector<Channel> channels;
  std::vector<Collective> collectives;
  std::vector<int> firstTag; ///< per collective, of its pairs of members
  MPI_Comm data = MPI_COMM_NULL;
  bool ownsData = false;
  uint32_t spinRounds = 0;
  std::atomic<bool> stop{false};
};

} // namespace sluice::runtime::mpi

#endif // SLUICE_RUNTIME_MPI_MPIWORLD_H
