//===- runtime/Progress.h - How far a rank is ----------------------------===//
#ifndef SLUICE_RUNTIME_PROGRESS_H
#define SLUICE_RUNTIME_PROGRESS_H

#include "runtime/FlightRecorder.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace sluice::runtime {

/// What a rank is about.
enum class Phase : uint8_t {
  Loading,   ///< creates and binds its stages
  Unloaded,  ///< could not load
  Ready,     ///< waits until all ranks have loaded
  Running,   ///< inside a step
  Saving,    ///< writes its part of a checkpoint
  Reporting, ///< tells the caller of a step
  Failed,    ///< in an operation or at a step's end
  Finished
};

/// Counters that one thread writes, in cache lines that hold nothing else: the
/// counters of two ranks, allocated one after the other, never share one.
class Counters {
public:
  void allocate(uint32_t count) {
    lines = std::make_unique<Line[]>((count + kPerLine - 1) / kPerLine);
  }
  std::atomic<uint32_t> &operator[](uint32_t i) {
    return lines[i / kPerLine].counters[i % kPerLine];
  }
  const std::atomic<uint32_t> &operator[](uint32_t i) const {
    return lines[i / kPerLine].counters[i % kPerLine];
  }

private:
  static constexpr uint32_t kPerLine = 16;
  struct alignas(64) Line {
    std::atomic<uint32_t> counters[kPerLine] = {};
  };
  static_assert(sizeof(Line) == 64);
  std::unique_ptr<Line[]> lines;
};

/// Written by the rank's thread with relaxed stores (it costs next to nothing),
/// read by the watchdog. `done[s]` counts the operations of stream s that have
/// ended in this step; with the plan that says where every stream stands.
struct alignas(64) RankProgress {
  std::atomic<uint64_t> step{0};
  std::atomic<Phase> phase{Phase::Loading};
  uint32_t streams = 0;
  Counters done;
  FlightRecorder flight; ///< of what the backend starts

  void setStreams(uint32_t count) {
    streams = count;
    done.allocate(count);
  }
  void enter(Phase next) { phase.store(next, std::memory_order_relaxed); }
  void beginStep(uint64_t number) {
    for (uint32_t s = 0; s < streams; ++s)
      done[s].store(0, std::memory_order_relaxed);
    step.store(number, std::memory_order_relaxed);
    flight.beginStep(number);
    enter(Phase::Running);
  }
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_PROGRESS_H
