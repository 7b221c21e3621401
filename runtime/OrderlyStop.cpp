#include "runtime/OrderlyStop.h"

#include "runtime/Clock.h"
#include "runtime/Liaison.h"

#include <algorithm>

namespace sluice::runtime {

/// How long all processes have to answer, in seconds. A launcher that ends a
/// job because one is gone kills the others a second after its signal, and they
/// have a table to print.
static constexpr double kAnswerSeconds = 0.25;

OrderlyStop::OrderlyStop(const std::atomic<int> *noted, double graceSeconds,
                         uint32_t ranksHere, uint64_t firstStep,
                         uint64_t stepCount)
    : signal(noted), grace(graceSeconds), steps(stepCount), passed(ranksHere) {
  for (std::atomic<uint64_t> &count : passed)
    count = firstStep;
}

bool OrderlyStop::endsWith(uint32_t rank, uint64_t step) {
  // Either this thread sees the question, or who asks sees that it goes on:
  // both are sequentially consistent.
  if (!asked.load()) {
    passed[rank].store(step + 1);
    if (!asked.load())
      return false;
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return cancelled || after() != kNever; });
  return after() == step + 1;
}

void OrderlyStop::decide(uint64_t last) {
  const std::lock_guard lock(mutex);
  end.store(last, std::memory_order_release);
  changed.notify_all();
}

void OrderlyStop::cancel() {
  const std::lock_guard lock(mutex);
  cancelled = true;
  changed.notify_all();
}

void OrderlyStop::ask(Liaison *liaison) {
  since = nowNanoseconds();
  asked.store(true);
  uint64_t earliest = 0;
  for (const std::atomic<uint64_t> &count : passed)
    earliest = std::max(earliest, std::min(count.load() + 1, steps));
  if (liaison)
    liaison->proposeStop({earliest, cause});
  else
    decide(earliest);
}

bool OrderlyStop::look(bool running, Liaison *liaison) {
  const int here = signal ? signal->load() : 0;
  if (cause == 0)
    cause = here != 0 || !liaison ? here : liaison->stopCause();
  if (cause != 0 && running && !asked.load())
    ask(liaison);
  if (liaison && asked.load() && after() == kNever)
    if (const std::optional<uint64_t> all = liaison->agreedStop())
      decide(*all);
  if (here == 0)
    return false;
  const double waited = 1e-9 * static_cast<double>(nowNanoseconds() - since);
  return !asked.load() || waited > (after() == kNever ? kAnswerSeconds : grace);
}

} // namespace sluice::runtime
