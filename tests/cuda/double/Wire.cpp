//===- tests/cuda/double/Wire.cpp -----------------------------------------===//
#include "tests/cuda/double/Wire.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace sluice::cudadouble {

static constexpr size_t kPieceBytes = size_t(1) << 14;
static constexpr uint64_t kSplits = 64; ///< of a communicator at most

/// From one rank to another. New memory is zero: nothing has begun.
struct Wire::Slot {
  std::atomic<uint64_t> sends, receives; ///< that have started
  std::atomic<uint64_t> sendBytes, receiveBytes;
  std::atomic<uint32_t> full;
  std::byte data[kPieceBytes];
};

struct Wire::Segment {
  struct Rank {
    std::atomic<pid_t> process; ///< 0: not there yet
    std::atomic<bool> left;
    std::atomic<int> device;
    std::atomic<uint64_t> splits;
    std::atomic<int> color[kSplits], key[kSplits];
  };
  Rank ranks[kMostRanks];
  Slot slots[kMostRanks][kMostRanks]; ///< by sender and receiver
};

std::string Wire::prefix() {
  const char *text = std::getenv("SLUICE_DOUBLE_SHARED");
  return text ? text : "";
}

std::unique_ptr<Wire> Wire::open(const std::string &name, int ranks, int rank,
                                 int device) {
  if (ranks > kMostRanks || rank < 0 || rank >= ranks)
    return nullptr;
  const int file =
      ::shm_open(("/" + name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Segment)) != 0)
    return nullptr;
  void *const memory = ::mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE,
                              MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED)
    return nullptr;
  auto *const segment = static_cast<Segment *>(memory);
  segment->ranks[rank].device = device;
  segment->ranks[rank].process = ::getpid();
  return std::unique_ptr<Wire>(new Wire(name, segment, ranks, rank));
}

Wire::~Wire() {
  leave();
  ::munmap(segment, sizeof(Segment));
}

bool Wire::allThere() const {
  for (int rank = 0; rank < ranks; ++rank)
    if (segment->ranks[rank].process == 0)
      return false;
  (void)::shm_unlink(("/" + ownName).c_str()); // nobody opens it any more
  return true;
}

bool Wire::sharesDevices() const {
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != self && segment->ranks[rank].process != 0 &&
        segment->ranks[rank].device == segment->ranks[self].device)
      return true;
  return false;
}

bool Wire::hasLost() const {
  for (int rank = 0; rank < ranks; ++rank) {
    const Segment::Rank &of = segment->ranks[rank];
    if (of.process != 0 && !of.left && ::kill(of.process, 0) != 0 &&
        errno == ESRCH)
      return true;
  }
  return false;
}

void Wire::leave() { segment->ranks[self].left = true; }

uint64_t Wire::split(int color, int key) {
  Segment::Rank &own = segment->ranks[self];
  own.color[splits % kSplits] = color;
  own.key[splits % kSplits] = key;
  own.splits = ++splits;
  return splits - 1;
}

bool Wire::splitIsOver(uint64_t number, int color,
                       std::vector<int> &members) const {
  for (int rank = 0; rank < ranks; ++rank)
    if (segment->ranks[rank].splits <= number)
      return false;
  const auto keyOf = [&](int rank) {
    return segment->ranks[rank].key[number % kSplits].load();
  };
  members.clear();
  for (int rank = 0; rank < ranks; ++rank)
    if (segment->ranks[rank].color[number % kSplits] == color)
      members.push_back(rank);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return keyOf(a) < keyOf(b); });
  return true;
}

Wire::State Wire::send(int peer, uint64_t number, const std::byte *data,
                       size_t bytes, Progress &progress) {
  Slot &slot = segment->slots[self][peer];
  if (!progress.begun) {
    slot.sendBytes = bytes;
    slot.sends = number + 1;
    progress.begun = true;
  }
  if (slot.receives <= number)
    return State::Waits;
  if (!progress.met && slot.receiveBytes != bytes)
    return State::Differs;
  progress.met = true;
  if (slot.full != 0)
    return State::Waits;
  if (progress.moved == bytes)
    return State::Ended;
  const size_t piece = std::min(kPieceBytes, bytes - progress.moved);
  std::memcpy(slot.data, data + progress.moved, piece);
  progress.moved += piece;
  slot.full = 1;
  return State::Waits;
}

Wire::State Wire::receive(int peer, uint64_t number, std::byte *data,
                          size_t bytes, Progress &progress) {
  Slot &slot = segment->slots[peer][self];
  if (!progress.begun) {
    slot.receiveBytes = bytes;
    slot.receives = number + 1;
    progress.begun = true;
  }
  if (slot.sends <= number)
    return State::Waits;
  if (!progress.met && slot.sendBytes != bytes)
    return State::Differs;
  progress.met = true;
  if (slot.full == 0)
    return State::Waits;
  const size_t piece = std::min(kPieceBytes, bytes - progress.moved);
  std::memcpy(data + progress.moved, slot.data, piece);
  progress.moved += piece;
  slot.full = 0;
  return progress.moved == bytes ? State::Ended : State::Waits;
}

} // namespace sluice::cudadouble
