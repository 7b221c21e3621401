//===- runtime/Liaison.cpp -----------------------------------------------===//
#include "runtime/Liaison.h"

#include "runtime/Clock.h"
#include "runtime/Letter.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace sluice::runtime {

/// Nanoseconds.
static constexpr int64_t kMillisecond = 1'000'000;
static constexpr int64_t kSecond = 1000 * kMillisecond;

/// Every process tells all others where it stands, so with many processes more
/// seldom: each hears of about a thousand letters a second at most.
static int64_t beatPeriod(uint32_t processes) {
  return std::max<int64_t>(100, processes) * kMillisecond;
}

/// How long a process that ends waits for the others' last word.
static constexpr int64_t kLastWord = 400 * kMillisecond;
/// How long one that does not speak waits for the one that does: mpirun kills
/// all a second after its SIGTERM.
static constexpr int64_t kDismissal = 3 * kSecond;
static constexpr int64_t kDismissalAfterSignal = 300 * kMillisecond;
/// How long after the last word all end, at one time: each process that ends
/// lets mpirun go on to a stronger signal for the others.
static constexpr int64_t kTogether = 60 * kMillisecond;
/// Who has not said one, and was not heard of for so long, is gone.
static constexpr int64_t kGone = 300 * kMillisecond;
/// Bytes of a tensor that go in one letter.
static constexpr Bytes kPieceBytes = Bytes(16) << 20;

namespace {
enum class Letter : uint8_t {
  Standing,
  Loaded,
  StepEnded,
  Report,
  Offer,
  Fetch,
  Piece,
  Over,
  Ends,
  Dismissed
};
} // namespace

static LetterWriter start(Letter kind) {
  LetterWriter out;
  out.put(kind);
  return out;
}

static double seconds(int64_t nanoseconds) {
  return 1e-9 * static_cast<double>(nanoseconds);
}

//===----------------------------------------------------------------------===//
// What letters hold
//===----------------------------------------------------------------------===//

static void write(LetterWriter &out, const Status &status) {
  out.put(status.fault()).words(status.message());
}

static Status readStatus(LetterReader &in) {
  const auto fault = in.get<Fault>();
  std::string message(in.words());
  switch (fault) {
  case Fault::None:
    return {};
  case Fault::Input:
    return Status::input(std::move(message));
  case Fault::Usage:
    return Status::usage(std::move(message));
  case Fault::Environment:
    break;
  }
  return Status::environment(std::move(message));
}

static void write(LetterWriter &out, const StandingRow &row) {
  out.put(row.step)
      .words(row.standsAt)
      .words(row.line)
      .words(row.waitsFor)
      .put(row.idleSeconds)
      .put(row.inModule);
}

static StandingRow readRow(LetterReader &in) {
  StandingRow row;
  row.step = in.get<uint64_t>();
  row.standsAt = in.words();
  row.line = in.words();
  row.waitsFor = in.words();
  row.idleSeconds = in.get<double>();
  row.inModule = in.get<bool>();
  return row;
}

template <typename T>
static void write(LetterWriter &out, const std::vector<T> &values) {
  out.words({reinterpret_cast<const char *>(values.data()),
             values.size() * sizeof(T)});
}

template <typename T> static std::vector<T> readVector(LetterReader &in) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::string_view bytes = in.words();
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty())
    std::memcpy(static_cast<void *>(values.data()), bytes.data(),
                values.size() * sizeof(T));
  return values;
}

static void write(LetterWriter &out, const RankReport &report) {
  out.put(report.arenaBytes).put(report.hostArenaBytes);
  write(out, report.stages);
  write(out, report.costs);
  write(out, report.times);
}

static RankReport readReport(LetterReader &in) {
  RankReport report;
  report.arenaBytes = in.get<Bytes>();
  report.hostArenaBytes = in.get<Bytes>();
  report.stages = readVector<Id>(in);
  report.costs = readVector<StageCostSums>(in);
  report.times = readVector<OpTime>(in);
  return report;
}

static std::vector<HeldTensor> readOffer(LetterReader &in, Id from) {
  std::vector<HeldTensor> tensors;
  while (!in.atEnd()) {
    HeldTensor &tensor = tensors.emplace_back();
    tensor.rank = from;
    tensor.index = static_cast<uint32_t>(tensors.size() - 1);
    tensor.position = in.get<uint64_t>();
    tensor.bytes = in.get<Bytes>();
    tensor.name = in.words();
  }
  return tensors;
}

//===----------------------------------------------------------------------===//
// Telling
//===----------------------------------------------------------------------===//

