//===- runtime/host/Mailbox.cpp ------------------------------------------===//
#include "runtime/host/Mailbox.h"

#include "runtime/Clock.h"

#include <cstring>

namespace sluice::runtime {

Mailbox::Posted Mailbox::post(Side side, void *data, Bytes bytes) {
  Half &mine = half(side);
  mine.data = data;
  mine.bytes = bytes;
  mine.seen = completed.load(std::memory_order_relaxed);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) == 0) {
    mine.pending = true;
    return Posted::First;
  }
  const Half &source = half(Side::Sender);
  const Half &target = half(Side::Receiver);
  if (source.bytes != target.bytes)
    return Posted::Mismatch;
  std::memcpy(target.data, source.data, source.bytes);
  completedAt = nowNanoseconds();
  arrived.store(0, std::memory_order_relaxed);
  completed.store(mine.seen + 1, std::memory_order_release);
  return Posted::Ended;
}

bool Mailbox::ended(Side side) {
  Half &mine = half(side);
  if (completed.load(std::memory_order_acquire) == mine.seen)
    return false;
  mine.pending = false;
  return true;
}

} // namespace sluice::runtime
