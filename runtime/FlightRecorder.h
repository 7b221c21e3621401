//===- runtime/FlightRecorder.h - What a rank did last --------------------===//
#ifndef SLUICE_RUNTIME_FLIGHTRECORDER_H
#define SLUICE_RUNTIME_FLIGHTRECORDER_H

#include "ir/Ops.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::runtime {

/// One operation, in nanoseconds of the clock of Clock.h.
struct FlightEntry {
  int64_t start = 0;
  int64_t end = 0; ///< 0: it has not ended
  uint64_t step = 0;
  uint32_t op = kNone; ///< in the rank's list
};

/// The last operations that a rank has started, in memory that is taken once.
/// One thread writes, by relaxed stores, in every run; any may read meanwhile,
/// and then sees the newest entries as they are being written.
class FlightRecorder {
public:
  static constexpr uint32_t kEntries = 1u << 12;

  void allocate() { entries = std::make_unique<Entry[]>(kEntries); }
  void beginStep(uint64_t number) { step = number; }

  /// Notes that `op` starts; returns the number of the entry, for `end`.
  uint32_t begin(uint32_t op, int64_t now) {
    const uint64_t number = count.load(std::memory_order_relaxed);
    Entry &entry = entries[number % kEntries];
    entry.end.store(0, std::memory_order_relaxed);
    entry.start.store(now, std::memory_order_relaxed);
    entry.step.store(step, std::memory_order_relaxed);
    entry.op.store(op, std::memory_order_relaxed);
    count.store(number + 1, std::memory_order_release);
    return static_cast<uint32_t>(number);
  }
  /// Nothing where so many have started since that its entry is another's.
  void end(uint32_t number, int64_t now) {
    const uint64_t started = count.load(std::memory_order_relaxed);
    if (static_cast<uint32_t>(started) - number <= kEntries)
      entries[number % kEntries].end.store(now, std::memory_order_relaxed);
  }

  /// In the order in which they started.
  std::vector<FlightEntry> last() const {
    std::vector<FlightEntry> all;
    const uint64_t started = count.load(std::memory_order_acquire);
    const uint64_t kept = std::min<uint64_t>(started, kEntries);
    for (uint64_t i = started - kept; i < started; ++i) {
      const Entry &entry = entries[i % kEntries];
      all.push_back({entry.start.load(std::memory_order_relaxed),
                     entry.end.load(std::memory_order_relaxed),
                     entry.step.load(std::memory_order_relaxed),
                     entry.op.load(std::memory_order_relaxed)});
    }
    return all;
  }

private:
  struct Entry {
    std::atomic<int64_t> start{0};
    std::atomic<int64_t> end{0};
    std::atomic<uint64_t> step{0};
    std::atomic<uint32_t> op{kNone};
  };
  std::unique_ptr<Entry[]> entries;
  std::atomic<uint64_t> count{0};
  uint64_t step = 0; ///< of the writing thread alone
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_FLIGHTRECORDER_H
