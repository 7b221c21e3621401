//===- runtime/mpi/MpiBackend.h - A rank whose messages go by MPI --------===//
//
// The receiver of a message says that it is ready, and for how many bytes; the
// sender compares and sends. So neither ends before the other has started, and
// a message is never cut. A rank that cannot go on looks again for a while if
// every process of its machine has a core, then sleeps longer and longer, up to
// half a millisecond: MPI has nothing to wait on that does not spin.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MPI_MPIBACKEND_H
#define SLUICE_RUNTIME_MPI_MPIBACKEND_H

#include "runtime/QueueBackend.h"
#include "runtime/mpi/MpiCollective.h"
#include "runtime/mpi/Request.h"

#include <vector>

namespace sluice::runtime::mpi {

class MpiBackend final : public QueueBackend {
public:
  MpiBackend(MpiWorld &sharedWorld, Id ownRank)
      : QueueBackend(ownRank), world(sharedWorld) {}

  Status prepare(const RankNeeds &needs) override;

private:
  /// The rank's end of a channel, in one direction.
  struct End {
    Request ready;      ///< the receiver's word
    Request piece;      ///< of the data
    uint64_t bytes = 0; ///< what the receiver is ready for
    Bytes moved = 0;    ///< of earlier pieces
    bool busy = false;
    bool moving = false; ///< a piece is, or was, under way
  };

  Advance driveMessage(Command &command, Failure &failure) override;
  Advance driveCollective(Command &command, Failure &failure) override;
  bool aborted() const override { return world.aborted(); }
  void rest(uint32_t seen, uint32_t rounds) override;
  bool reserve(Bytes) override { return true; } // `admit` has compared

  bool startReceive(const Command &command, End &end, Failure &failure);
  bool startPiece(const Command &command, End &end, Failure &failure);
  Advance pollSend(Command &command, End &end, Failure &failure);
  Advance pollPieces(Command &command, End &end, Failure &failure);

  MpiWorld &world;
  std::vector<End> sending; ///< per channel
  std::vector<End> receiving;
  std::vector<MpiCollective> collectives; ///< per collective
};

} // namespace sluice::runtime::mpi

#endif // SLUICE_RUNTIME_MPI_MPIBACKEND_H
