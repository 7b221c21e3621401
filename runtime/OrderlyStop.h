//===- runtime/OrderlyStop.h - A signal ends a job after a whole step -----===//
//
// A job that writes checkpoints ends on a signal after the step in progress,
// with the state after it written. Ranks are not all in the same step; so each
// process says after which step its ranks can stop at the earliest, and the
// latest of these steps is the last for all. Nobody is asked before all have
// said so: a process that is gone says nothing, and the job then ends at once.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_ORDERLYSTOP_H
#define SLUICE_RUNTIME_ORDERLYSTOP_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

namespace sluice::runtime {

class Liaison;

/// The last step of a job, as far as a signal sets it.
class OrderlyStop {
public:
  /// Of a job of `stepCount` steps whose next is `firstStep`, with `ranksHere`
  /// ranks in this process. A number other than 0 in `noted`, which may be
  /// null, is a signal. Not all ranks having ended `graceSeconds` after it, the
  /// job ends as it is.
  OrderlyStop(const std::atomic<int> *noted, double graceSeconds,
              uint32_t ranksHere, uint64_t firstStep, uint64_t stepCount);

  /// At the end of `step`, from the thread of the `rank`-th rank of this
  /// process: whether the job ends with it. Waits for the other processes where
  /// a signal came in this step.
  bool endsWith(uint32_t rank, uint64_t step);

  /// Hears of a signal, here or from the other processes, which may be null.
  /// From one thread, some ten times a second and after every letter. True: a
  /// signal came here, and the job ends at once, because ranks are still
  /// loading (not `running`), not all processes answer, or the time is over.
  bool look(bool running, Liaison *liaison);

  /// Nobody waits any more.
  void cancel();

  /// How many steps the job has at its end; kNever before a signal.
  uint64_t after() const { return end.load(std::memory_order_acquire); }
  /// Whether the job ends before its last step.
  bool isEarly() const { return after() < steps; }
  /// The signal's number.
  int number() const { return cause; }

  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

private:
  void ask(Liaison *liaison);
  void decide(uint64_t steps);

  const std::atomic<int> *const signal;
  const double grace;
  const uint64_t steps;
  /// Per rank of this process: steps at whose end it was found to go on.
  std::vector<std::atomic<uint64_t>> passed;
  std::atomic<bool> asked{false};
  std::atomic<uint64_t> end{kNever};
  int64_t since = 0; ///< nanoseconds, when the signal was heard of
  int cause = 0;
  std::mutex mutex; ///< guards the waiting
  std::condition_variable changed;
  bool cancelled = false;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_ORDERLYSTOP_H
