//===- runtime/mpi/MpiPeers.cpp ------------------------------------------===//
#include "runtime/mpi/MpiPeers.h"

#include "runtime/Clock.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace sluice::runtime::mpi {

static constexpr int kLetterTag = 0;
static constexpr int kClockTag = 1;

//===----------------------------------------------------------------------===//
// Meeting
//===----------------------------------------------------------------------===//

namespace {
struct Clocks {
  int64_t here;
  int64_t first; ///< of process 0
};
} // namespace

/// Process 0 tells every other one its time, several times over; each takes
/// what it heard at the quickest answer. Clocks that differ by less than that
/// answer took are taken for one.
Status MpiPeers::measureClocks() {
  constexpr int kTries = 10;
  int code = MPI_SUCCESS;
  const auto is = [&code](int answer) {
    code = code == MPI_SUCCESS ? answer : code;
    return code == MPI_SUCCESS;
  };
  int64_t time = 0;
  if (session.rank == 0) {
    for (int peer = 1; peer < session.size; ++peer)
      for (int i = 0; i < kTries; ++i) {
        if (!is(MPI_Recv(&time, 1, MPI_INT64_T, peer, kClockTag,
                         session.letters, MPI_STATUS_IGNORE)))
          break;
        time = nowNanoseconds();
        is(MPI_Send(&time, 1, MPI_INT64_T, peer, kClockTag, session.letters));
      }
  } else {
    int64_t quickest = INT64_MAX;
    for (int i = 0; i < kTries; ++i) {
      const int64_t before = nowNanoseconds();
      if (!is(MPI_Send(&before, 1, MPI_INT64_T, 0, kClockTag,
                       session.letters)) ||
          !is(MPI_Recv(&time, 1, MPI_INT64_T, 0, kClockTag, session.letters,
                       MPI_STATUS_IGNORE)))
        break;
      const int64_t after = nowNanoseconds();
      if (after - before < quickest) {
        quickest = after - before;
        offset = time - (before + quickest / 2);
      }
    }
    if (std::abs(offset) < quickest)
      offset = 0;
  }
  return code == MPI_SUCCESS
             ? Status()
             : Status::environment("MPI does not start: " +
                                   describe("measuring clocks", code));
}

MpiPeers::MpiPeers(const Session &opened, const LauncherWatch &ofLauncher)
    : session(opened), watch(ofLauncher),
      outgoing(static_cast<size_t>(opened.size)) {}

Status MpiPeers::connect(std::unique_ptr<Peers> &peers) {
  const LauncherWatch watch;
  const Session *opened = nullptr;
  if (Status s = mpi::session(opened); !s.ok())
    return s;
  std::unique_ptr<MpiPeers> made(new MpiPeers(*opened, watch));
  if (Status s = made->measureClocks(); !s.ok())
    return s;
  made->thread = std::thread([raw = made.get()] { raw->run(); });
  peers = std::move(made);
  return {};
}

std::string MpiPeers::share(std::string text) {
  auto size = static_cast<int>(text.size());
  if (MPI_Bcast(&size, 1, MPI_INT, 0, session.letters) != MPI_SUCCESS)
    return {};
  text.resize(static_cast<size_t>(size));
  return MPI_Bcast(text.data(), size, MPI_BYTE, 0, session.letters) ==
                 MPI_SUCCESS
             ? text
             : std::string();
}

MpiPeers::~MpiPeers() {
  listen(nullptr);
  {
    const std::lock_guard lock(mutex);
    stop = news = true;
  }
  posted.notify_all();
  if (thread.joinable())
    thread.join();
  MPI_Finalize();
}

//===----------------------------------------------------------------------===//
// Letters
//===----------------------------------------------------------------------===//

/// Letters that go together stand one after the other, each after its length.
static void appendFrame(std::string &frames, std::string_view text) {
  const uint64_t size = text.size();
  frames.append(reinterpret_cast<const char *>(&size), sizeof(size));
  frames.append(text);
}

void MpiPeers::post(Id to, std::string text) {
  {
    const std::lock_guard lock(mutex);
    appendFrame(outgoing[to].waiting, text);
    news = true;
    allLeft = false;
  }
  posted.notify_one();
}

void MpiPeers::flush(double seconds) {
  std::unique_lock lock(mutex);
  left.wait_for(lock, std::chrono::duration<double>(seconds),
                [this] { return allLeft; });
}

void MpiPeers::listen(Listener *next) {
  const std::lock_guard lock(listening);
  listener = next;
  listened |= next != nullptr;
}

