//===- runtime/host/Mailbox.h - A rendezvous between two threads ---------===//
#ifndef SLUICE_RUNTIME_HOST_MAILBOX_H
#define SLUICE_RUNTIME_HOST_MAILBOX_H

#include "ir/Units.h"

#include <atomic>
#include <cstdint>

namespace sluice::runtime {

/// One channel in shared memory: a single sender, a single receiver, one
/// message at a time, no buffer. Whoever posts its end second copies the bytes
/// straight from the sender's buffer to the receiver's, so a rank that computes
/// does not hold up its peer when it posted in time. Lock-free; each side is
/// used by one thread at a time.
class Mailbox {
public:
  enum class Side : uint8_t { Sender, Receiver };
  enum class Posted : uint8_t {
    First,   ///< the other end is not there yet: ask `ended`
    Ended,   ///< the other end was there, the message is over; it must be told
    Mismatch ///< the sizes differ, nothing was copied
  };

  /// Posts the next message of `side`; not while one of it is pending. `data`
  /// must stay valid until it ended.
  Posted post(Side side, void *data, Bytes bytes);

  /// True while a message that was posted First has not been seen to end.
  bool pending(Side side) const { return half(side).pending; }

  /// True if the pending message of `side` has ended; it is then no longer
  /// pending.
  bool ended(Side side);

  /// Bytes that `side` posted last; for the message of a mismatch.
  Bytes bytes(Side side) const { return half(side).bytes; }
  /// When the last message ended, in nanoseconds.
  int64_t endedAt() const { return completedAt; }

private:
  struct alignas(64) Half {
    void *data = nullptr;
    Bytes bytes = 0;
    uint32_t seen = 0; ///< value of `completed` when it was posted
    bool pending = false;
  };
  Half &half(Side side) { return halves[static_cast<unsigned>(side)]; }
  const Half &half(Side side) const {
    return halves[static_cast<unsigned>(side)];
  }

  Half halves[2];
  /// Ends that have posted the current message: 0 or 1; the second resets it.
  alignas(64) std::atomic<uint32_t> arrived{0};
  /// Number of messages that have ended, modulo 2^32. While an end is pending
  /// it can grow by one only, so equality tells.
  std::atomic<uint32_t> completed{0};
  int64_t completedAt = 0;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_HOST_MAILBOX_H
