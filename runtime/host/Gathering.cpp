//===- runtime/host/Gathering.cpp ----------------------------------------===//
#include "runtime/host/Gathering.h"

#include "runtime/Clock.h"

#include <algorithm>
#include <cstring>

namespace sluice::runtime {

/// Sums what lies in the seats, element by element in their order, a block at a
/// time, and leaves it in all of them.
template <typename T> void Gathering::sum() {
  constexpr size_t kBlock = 1024;
  T block[kBlock];
  const size_t count = seats[0].bytes / sizeof(T);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    const auto at = [&](const Seat &seat) {
      return static_cast<T *>(seat.data) + begin;
    };
    std::copy_n(at(seats[0]), size, block);
    for (size_t seat = 1; seat < seats.size(); ++seat) {
      const T *other = at(seats[seat]);
      for (size_t i = 0; i < size; ++i)
        block[i] += other[i];
    }
    for (const Seat &seat : seats)
      std::copy_n(block, size, at(seat));
  }
}

size_t Gathering::differing() const {
  const auto found =
      std::find_if(seats.begin(), seats.end(), [this](const Seat &seat) {
        return seat.bytes != seats[0].bytes;
      });
  return static_cast<size_t>(found - seats.begin());
}

Gathering::Posted Gathering::allReduce(size_t seat, Element element, void *data,
                                       Bytes bytes) {
  Seat &mine = seats[seat];
  mine.data = data;
  mine.bytes = bytes;
  mine.seen = completed.load(std::memory_order_relaxed);
  mine.pending = true; // whoever is last may end it at once
  if (taken.fetch_add(1, std::memory_order_acq_rel) + 1 != seats.size())
    return Posted::Waits;
  mine.pending = false;
  if (differing() != seats.size())
    return Posted::Mismatch;
  switch (element) {
  case Element::Float32:
    sum<float>();
    break;
  case Element::Float64:
    sum<double>();
    break;
  case Element::None: // nothing to add: loading knows no such operation
    break;
  }
  completedAt = nowNanoseconds();
  taken.store(0, std::memory_order_relaxed);
  completed.store(mine.seen + 1, std::memory_order_release);
  return Posted::Ended;
}

bool Gathering::ended(size_t seat) {
  Seat &mine = seats[seat];
  if (completed.load(std::memory_order_acquire) == mine.seen)
    return false;
  mine.pending = false;
  return true;
}

} // namespace sluice::runtime
