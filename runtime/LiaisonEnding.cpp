//===- runtime/LiaisonEnding.cpp - How processes end early ----------------===//
#include "runtime/Clock.h"
#include "runtime/LiaisonLetters.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

namespace sluice::runtime {

/// How long a process that ends waits for the others' last word.
static constexpr int64_t kLastWord = 400 * kMillisecond;
/// How long one that does not speak waits for the one that does: mpirun kills
/// all a second after its SIGTERM.
static constexpr int64_t kDismissal = 3 * kSecond;
static constexpr int64_t kDismissalAfterSignal = 450 * kMillisecond;
/// How long the one that speaks waits for what the others did last.
static constexpr int64_t kReports = 200 * kMillisecond;
/// How long after the last word all end, at one time: each process that ends
/// lets mpirun go on to a stronger signal for the others.
static constexpr int64_t kTogether = 60 * kMillisecond;
/// Who has not said one, and was not heard of for so long, is gone.
static constexpr int64_t kGone = 300 * kMillisecond;

static double seconds(int64_t nanoseconds) {
  return 1e-9 * static_cast<double>(nanoseconds);
}

/// What is known of a rank in the end.
StandingRow Liaison::rowOf(Id rank, int64_t now) const {
  const Peer &peer = all[rank];
  if (peer.ends)
    return peer.early.row;
  StandingRow row = peer.row;
  const int64_t silent = now - peer.lastHeard;
  if (silent > kGone) {
    char text[64];
    std::snprintf(text, sizeof(text), "not heard of for %.1f s",
                  seconds(silent));
    row.waitsFor = text;
    row.idleSeconds = seconds(silent);
    row.inModule = false;
  }
  if (row.standsAt.empty())
    row.standsAt = "start";
  return row;
}

/// What a rank said goes before that one is gone, that before that some wait,
/// and that before a signal from outside, which may follow from any of it.
void Liaison::judge(Verdict &verdict) const {
  const auto first = [&](auto matches) {
    const auto found = std::find_if(all.begin(), all.end(), matches);
    verdict.rank = static_cast<Id>(found - all.begin());
    return found != all.end();
  };
  const auto says = [&](EarlyEnd::Reason reason) {
    verdict.reason = reason;
    const bool found = first([reason](const Peer &peer) {
      return peer.ends && peer.early.reason == reason;
    });
    verdict.message = found ? all[verdict.rank].early.message : "";
    return found;
  };
  const int64_t now = nowNanoseconds();
  if (says(EarlyEnd::Reason::Failed))
    return;
  verdict.reason = EarlyEnd::Reason::Silent;
  if (first([now](const Peer &peer) {
        return !peer.ends && now - peer.lastHeard > kGone;
      }))
    return;
  if (!says(EarlyEnd::Reason::Stuck) && !says(EarlyEnd::Reason::Signal) &&
      !says(EarlyEnd::Reason::Silent))
    verdict.rank = self();
}

Liaison::Verdict Liaison::end(EarlyEnd mine) {
  LetterWriter out = startLetter(LetterKind::Ends);
  out.put(mine.reason).words(mine.message);
  write(out, mine.row);
  broadcast(out.text);
  Verdict verdict;
  std::unique_lock lock(mutex);
  all[self()].ends = true;
  all[self()].early = std::move(mine);
  changed.wait_for(lock, std::chrono::nanoseconds(kLastWord), [this] {
    return std::all_of(all.begin(), all.end(),
                       [](const Peer &peer) { return peer.ends; });
  });
  const int64_t now = nowNanoseconds();
  for (Id rank = 0; rank < all.size(); ++rank)
    verdict.rows.push_back(rowOf(rank, now));
  judge(verdict);
  // Who was stopped meanwhile may be the last to hear that the others ended.
  const auto ended = [](const Peer &peer) { return peer.ends; };
  const bool early = std::any_of(all.begin(), all.begin() + self(), ended);
  const bool late = std::any_of(all.begin() + self() + 1, all.end(), ended);
  verdict.speaker = static_cast<Id>(
      std::find_if(all.begin(), all.end(), ended) - all.begin());
  verdict.speaks = !early && !dismissed && !(wasStopped && late);
  return verdict;
}

/// No longer than those who speak ask for.
static void sleepUntil(int64_t time) {
  const int64_t left = std::min(time - nowNanoseconds(), kTogether);
  if (left > 0)
    std::this_thread::sleep_for(std::chrono::nanoseconds(left));
}

void Liaison::awaitReports() {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::nanoseconds(kReports), [this] {
    return std::all_of(all.begin(), all.end(), [this](const Peer &peer) {
      return &peer == &all[self()] || !peer.ends || peer.reported;
    });
  });
}

void Liaison::awaitDismissal() {
  std::unique_lock lock(mutex);
  const auto until = [&](int64_t time) {
    return changed.wait_for(lock, std::chrono::nanoseconds(time), [this] {
      return dismissed || (signalled && *signalled != 0);
    });
  };
  if (until(kDismissal) && !dismissed)
    changed.wait_for(lock, std::chrono::nanoseconds(kDismissalAfterSignal),
                     [this] { return dismissed; });
  lock.unlock();
  sleepUntil(leaveAt);
}

void dismiss(Peers &peers) {
  const int64_t leaveAt = nowNanoseconds() + kTogether;
  const std::string text = startLetter(LetterKind::Dismissed)
                               .put<int64_t>(leaveAt + peers.clockOffset())
                               .text;
  for (Id to = 0; to < peers.count(); ++to)
    if (to != peers.self())
      peers.post(to, text);
  peers.flush(seconds(kTogether));
  sleepUntil(leaveAt);
}

Departure leave(Peers &peers, const Status &own, double timeoutSeconds,
                const std::atomic<int> *signal) {
  std::mutex mutex;
  std::condition_variable changed;
  Liaison liaison(peers, timeoutSeconds, signal,
                  {.changed =
                       [&] {
                         const std::lock_guard lock(mutex);
                         changed.notify_all();
                       },
                   .standing = nullptr,
                   .stepEnded = nullptr,
                   .reported = nullptr});
  liaison.tellLoaded(own, "");
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] {
      return liaison.allLoaded() || liaison.endsEarly() ||
             (signal && *signal != 0);
    });
  }
  Id whose = peers.self();
  Departure departure = {own, true, liaison.allLoaded()};
  if (departure.orderly)
    departure.status = liaison.loadVerdict(whose);
  departure.speaks = whose == peers.self();
  return departure;
}

} // namespace sluice::runtime