Liaison::Liaison(Peers &others, double timeoutSeconds,
                 const std::atomic<int> *signal, Hooks whatToDo)
    : peers(others), timeout(timeoutSeconds), signalled(signal),
      hooks(std::move(whatToDo)), lastTick(nowNanoseconds()),
      all(others.count()) {
  for (Peer &peer : all)
    peer.lastHeard = lastTick;
  peers.listen(this);
}

Liaison::~Liaison() { stopHearing(); }

void Liaison::broadcast(const std::string &text) {
  for (Id to = 0; to < all.size(); ++to)
    if (to != self())
      peers.post(to, text);
}

void Liaison::tellLoaded(const Status &status, const std::string &job) {
  LetterWriter out = start(Letter::Loaded);
  write(out, status);
  out.words(job);
  for (Id to = 0; to < all.size(); ++to) // also to itself
    peers.post(to, out.text);
}

bool Liaison::allLoaded() const {
  const std::lock_guard lock(mutex);
  return std::all_of(all.begin(), all.end(),
                     [](const Peer &peer) { return peer.loaded; });
}

/// The first line of `mine` that `other` does not have too.
static std::string differingLine(std::string_view mine,
                                 std::string_view other) {
  while (!mine.empty()) {
    const std::string_view line = mine.substr(0, mine.find('\n'));
    const std::string_view its = other.substr(0, other.find('\n'));
    if (line != its)
      return std::string(line);
    mine.remove_prefix(std::min(line.size() + 1, mine.size()));
    other.remove_prefix(std::min(its.size() + 1, other.size()));
  }
  return "nothing";
}

Status Liaison::loadVerdict(Id &whose) const {
  const std::lock_guard lock(mutex);
  for (whose = 0; whose < all.size(); ++whose)
    if (!all[whose].load.ok())
      return all[whose].load;
  for (whose = 0; whose < all.size(); ++whose)
    if (all[whose].job != all[0].job)
      return Status::input("process " + std::to_string(whose) +
                           " was given another job than process 0: there " +
                           differingLine(all[whose].job, all[0].job) +
                           ", here " +
                           differingLine(all[0].job, all[whose].job) +
                           "; all must read the same plan or spec");
  whose = 0;
  return {};
}

void Liaison::tellStepEnd(const StepEnd &end) {
  peers.post(0, start(Letter::StepEnded).put(end).text);
}

void Liaison::tellReport(const RankReport &report) {
  LetterWriter out = start(Letter::Report);
  write(out, report);
  peers.post(0, std::move(out.text));
}

void Liaison::offer(std::vector<HeldTensor> tensors) {
  LetterWriter out = start(Letter::Offer);
  for (const HeldTensor &tensor : tensors)
    out.put(tensor.position).put(tensor.bytes).words(tensor.name);
  {
    const std::lock_guard lock(mutex);
    own = std::move(tensors);
  }
  peers.post(0, std::move(out.text));
}

bool Liaison::allReported(bool weights) const {
  const std::lock_guard lock(mutex);
  return std::all_of(all.begin(), all.end(), [&](const Peer &peer) {
    return peer.reported && (!weights || peer.offered);
  });
}

std::vector<HeldTensor> Liaison::offered() const {
  const std::lock_guard lock(mutex);
  std::vector<HeldTensor> tensors;
  for (Id rank = 0; rank < all.size(); ++rank)
    if (rank != self())
      tensors.insert(tensors.end(), all[rank].tensors.begin(),
                     all[rank].tensors.end());
  return tensors;
}

void Liaison::sendPiece(Id to, uint32_t index, Bytes offset) const {
  LetterWriter out = start(Letter::Piece);
  {
    const std::lock_guard lock(mutex);
    if (index < own.size() && offset <= own[index].bytes)
      out.text.append(static_cast<const char *>(own[index].data) + offset,
                      std::min(kPieceBytes, own[index].bytes - offset));
  }
  peers.post(to, std::move(out.text));
}

Status Liaison::fetch(const HeldTensor &tensor, std::string &bytes) {
  bytes.clear();
  while (bytes.size() < tensor.bytes) {
    std::unique_lock lock(mutex);
    pieceCame = false;
    lock.unlock();
    peers.post(
        tensor.rank,
        start(Letter::Fetch).put(tensor.index).put<Bytes>(bytes.size()).text);
    lock.lock();
    changed.wait(lock, [this] { return pieceCame || somebodyEnds || silence; });
    if (!pieceCame || piece.empty())
      return Status::environment("the weights of rank " +
                                 std::to_string(tensor.rank) +
                                 " could not be fetched");
    bytes.append(piece);
  }
  return {};
}

void Liaison::tellOver(const Status &status) {
  LetterWriter out = start(Letter::Over);
  write(out, status);
  broadcast(out.text);
}

bool Liaison::isOver() const {
  const std::lock_guard lock(mutex);
  return overCame;
}

