//===- runtime/Liaison.cpp -----------------------------------------------===//
#include "runtime/Liaison.h"

#include "runtime/Clock.h"
#include "runtime/LiaisonLetters.h"

#include <algorithm>
#include <cstring>

namespace sluice::runtime {

/// Every process tells all others where it stands, so with many processes more
/// seldom: each hears of about a thousand letters a second at most.
static int64_t beatPeriod(uint32_t processes) {
  return std::max<int64_t>(100, processes) * kMillisecond;
}

/// Bytes of a tensor that go in one letter.
static constexpr Bytes kPieceBytes = Bytes(16) << 20;

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
  LetterWriter out = startLetter(LetterKind::Loaded);
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
  peers.post(0, startLetter(LetterKind::StepEnded).put(end).text);
}

void Liaison::tellReport(const RankReport &report, Id to) {
  LetterWriter out = startLetter(LetterKind::Report);
  write(out, report);
  peers.post(to, std::move(out.text));
}

void Liaison::offer(std::vector<HeldTensor> tensors) {
  LetterWriter out = startLetter(LetterKind::Offer);
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
  LetterWriter out = startLetter(LetterKind::Piece);
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
    peers.post(tensor.rank, startLetter(LetterKind::Fetch)
                                .put(tensor.index)
                                .put<Bytes>(bytes.size())
                                .text);
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
  LetterWriter out = startLetter(LetterKind::Over);
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

void Liaison::proposeStop(const StopProposal &proposal) {
  const std::string text = startLetter(LetterKind::Stop).put(proposal).text;
  for (Id to = 0; to < all.size(); ++to)
    peers.post(to, text);
}

int Liaison::stopCause() const {
  const std::lock_guard lock(mutex);
  for (const Peer &peer : all)
    if (peer.stop)
      return peer.stop->cause;
  return 0;
}

std::optional<uint64_t> Liaison::agreedStop() const {
  const std::lock_guard lock(mutex);
  uint64_t latest = 0;
  for (const Peer &peer : all) {
    if (!peer.stop)
      return std::nullopt;
    latest = std::max(latest, peer.stop->after);
  }
  return latest;
}

bool Liaison::endsEarly() const {
  const std::lock_guard lock(mutex);
  return somebodyEnds || silence;
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
  switch (in.get<LetterKind>()) {
  case LetterKind::Standing:
    peer.row = readRow(in);
    return false;
  case LetterKind::Loaded:
    peer.load = readStatus(in);
    peer.job = in.words();
    peer.loaded = true;
    return true;
  case LetterKind::Offer:
    peer.tensors = readOffer(in, from);
    peer.offered = true;
    return true;
  case LetterKind::Piece:
    piece = text.substr(1);
    pieceCame = true;
    return true;
  case LetterKind::Over:
    overStatus = readStatus(in);
    overCame = true;
    return true;
  case LetterKind::Stop:
    peer.stop = in.get<StopProposal>();
    return true;
  case LetterKind::Ends:
    peer.early.reason = in.get<EarlyEnd::Reason>();
    peer.early.message = in.words();
    peer.early.row = readRow(in);
    peer.ends = somebodyEnds = true;
    return true;
  case LetterKind::Dismissed:
    leaveAt = in.get<int64_t>() - clockOffset();
    return dismissed = true;
  case LetterKind::StepEnded: // for the job: below
  case LetterKind::Report:
  case LetterKind::Fetch:
    return false;
  }
  return false;
}

void Liaison::letter(Id from, std::string_view text) {
  LetterReader in(text);
  const auto kind = in.get<LetterKind>(); // of an empty letter that of no hook
  bool news = false;
  {
    const std::lock_guard lock(mutex);
    news = read(from, text);
  }
  if (kind == LetterKind::StepEnded && hooks.stepEnded)
    hooks.stepEnded(from, in.get<StepEnd>());
  if (kind == LetterKind::Report && hooks.reported) {
    hooks.reported(from, readReport(in));
    const std::lock_guard lock(mutex);
    all[from].reported = news = true;
  }
  if (kind == LetterKind::Fetch) {
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
  LetterWriter out = startLetter(LetterKind::Standing);
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
  if (!endsEarly() && !(signalled && *signalled != 0))
    return;
  changed.notify_all();
  if (hooks.changed)
    hooks.changed();
}

} // namespace sluice::runtime
