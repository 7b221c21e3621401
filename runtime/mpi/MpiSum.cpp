//===- runtime/mpi/MpiSum.cpp --------------------------------------------===//
#include "runtime/mpi/MpiSum.h"

#include <algorithm>

namespace sluice::runtime::mpi {

/// Bytes of a chunk at most, and of the scratch of all members together.
static constexpr Bytes kChunkBytes = Bytes(256) << 10;
static constexpr Bytes kScratchBytes = Bytes(4) << 20;
static constexpr Bytes kLeastChunkBytes = Bytes(4) << 10;

MpiSum::MpiSum(const MpiWorld &sharedWorld, Id number, Id rank)
    : world(sharedWorld), collective(number) {
  const std::vector<Id> &ranks = world.allCollectives()[number].ranks;
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end() || *found != rank)
    return;
  self = static_cast<uint32_t>(found - ranks.begin());
  others = std::vector<Other>(ranks.size());
  chunkBytes = std::clamp(kScratchBytes / ranks.size() / 8 * 8,
                          kLeastChunkBytes, kChunkBytes);
  scratch.resize(chunkBytes * ranks.size());
}

bool MpiSum::send(Request &request, uint32_t to, const void *from, Bytes size,
                  std::string &error) {
  return request.send(world, world.memberPath(collective, self, to, true), from,
                      size, error);
}

bool MpiSum::receive(Request &request, uint32_t from, void *to, Bytes size,
                     std::string &error) {
  return request.receive(world, world.memberPath(collective, from, self, false),
                         to, size, error);
}

/// Looks at one kind of request of all others; `ended` where none is active.
bool MpiSum::allEnded(Request Other::*request, bool &ended,
                      std::string &error) {
  ended = true;
  for (Other &other : others) {
    if (!(other.*request).test(error))
      return false;
    ended &= !(other.*request).active();
  }
  return true;
}

bool MpiSum::start(Element ofWhat, void *where, Bytes size,
                   std::string &error) {
  element = ofWhat;
  data = static_cast<std::byte *>(where);
  bytes = ownSize = size;
  done = 0;
  phase = Phase::Meeting;
  return meet(error);
}

/// All tell the first member their size, and wait for its leave.
bool MpiSum::meet(std::string &error) {
  if (self != 0)
    return send(others[0].out, 0, &ownSize, sizeof(ownSize), error) &&
           receive(others[0].in, 0, &others[0].size, sizeof(uint64_t), error);
  for (uint32_t member = 1; member < others.size(); ++member)
    if (!receive(others[member].in, member, &others[member].size,
                 sizeof(uint64_t), error))
      return false;
  return true;
}

MpiSum::Answer MpiSum::pollMeeting(std::string &error) {
  bool heard = false;
  bool told = false;
  if (!allEnded(&Other::in, heard, error) ||
      !allEnded(&Other::out, told, error))
    return Answer::Failed;
  if (!heard || !told)
    return Answer::UnderWay;
  const std::vector<Id> &ranks = world.allCollectives()[collective].ranks;
  for (uint32_t member = 1; self == 0 && member < others.size(); ++member)
    if (others[member].size != bytes) {
      error = "rank " + std::to_string(ranks[0]) + " sums " +
              std::to_string(bytes) + " bytes, rank " +
              std::to_string(ranks[member]) + " " +
              std::to_string(others[member].size);
      return Answer::Failed;
    }
  for (uint32_t member = 1; self == 0 && member < others.size(); ++member)
    if (!send(others[member].sum, member, &ownSize, sizeof(ownSize), error))
      return Answer::Failed;
  if (bytes == 0) { // only to hand out the leave
    phase = Phase::Handing;
    return pollHanding(error);
  }
  return startRound(error) ? pollAdding(error) : Answer::Failed;
}

/// The chunk of this round that member `owner` adds; without bytes past the
/// end.
MpiSum::Range MpiSum::chunk(uint32_t owner) const {
  const Bytes begin = std::min(bytes, done + owner * chunkBytes);
  return {begin, std::min(chunkBytes, bytes - begin)};
}

/// Sends everybody its chunk, and takes what the others have of one's own.
bool MpiSum::startRound(std::string &error) {
  phase = Phase::Adding;
  const Range mine = chunk(self);
  for (uint32_t member = 0; member < others.size(); ++member) {
    if (member == self)
      continue;
    Other &other = others[member];
    const Range its = chunk(member);
    if (its.size != 0 &&
        !send(other.out, member, data + its.begin, its.size, error))
      return false;
    if (mine.size != 0 &&
        !receive(other.in, member, &scratch[member * chunkBytes], mine.size,
                 error))
      return false;
  }
  return true;
}

template <typename T> void MpiSum::add(Range range) {
  auto *own = reinterpret_cast<T *>(data + range.begin);
  auto *const first = reinterpret_cast<T *>(scratch.data());
  const size_t stride = chunkBytes / sizeof(T);
  const size_t count = range.size / sizeof(T);
  std::copy_n(own, count, first + self * stride);
  std::copy_n(first, count, own);
  for (size_t member = 1; member < others.size(); ++member) {
    const T *other = first + member * stride;
    for (size_t i = 0; i < count; ++i)
      own[i] += other[i];
  }
}

MpiSum::Answer MpiSum::pollAdding(std::string &error) {
  bool heard = false;
  bool told = false;
  bool left = false; // the first member's leave
  if (!allEnded(&Other::in, heard, error) ||
      !allEnded(&Other::out, told, error) ||
      !allEnded(&Other::sum, left, error))
    return Answer::Failed;
  if (!heard || !told || !left)
    return Answer::UnderWay;
  switch (element) {
  case Element::Float32:
    add<float>(chunk(self));
    break;
  case Element::Float64:
    add<double>(chunk(self));
    break;
  case Element::None: // nothing to add: loading knows no such operation
    break;
  }
  return handOut(error) ? pollHanding(error) : Answer::Failed;
}

/// Sends one's own sum to all, and takes theirs.
bool MpiSum::handOut(std::string &error) {
  phase = Phase::Handing;
  const Range mine = chunk(self);
  for (uint32_t member = 0; member < others.size(); ++member) {
    if (member == self)
      continue;
    Other &other = others[member];
    const Range its = chunk(member);
    if (mine.size != 0 &&
        !send(other.sum, member, data + mine.begin, mine.size, error))
      return false;
    if (its.size != 0 &&
        !receive(other.in, member, data + its.begin, its.size, error))
      return false;
  }
  return true;
}

MpiSum::Answer MpiSum::pollHanding(std::string &error) {
  bool heard = false;
  bool told = false;
  if (!allEnded(&Other::in, heard, error) ||
      !allEnded(&Other::sum, told, error))
    return Answer::Failed;
  return heard && told ? nextRound(error) : Answer::UnderWay;
}

MpiSum::Answer MpiSum::nextRound(std::string &error) {
  done += chunkBytes * others.size();
  if (done < bytes)
    return startRound(error) ? pollAdding(error) : Answer::Failed;
  phase = Phase::Idle;
  return Answer::Ended;
}

MpiSum::Answer MpiSum::poll(std::string &error) {
  switch (phase) {
  case Phase::Meeting:
    return pollMeeting(error);
  case Phase::Adding:
    return pollAdding(error);
  case Phase::Handing:
    return pollHanding(error);
  case Phase::Idle:
    break;
  }
  return Answer::Ended;
}

} // namespace sluice::runtime::mpi