Status Liaison::over() const {
  const std::lock_guard lock(mutex);
  return overStatus;
}

bool Liaison::endsEarly() const {
  const std::lock_guard lock(mutex);
  return somebodyEnds || silence || (signalled && *signalled != 0);
}

//===----------------------------------------------------------------------===//
// Hearing
//===----------------------------------------------------------------------===//

/// Takes what a letter says into the state; true if somebody may wait for it.
bool Liaison::read(Id from, std::string_view text) {
  LetterReader in(text);
  Peer &peer = all[from];
  peer.lastHeard = nowNanoseconds();
  if (text.empty()) // it is there, and does not listen yet
    return false;
  switch (in.get<Letter>()) {
  case Letter::Standing:
    peer.row = readRow(in);
    return false;
  case Letter::Loaded:
    peer.load = readStatus(in);
    peer.job = in.words();
    peer.loaded = true;
    return true;
  case Letter::Offer:
    peer.tensors = readOffer(in, from);
    peer.offered = true;
    return true;
  case Letter::Piece:
    piece = text.substr(1);
    pieceCame = true;
    return true;
  case Letter::Over:
    overStatus = readStatus(in);
    overCame = true;
    return true;
  case Letter::Ends:
    peer.early.reason = in.get<EarlyEnd::Reason>();
    peer.early.message = in.words();
    peer.early.row = readRow(in);
    peer.ends = somebodyEnds = true;
    return true;
  case Letter::Dismissed:
    leaveAt = in.get<int64_t>() - clockOffset();
    return dismissed = true;
  case Letter::StepEnded: // for the job: below
  case Letter::Report:
  case Letter::Fetch:
    return false;
  }
  return false;
}

void Liaison::letter(Id from, std::string_view text) {
  LetterReader in(text);
  const auto kind = in.get<Letter>(); // of an empty letter that of no hook
  bool news = false;
  {
    const std::lock_guard lock(mutex);
    news = read(from, text);
  }
  if (kind == Letter::StepEnded && hooks.stepEnded)
    hooks.stepEnded(from, in.get<StepEnd>());
  if (kind == Letter::Report && hooks.reported) {
    hooks.reported(from, readReport(in));
    const std::lock_guard lock(mutex);
    all[from].reported = news = true;
  }
  if (kind == Letter::Fetch) {
    const auto index = in.get<uint32_t>();
    sendPiece(from, index, in.get<Bytes>());
  }
  if (!news)
    return;
  changed.notify_all();
  if (hooks.changed)
    hooks.changed();
}

void Liaison::beat(int64_t now) {
  if (now < nextBeat)
    return;
  nextBeat = now + beatPeriod(peers.count());
  LetterWriter out = start(Letter::Standing);
  write(out, hooks.standing ? hooks.standing() : StandingRow());
  broadcast(out.text);
}

void Liaison::listenForSilence(int64_t now) {
  if (timeout <= 0)
    return;
  const int64_t limit = std::max(static_cast<int64_t>(timeout * 1e9),
                                 20 * beatPeriod(peers.count()));
  const std::lock_guard lock(mutex);
  for (Id rank = 0; rank < all.size(); ++rank)
    silence |= rank != self() && !overCame && now - all[rank].lastHeard > limit;
}

void Liaison::tick() {
  const int64_t now = nowNanoseconds();
  if (now - lastTick > kSecond) { // this process itself was stopped
    const std::lock_guard lock(mutex);
    wasStopped = true;
    for (Peer &peer : all)
      peer.lastHeard = now;
  }
  lastTick = now;
  beat(now);
  listenForSilence(now);
  if (!endsEarly())
    return;
  changed.notify_all();
  if (hooks.changed)
    hooks.changed();
}

//===----------------------------------------------------------------------===//
// Ending early
//===----------------------------------------------------------------------===//

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
  LetterWriter out = start(Letter::Ends);
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
  verdict.speaks = !early && !dismissed && !(wasStopped && late);
  return verdict;
}

/// No longer than those who speak ask for.
static void sleepUntil(int64_t time) {
  const int64_t left = std::min(time - nowNanoseconds(), kTogether);
  if (left > 0)
    std::this_thread::sleep_for(std::chrono::nanoseconds(left));
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
  const std::string text =
      start(Letter::Dismissed).put<int64_t>(leaveAt + peers.clockOffset()).text;
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
    changed.wait(lock,
                 [&] { return liaison.allLoaded() || liaison.endsEarly(); });
  }
  Id whose = peers.self();
  Departure departure = {own, true, liaison.allLoaded()};
  if (departure.orderly)
    departure.status = liaison.loadVerdict(whose);
  departure.speaks = whose == peers.self();
  return departure;
}

} // namespace sluice::runtime
