//===- runtime/mpi/MpiCollective.cpp - Collectives by messages ------------===//
#include "runtime/mpi/MpiCollective.h"

#include "runtime/QueueBackend.h"

#include <algorithm>

namespace sluice::runtime::mpi {

/// Bytes of a chunk at most, and of the scratch of all members together.
static constexpr Bytes kChunkBytes = Bytes(256) << 10;
static constexpr Bytes kScratchBytes = Bytes(4) << 20;
static constexpr Bytes kLeastChunkBytes = Bytes(4) << 10;

MpiCollective::MpiCollective(const MpiWorld &sharedWorld, Id number, Id rank)
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

bool MpiCollective::send(Request &request, uint32_t to, const void *from,
                         Bytes size, std::string &error) {
  return request.send(world, world.memberPath(collective, self, to, true), from,
                      size, error);
}

bool MpiCollective::receive(Request &request, uint32_t from, void *to,
                            Bytes size, std::string &error) {
  return request.receive(world, world.memberPath(collective, from, self, false),
                         to, size, error);
}

bool MpiCollective::start(Pattern how, Element ofWhat, void *where, Bytes size,
                          void *partTo, std::string &error) {
  pattern = how;
  element = ofWhat;
  data = static_cast<std::byte *>(where);
  ownPart = static_cast<std::byte *>(partTo);
  bytes = ownSize = size;
  const Bytes members = others.size();
  part = pattern == Pattern::AllReduce
             ? std::max((bytes / members + 8) / 8 * 8, kLeastChunkBytes)
             : bytes / members;
  done = 0;
  phase = Phase::Meeting;
  return meet(error);
}

/// All tell the first member their size, and wait for its leave.
bool MpiCollective::meet(std::string &error) {
  if (self != 0)
    return send(others[0].out, 0, &ownSize, sizeof(ownSize), error) &&
           receive(others[0].in, 0, &others[0].size, sizeof(uint64_t), error);
  for (uint32_t member = 1; member < others.size(); ++member)
    if (!receive(others[member].in, member, &others[member].size,
                 sizeof(uint64_t), error))
      return false;
  return true;
}

/// The first member has heard of all sizes.
bool MpiCollective::letGo(std::string &error) {
  const std::vector<Id> &ranks = world.allCollectives()[collective].ranks;
  for (uint32_t member = 1; self == 0 && member < others.size(); ++member)
    if (others[member].size != bytes) {
      error = QueueBackend::sizesDiffer(pattern, ranks[0], bytes, ranks[member],
                                        others[member].size);
      return false;
    }
  for (uint32_t member = 1; self == 0 && member < others.size(); ++member)
    if (!send(others[member].leave, member, &ownSize, sizeof(ownSize), error))
      return false;
  return true;
}

/// What of `owner`'s part is moved in this round; without bytes past the end.
MpiCollective::Range MpiCollective::chunk(uint32_t owner) const {
  const Bytes begin = std::min(bytes, owner * part);
  const Bytes end = std::min(bytes, begin + part);
  const Bytes from = std::min(end, begin + done);
  return {from, std::min(chunkBytes, end - from)};
}

/// Between this member and each other: everybody's chunk to its owner, into
/// scratch; or from there to all.
bool MpiCollective::exchange(Phase next, std::string &error) {
  phase = next;
  const bool hands = phase == Phase::Handing;
  const Range mine = chunk(self);
  for (uint32_t member = 0; member < others.size(); ++member) {
    if (member == self)
      continue;
    Other &other = others[member];
    const Range its = chunk(member);
    const Range out = hands ? mine : its;
    const Bytes in = hands ? its.size : mine.size;
    std::byte *const to =
        hands ? data + its.begin : scratch.data() + member * chunkBytes;
    if (out.size != 0 &&
        !send(other.out, member, data + out.begin, out.size, error))
      return false;
    if (in != 0 && !receive(other.in, member, to, in, error))
      return false;
  }
  return true;
}

template <typename T> void MpiCollective::add(Range range) {
  auto *const mine = reinterpret_cast<T *>(data + range.begin);
  auto *const own = ownPart ? reinterpret_cast<T *>(ownPart + done) : mine;
  auto *const first = reinterpret_cast<T *>(scratch.data());
  const size_t stride = chunkBytes / sizeof(T);
  const size_t count = range.size / sizeof(T);
  std::copy_n(mine, count, first + self * stride);
  std::copy_n(first, count, own);
  for (size_t member = 1; member < others.size(); ++member) {
    const T *other = first + member * stride;
    for (size_t i = 0; i < count; ++i)
      own[i] += other[i];
  }
}

void MpiCollective::addChunks() {
  switch (element) {
  case Element::Float32:
    return add<float>(chunk(self));
  case Element::Float64:
    return add<double>(chunk(self));
  case Element::None: // nothing to add: loading knows no such operation
    return;
  }
}

bool MpiCollective::startRound(std::string &error) {
  if (done >= part || bytes == 0) {
    phase = Phase::Departing;
    return true;
  }
  return exchange(
      pattern == Pattern::AllGather ? Phase::Handing : Phase::Adding, error);
}

bool MpiCollective::endRound(std::string &error) {
  done += chunkBytes;
  return startRound(error);
}

/// Nothing is under way: to what comes next.
bool MpiCollective::goOn(std::string &error) {
  switch (phase) {
  case Phase::Meeting:
    return letGo(error) && startRound(error);
  case Phase::Adding:
    addChunks();
    return pattern == Pattern::ReduceScatter ? endRound(error)
                                             : exchange(Phase::Handing, error);
  case Phase::Handing:
    return endRound(error);
  case Phase::Departing:
  case Phase::Idle:
    break;
  }
  phase = Phase::Idle;
  return true;
}

/// Looks at all messages of all others; `ended` where none is under way.
bool MpiCollective::look(bool &ended, std::string &error) {
  ended = true;
  for (Other &other : others)
    for (Request *request : {&other.out, &other.in, &other.leave}) {
      if (!request->test(error))
        return false;
      ended &= !request->active();
    }
  return true;
}

MpiCollective::Answer MpiCollective::poll(std::string &error) {
  while (phase != Phase::Idle) {
    bool ended = false;
    if (!look(ended, error))
      return Answer::Failed;
    if (!ended)
      return Answer::UnderWay;
    if (!goOn(error))
      return Answer::Failed;
  }
  return Answer::Ended;
}

} // namespace sluice::runtime::mpi
