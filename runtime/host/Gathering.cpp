//===- runtime/host/Gathering.cpp ----------------------------------------===//
#include "runtime/host/Gathering.h"

#include "runtime/Clock.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace sluice::runtime {

/// Sums elements [begin, end) of what lies in the seats, element by element in
/// their order, a block at a time, and leaves it in those from `first` to
/// before `last`.
template <typename T>
void Gathering::sum(size_t begin, size_t end, const Seat *first,
                    const Seat *last) {
  constexpr size_t kBlock = 1024;
  T block[kBlock];
  for (; begin < end; begin += kBlock) {
    const size_t size = std::min(kBlock, end - begin);
    const auto at = [&](const Seat &seat) {
      return static_cast<T *>(seat.data) + begin;
    };
    std::copy_n(at(seats[0]), size, block);
    for (size_t seat = 1; seat < seats.size(); ++seat) {
      const T *other = at(seats[seat]);
      for (size_t i = 0; i < size; ++i)
        block[i] += other[i];
    }
    for (const Seat *seat = first; seat != last; ++seat)
      std::copy_n(block, size, at(*seat));
  }
}

/// All in all seats, or in each the part of its number.
template <typename T> void Gathering::reduce(Pattern pattern) {
  const size_t count = seats[0].bytes / sizeof(T);
  const Seat *const all = seats.data();
  if (pattern == Pattern::AllReduce)
    return sum<T>(0, count, all, all + seats.size());
  const size_t part = count / seats.size();
  for (size_t i = 0; i < seats.size(); ++i) {
    sum<T>(i * part, (i + 1) * part, all + i, all + i + 1);
    if (all[i].part && part != 0)
      std::memcpy(all[i].part, static_cast<const T *>(all[i].data) + i * part,
                  part * sizeof(T));
  }
}

void Gathering::gather() {
  const size_t part = seats[0].bytes / seats.size();
  for (size_t from = 0; from < seats.size(); ++from)
    for (size_t to = 0; to < seats.size(); ++to)
      if (to != from)
        std::memcpy(static_cast<std::byte *>(seats[to].data) + from * part,
                    static_cast<const std::byte *>(seats[from].data) +
                        from * part,
                    part);
}

void Gathering::compute(Pattern pattern, Element element) {
  if (pattern == Pattern::AllGather)
    return gather();
  switch (element) {
  case Element::Float32:
    return reduce<float>(pattern);
  case Element::Float64:
    return reduce<double>(pattern);
  case Element::None: // nothing to add: loading knows no such operation
    return;
  }
}

size_t Gathering::differing() const {
  const auto found =
      std::find_if(seats.begin(), seats.end(), [this](const Seat &seat) {
        return seat.bytes != seats[0].bytes;
      });
  return static_cast<size_t>(found - seats.begin());
}

Gathering::Posted Gathering::post(size_t seat, Pattern pattern, Element element,
                                  void *data, Bytes bytes, void *part) {
  Seat &mine = seats[seat];
  mine.data = data;
  mine.part = part;
  mine.bytes = bytes;
  mine.seen = completed.load(std::memory_order_relaxed);
  mine.pending = true; // whoever is last may end it at once
  if (taken.fetch_add(1, std::memory_order_acq_rel) + 1 != seats.size())
    return Posted::Waits;
  mine.pending = false;
  if (differing() != seats.size())
    return Posted::Mismatch;
  compute(pattern, element);
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
