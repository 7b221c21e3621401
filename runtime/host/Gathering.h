//===- runtime/host/Gathering.h - A collective between threads -----------===//
#ifndef SLUICE_RUNTIME_HOST_GATHERING_H
#define SLUICE_RUNTIME_HOST_GATHERING_H

#include "ir/Ops.h"
#include "ir/Units.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace sluice::runtime {

/// One collective in shared memory: a seat for each of its ranks, one operation
/// at a time, no buffer. Whoever takes the last seat computes for all, straight
/// in their buffers and in order of the seats, so that the result has the same
/// bits whoever comes last. Lock-free; each seat is used by one thread at a
/// time.
class Gathering {
public:
  explicit Gathering(size_t ranks) : seats(ranks) {}

  enum class Posted : uint8_t {
    Waits,   ///< others are not there yet: ask `ended`
    Ended,   ///< all were there, the operation is over; they must be told
    Mismatch ///< the sizes differ, nothing was written
  };

  /// Takes `seat` for the next operation; not while it is pending. `data` gets
  /// what `pattern` leaves with the seat, or `part` where that is not null
  /// (Backend::collective); both must stay valid until it ended.
  Posted post(size_t seat, Pattern pattern, Element element, void *data,
              Bytes bytes, void *part = nullptr);

  /// True while an operation that was posted has not been seen to end.
  bool pending(size_t seat) const { return seats[seat].pending; }

  /// True if the pending operation of `seat` has ended; it is then no longer
  /// pending.
  bool ended(size_t seat);

  /// A seat whose bytes differ from those of the first, after a Mismatch.
  Bytes bytes(size_t seat) const { return seats[seat].bytes; }
  size_t differing() const;

  /// When the last operation ended, in nanoseconds.
  int64_t endedAt() const { return completedAt; }

private:
  struct alignas(64) Seat {
    void *data = nullptr;
    void *part = nullptr;
    Bytes bytes = 0;
    uint32_t seen = 0; ///< value of `completed` when it was posted
    bool pending = false;
  };
  void compute(Pattern pattern, Element element);
  template <typename T> void reduce(Pattern pattern);
  template <typename T>
  void sum(size_t begin, size_t end, const Seat *first, const Seat *last);
  void gather();

  std::vector<Seat> seats;
  /// Seats that are taken for the current operation; the last resets it.
  alignas(64) std::atomic<uint32_t> taken{0};
  /// Operations that have ended, modulo 2^32. While a seat is pending it can
  /// grow by one only, so equality tells.
  std::atomic<uint32_t> completed{0};
  int64_t completedAt = 0;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_HOST_GATHERING_H
