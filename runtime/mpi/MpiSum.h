//===- runtime/mpi/MpiSum.h - An all-reduce in order of ranks ------------===//
//
// The data are cut into chunks, which the members own in turn. Everybody sends
// each chunk to its owner, who adds them in order of the members and sends the
// sum back: so it has the same bits everywhere and in every run, and each
// member moves two times the data, however many they are. Before the data the
// first member hears of everybody's size and lets all go on: so none ends
// before all have started, and different sizes are found before a byte is
// written.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MPI_MPISUM_H
#define SLUICE_RUNTIME_MPI_MPISUM_H

#include "runtime/mpi/Request.h"

#include <string>
#include <vector>

namespace sluice::runtime::mpi {

/// The part of one rank in one collective, one operation at a time.
class MpiSum {
public:
  /// Of a rank that is not in it nothing is asked later.
  MpiSum(const MpiWorld &world, Id collective, Id rank);

  enum class Answer : uint8_t { UnderWay, Ended, Failed };
  bool busy() const { return phase != Phase::Idle; }
  /// Starts the next operation. False: `error` tells of a failing call.
  bool start(Element element, void *data, Bytes bytes, std::string &error);
  /// Goes on as far as it can.
  Answer poll(std::string &error);

private:
  enum class Phase : uint8_t { Idle, Meeting, Adding, Handing };
  /// What goes to and comes from one other member.
  struct Other {
    Request out; ///< my part of its chunk, or its size or leave to go
    Request in;  ///< its part of my chunk, its size, or the sum of its chunk
    Request sum; ///< of my chunk, to it
    uint64_t size = 0;
  };
  struct Range {
    Bytes begin;
    Bytes size;
  };

  bool send(Request &request, uint32_t to, const void *from, Bytes bytes,
            std::string &error);
  bool receive(Request &request, uint32_t from, void *to, Bytes bytes,
               std::string &error);
  bool meet(std::string &error);
  Answer pollMeeting(std::string &error);
  bool startRound(std::string &error);
  Answer pollAdding(std::string &error);
  bool handOut(std::string &error);
  Answer pollHanding(std::string &error);
  Answer nextRound(std::string &error);
  bool allEnded(Request Other::*request, bool &ended, std::string &error);
  Range chunk(uint32_t owner) const;
  template <typename T> void add(Range range);

  const MpiWorld &world;
  const Id collective;
  uint32_t self = 0;              ///< number among the members
  std::vector<Other> others;      ///< per member; one's own is not used
  std::vector<std::byte> scratch; ///< a chunk of each member
  Bytes chunkBytes = 0;
  Phase phase = Phase::Idle;
  Element element = Element::None;
  std::byte *data = nullptr;
  Bytes bytes = 0;
  Bytes done = 0; ///< of rounds that have ended
  uint64_t ownSize = 0;
};

} // namespace sluice::runtime::mpi

#endif // SLUICE_RUNTIME_MPI_MPISUM_H
