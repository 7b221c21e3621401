//===- runtime/Watchdog.h - Notices a rank that no longer moves ----------===//
#ifndef SLUICE_RUNTIME_WATCHDOG_H
#define SLUICE_RUNTIME_WATCHDOG_H

#include "runtime/Progress.h"
#include "runtime/Standing.h"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace sluice::runtime {

/// A thread of its own (a full launch queue blocks a rank's) that looks at the
/// ranks' progress some ten times a timeout, but at least ten times a second.
/// It costs the ranks nothing.
class Watchdog {
public:
  /// `onExpired` is called once, from the watchdog's thread, when a rank that
  /// is loading, running or reporting has not moved for `timeoutSeconds`; a
  /// timeout that is not positive never expires. `watched` must outlive the
  /// watchdog.
  Watchdog(std::span<RankProgress> watched, double timeoutSeconds,
           std::function<void(Id rank)> onExpired);
  ~Watchdog();

  /// A copy of every rank's progress. From any thread.
  std::vector<Snapshot> snapshots();

private:
  struct Seen {
    std::vector<uint32_t> done;
    uint64_t step = 0;
    Phase phase = Phase::Loading;
    int64_t since = 0; ///< nanoseconds
  };
  void run(double timeoutSeconds);
  Id look(int64_t now, double timeoutSeconds);
  static bool refresh(const RankProgress &rank, Seen &last);

  std::span<RankProgress> ranks;
  std::function<void(Id)> expired;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Seen> seen;
  bool stop = false;
  std::thread thread;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_WATCHDOG_H
