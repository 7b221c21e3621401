//===- runtime/Progress.h - How far a rank is ----------------------------===//
#ifndef SLUICE_RUNTIME_PROGRESS_H
#define SLUICE_RUNTIME_PROGRESS_H

#include <atomic>
#include <cstdint>
#include <memory>

namespace sluice::runtime {

/// What a rank is about.
enum class Phase : uint8_t {
  Loading,   ///< creates and binds its stages
  Ready,     ///< waits until all ranks have loaded
  Running,   ///< inside a step
  Reporting, ///< tells the caller of a step
  Failed,    ///< in an operation or at a step's end
  Finished
};

/// Written by the rank's thread with relaxed stores (it costs next to nothing),
/// read by the watchdog. `done[s]` counts the operations of stream s that have
/// ended in this step; with the plan that says where every stream stands.
struct alignas(64) RankProgress {
  std::atomic<uint64_t> step{0};
  std::atomic<Phase> phase{Phase::Loading};
  uint32_t streams = 0;
  std::unique_ptr<std::atomic<uint32_t>[]> done;

  void setStreams(uint32_t count) {
    streams = count;
    done = std::make_unique<std::atomic<uint32_t>[]>(count);
  }
  void enter(Phase next) { phase.store(next, std::memory_order_relaxed); }
  void beginStep(uint64_t number) {
    for (uint32_t s = 0; s < streams; ++s)
      done[s].store(0, std::memory_order_relaxed);
    step.store(number, std::memory_order_relaxed);
    enter(Phase::Running);
  }
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_PROGRESS_H
