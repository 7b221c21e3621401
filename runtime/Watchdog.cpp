//===- runtime/Watchdog.cpp ----------------------------------------------===//
#include "runtime/Watchdog.h"

#include "runtime/Clock.h"

#include <algorithm>
#include <chrono>

namespace sluice::runtime {

Watchdog::Watchdog(std::span<RankProgress> watched, double timeoutSeconds,
                   std::function<void(Id)> onExpired)
    : ranks(watched), expired(std::move(onExpired)), seen(watched.size()) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    seen[r].done.resize(ranks[r].streams);
    seen[r].since = nowNanoseconds();
  }
  thread = std::thread([this, timeoutSeconds] { run(timeoutSeconds); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  changed.notify_all();
  thread.join();
}

/// Brings `seen` up to date; true if the rank has moved.
bool Watchdog::refresh(const RankProgress &rank, Seen &last) {
  bool moved = false;
  const auto update = [&moved](auto &old, auto current) {
    moved |= old != current;
    old = current;
  };
  update(last.step, rank.step.load(std::memory_order_relaxed));
  update(last.phase, rank.phase.load(std::memory_order_relaxed));
  for (uint32_t s = 0; s < rank.streams; ++s)
    update(last.done[s], rank.done[s].load(std::memory_order_relaxed));
  return moved;
}

static bool isWatched(Phase phase) {
  switch (phase) {
  case Phase::Loading:
  case Phase::Running:
  case Phase::Saving:
  case Phase::Reporting:
    return true;
  case Phase::Unloaded:
  case Phase::Ready:
  case Phase::Failed:
  case Phase::Finished:
    return false;
  }
  return false; // not reached: the switch is complete
}

/// Returns the first rank that is over its time, or kNone.
Id Watchdog::look(int64_t time, double timeoutSeconds) {
  Id over = kNone;
  for (Id r = 0; r < ranks.size(); ++r) {
    if (refresh(ranks[r], seen[r]))
      seen[r].since = time;
    const double idle = 1e-9 * static_cast<double>(time - seen[r].since);
    if (over == kNone && timeoutSeconds > 0 && isWatched(seen[r].phase) &&
        idle > timeoutSeconds)
      over = r;
  }
  return over;
}

void Watchdog::run(double timeoutSeconds) {
  const double tick =
      timeoutSeconds > 0 ? std::clamp(timeoutSeconds / 10, 0.001, 0.1) : 0.1;
  bool told = false;
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, std::chrono::duration<double>(tick),
                           [this] { return stop; })) {
    const Id over = look(nowNanoseconds(), timeoutSeconds);
    if (over == kNone || told)
      continue;
    told = true;
    lock.unlock();
    expired(over);
    lock.lock();
  }
}

std::vector<Snapshot> Watchdog::snapshots() {
  const std::lock_guard lock(mutex);
  const int64_t time = nowNanoseconds();
  (void)look(time, 0);
  std::vector<Snapshot> result(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r)
    result[r] = {seen[r].step, seen[r].phase, seen[r].done,
                 1e-9 * static_cast<double>(time - seen[r].since), kNone};
  return result;
}

} // namespace sluice::runtime