void MpiPeers::run() {
  using namespace std::chrono_literals;
  constexpr std::chrono::microseconds kShortest = 20us;
  constexpr std::chrono::microseconds kLongest = 4ms;
  std::chrono::microseconds pause = kShortest;
  for (;;) {
    const bool moved = look();
    tick();
    watch.look(nowNanoseconds());
    pause = moved ? kShortest : std::min(2 * pause, kLongest);
    std::unique_lock lock(mutex);
    allLeft = isSent();
    if (allLeft)
      left.notify_all();
    if (stop && allLeft)
      return;
    posted.wait_for(lock, pause, [this] { return news; });
    if (news)
      pause = kShortest;
    news = stop;
  }
}

/// Whether nothing waits or is under way. Under the lock.
bool MpiPeers::isSent() {
  return std::all_of(outgoing.begin(), outgoing.end(), [](const Outgoing &out) {
    return out.waiting.empty() && out.request == MPI_REQUEST_NULL;
  });
}

bool MpiPeers::look() {
  const bool came = receive();
  return send() || came;
}

/// Sends what waits, where nothing is under way to that process. What MPI
/// refuses is lost: the peer is then not heard of, and that is told.
bool MpiPeers::send() {
  bool moved = false;
  for (Id to = 0; to < outgoing.size(); ++to) {
    Outgoing &out = outgoing[to];
    int ended = 1;
    if (out.request != MPI_REQUEST_NULL &&
        MPI_Test(&out.request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      out.request = MPI_REQUEST_NULL;
    if (!ended)
      continue;
    {
      const std::lock_guard lock(mutex);
      if (out.waiting.empty())
        continue;
      out.moving = std::move(out.waiting);
      out.waiting.clear();
    }
    moved = true;
    if (to == self())
      split(to, out.moving);
    else if (MPI_Isend(out.moving.data(), static_cast<int>(out.moving.size()),
                       MPI_BYTE, static_cast<int>(to), kLetterTag,
                       session.letters, &out.request) != MPI_SUCCESS)
      out.request = MPI_REQUEST_NULL;
  }
  return moved;
}

/// Starts to receive a message that has come; false if none has.
bool MpiPeers::takeNew() {
  int there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (MPI_Improbe(MPI_ANY_SOURCE, kLetterTag, session.letters, &there, &message,
                  &status) != MPI_SUCCESS ||
      !there)
    return false;
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  Incoming &in = incoming.emplace_back();
  in.from = static_cast<Id>(status.MPI_SOURCE);
  in.text.resize(static_cast<size_t>(std::max(size, 0)));
  if (MPI_Imrecv(in.text.data(), size, MPI_BYTE, &message, &in.request) !=
      MPI_SUCCESS)
    incoming.pop_back();
  return true;
}

bool MpiPeers::receive() {
  bool moved = false;
  while (takeNew())
    moved = true;
  for (auto in = incoming.begin(); in != incoming.end();) {
    int ended = 0;
    if (!in->ended &&
        MPI_Test(&in->request, &ended, MPI_STATUS_IGNORE) == MPI_SUCCESS)
      in->ended = ended != 0;
    // Of one process in the order in which they came.
    const bool isNext =
        std::none_of(incoming.begin(), in, [&](const Incoming &earlier) {
          return earlier.from == in->from;
        });
    if (!in->ended || !isNext) {
      ++in;
      continue;
    }
    split(in->from, in->text);
    in = incoming.erase(in);
    moved = true;
  }
  return deliver() || moved;
}

/// Takes letters that came together apart.
void MpiPeers::split(Id from, std::string_view frames) {
  uint64_t size = 0;
  while (frames.size() >= sizeof(size)) {
    std::memcpy(&size, frames.data(), sizeof(size));
    frames.remove_prefix(sizeof(size));
    if (size != 0 || unheard.empty() || unheard.back().first != from)
      unheard.emplace_back(from, frames.substr(0, size));
    frames.remove_prefix(std::min<size_t>(size, frames.size()));
  }
}

bool MpiPeers::deliver() {
  const std::lock_guard lock(listening);
  bool any = false;
  while (listener && !unheard.empty()) {
    const auto [from, text] = std::move(unheard.front());
    unheard.pop_front();
    listener->letter(from, text);
    any = true;
  }
  return any;
}

void MpiPeers::tellPresence() {
  const int64_t now = nowNanoseconds();
  if (now < nextPresence)
    return;
  nextPresence = now + std::max<int64_t>(100, session.size) * 1'000'000;
  for (Id to = 0; to < count(); ++to)
    if (to != self())
      post(to, "");
}

void MpiPeers::tick() {
  const std::lock_guard lock(listening);
  if (listener)
    listener->tick();
  else if (!listened)
    tellPresence();
}

} // namespace sluice::runtime::mpi
