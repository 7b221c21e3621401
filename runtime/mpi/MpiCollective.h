//===- runtime/mpi/MpiCollective.h - Operations of all ranks by MPI -------===//
//
// Each member owns a part of the data: by the pattern the part of its number,
// of an all-reduce any. Sums: everybody sends each part to its owner, who adds
// them in order of the members. Gathers: each owner sends its part to all. An
// all-reduce is one after the other; so it has the same bits everywhere and in
// every run, and each member moves two times the data, however many they are.
// Parts go in chunks, so that what others send of one's own fits into scratch.
// Before the data the first member hears of everybody's size and lets all go
// on: so none ends before all have started, and different sizes are found
// before a byte is written.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MPI_MPICOLLECTIVE_H
#define SLUICE_RUNTIME_MPI_MPICOLLECTIVE_H

#include "runtime/mpi/Request.h"

#include <string>
#include <vector>

namespace sluice::runtime::mpi {

/// The part of one rank in one collective, one operation at a time.
class MpiCollective {
public:
  /// Of a rank that is not in it nothing is asked later.
  MpiCollective(const MpiWorld &world, Id collective, Id rank);

  enum class Answer : uint8_t { UnderWay, Ended, Failed };
  bool busy() const { return phase != Phase::Idle; }
  /// Starts the next operation. False: `error` tells of a failing call.
  bool start(Pattern pattern, Element element, void *data, Bytes bytes,
             void *ownPart, std::string &error);
  /// Goes on as far as it can.
  Answer poll(std::string &error);

private:
  enum class Phase : uint8_t {
    Idle,
    Meeting,  ///< sizes are told
    Adding,   ///< chunks are on their way to their owners
    Handing,  ///< owners send theirs to all
    Departing ///< of no bytes: the first member's leave is on its way
  };
  /// What goes to and comes from one other member.
  struct Other {
    Request out;   ///< a chunk, or one's size
    Request in;    ///< a chunk, its size, or the first member's leave
    Request leave; ///< the first member's, to it
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
  bool letGo(std::string &error);
  bool look(bool &ended, std::string &error);
  bool goOn(std::string &error);
  bool startRound(std::string &error);
  bool endRound(std::string &error);
  bool exchange(Phase next, std::string &error);
  Range chunk(uint32_t owner) const;
  void addChunks();
  template <typename T> void add(Range range);

  const MpiWorld &world;
  const Id collective;
  uint32_t self = 0;              ///< number among the members
  std::vector<Other> others;      ///< per member; one's own is not used
  std::vector<std::byte> scratch; ///< a chunk of each member
  Bytes chunkBytes = 0;
  Phase phase = Phase::Idle;
  Pattern pattern = Pattern::None;
  Element element = Element::None;
  std::byte *data = nullptr;
  std::byte *ownPart = nullptr; ///< where the sum of it goes; null: in place
  Bytes bytes = 0;
  Bytes part =
      0; ///< that a member owns, but for the last ones of an all-reduce
  Bytes done = 0; ///< of each part, in rounds that have ended
  uint64_t ownSize = 0;
};

} // namespace sluice::runtime::mpi

#endif // SLUICE_RUNTIME_MPI_MPICOLLECTIVE_H
