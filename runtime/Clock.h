//===- runtime/Clock.h - The one clock of the runtime --------------------===//
#ifndef SLUICE_RUNTIME_CLOCK_H
#define SLUICE_RUNTIME_CLOCK_H

#include <chrono>
#include <cstdint>

namespace sluice::runtime {

/// Nanoseconds of the clock that all times of the runtime are in: steady, the
/// same for all threads of the process.
inline int64_t nowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_CLOCK_H
