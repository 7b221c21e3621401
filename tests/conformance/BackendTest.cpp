//===- tests/conformance/BackendTest.cpp - What every backend must do ----===//
//
// One suite, run for every row of Backends.def; a backend that lacks what a
// test needs is passed over by its columns.
//
//===----------------------------------------------------------------------===//
#include "runtime/Backend.h"
#include "tests/Catch.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

using namespace sluice;
using namespace sluice::runtime;

namespace {

/// Computes by a function that may be set, and notes the order.
struct TestCompute final : Compute {
  bool compute(uint32_t op, void *, Failure &failure) override {
    order.push_back(op);
    return !body || body(op, failure);
  }
  std::vector<uint32_t> order;
  std::function<bool(uint32_t, Failure &)> body;
};

/// One rank with three streams, large enough for every test here.
struct TestRank {
  TestRank(World &world, Id rank, Bytes arenaBytes = 4096,
           uint32_t commands = 64) {
    progress.setStreams(3);
    REQUIRE(world.open(rank, backend).ok());
    RankNeeds needs;
    needs.arenaBytes = arenaBytes;
    needs.commands = {commands, commands, commands};
    needs.events = 4 * commands;
    needs.compute = &compute;
    needs.progress = &progress;
    REQUIRE(backend->prepare(needs).ok());
  }
  Backend *operator->() { return backend.get(); }
  std::byte *at(size_t offset) {
    return static_cast<std::byte *>(backend->arena()) + offset;
  }
  void fill(size_t offset, int value, size_t bytes) {
    std::memset(at(offset), value, bytes);
  }
  bool holds(size_t offset, int value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      if (at(offset)[i] != static_cast<std::byte>(value))
        return false;
    return true;
  }

  TestCompute compute;
  RankProgress progress;
  std::unique_ptr<Backend> backend;
  Failure failure;
};

/// What a test needs of a backend besides threads and host memory.
struct Need {
  bool groups = false;
};

} // namespace

/// The backends that can run a test of two ranks in this process.
static std::vector<const BackendInfo *> testable(Need need = {}) {
  std::vector<const BackendInfo *> result;
  for (const BackendInfo &row : backends())
    if (row.hostMemory && row.sharedProcess && (row.groups || !need.groups))
      result.push_back(&row);
  return result;
}

/// Two ranks and a channel each way, 0 from rank 0 to 1 and 1 back; channel 2
/// goes from rank 0 to itself.
static std::unique_ptr<World> makeWorld(const BackendInfo &backend) {
  const std::vector<Channel> channels = {
      {0, 0, 1, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 0, 0, 0}};
  std::unique_ptr<World> world;
  REQUIRE(backend.make(2, channels, world).ok());
  return world;
}

/// Runs what was enqueued on both, each in a thread of its own.
static std::pair<Outcome, Outcome> synchronizeBoth(TestRank &a, TestRank &b) {
  Outcome second = Outcome::Failed;
  std::thread thread([&] { second = b->synchronize(b.failure); });
  const Outcome first = a->synchronize(a.failure);
  thread.join();
  return {first, second};
}

static const std::pair<Outcome, Outcome> kBothDone = {Outcome::Done,
                                                      Outcome::Done};

/// A thread that synchronizes a rank, and whether it is through.
class Running {
public:
  explicit Running(TestRank &rank)
      : thread([this, &rank] {
          result = rank->synchronize(rank.failure);
          over = true;
        }) {}
  ~Running() { thread.join(); }
  bool isOver() const { return over; }
  /// Still running after a time in which it could well have ended.
  bool staysBlocked() const {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return !over;
  }
  Outcome outcome() {
    while (!over)
      std::this_thread::yield();
    return result;
  }

private:
  Outcome result = Outcome::Failed;
  std::atomic<bool> over{false};
  std::thread thread;
};

TEST_CASE("backend: rows are found by their text", "[backend]") {
  REQUIRE(findBackend("host") != nullptr);
  CHECK(findBackend("host")->text == "host");
  CHECK(findBackend("Host") == nullptr);
  CHECK(findBackend("") == nullptr);
}

TEST_CASE("backend: a channel to nowhere is refused", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const std::vector<Channel> channels = {{0, 1, 2, 0, 0}};
    std::unique_ptr<World> world;
    const Status status = backend->make(2, channels, world);
    CHECK(status.fault() == Fault::Input);
    CHECK(status.message() ==
          "a channel goes from rank 1 to rank 2, but there are 2 ranks");
  }
}

TEST_CASE("backend: the arena is exact, aligned and zero", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const Bytes bytes = GENERATE(Bytes(0), Bytes(1), Bytes(256), Bytes(100000));
    const auto world = makeWorld(*backend);
    TestRank rank(*world, 0, bytes);
    CHECK(rank->arenaBytes() == bytes);
    REQUIRE(rank->arena() != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(rank->arena()) % kBufferAlignment == 0);
    CHECK(rank.holds(0, 0, bytes));
  }
}

TEST_CASE("backend: a stream runs in order, again and again", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank rank(*world, 0);
    for (uint32_t step = 0; step < 3; ++step) {
      for (uint32_t op = 0; op < 20; ++op)
        rank->launch(0, op);
      rank.progress.beginStep(step);
      REQUIRE(rank->synchronize(rank.failure) == Outcome::Done);
      CHECK(rank.progress.done[0] == 20);
    }
    REQUIRE(rank.compute.order.size() == 60);
    for (uint32_t i = 0; i < 60; ++i)
      CHECK(rank.compute.order[i] == i % 20);
  }
}

TEST_CASE("backend: a wait holds its stream until the record", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank rank(*world, 0);
    // 2 after 1, 3 after 2, over three streams, in whatever order they run.
    for (uint32_t step = 0; step < 2; ++step) {
      rank->launch(0, 1);
      rank->record(0, 0);
      rank->wait(1, 0);
      rank->launch(1, 2);
      rank->record(1, 1);
      rank->wait(2, 1);
      rank->launch(2, 3);
      REQUIRE(rank->synchronize(rank.failure) == Outcome::Done);
    }
    CHECK(rank.compute.order == std::vector<uint32_t>{1, 2, 3, 1, 2, 3});
  }
}

TEST_CASE("backend: an event of an earlier step does not count", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank rank(*world, 0);
    TestRank peer(*world, 1);
    for (int step = 0; step < 2; ++step) {
      // The record stands behind a message that the peer holds back.
      rank->receive(1, 0, 1, rank.at(0), 8);
      rank->record(1, 0);
      rank->wait(0, 0);
      rank->launch(0, 1);
      rank.compute.order.clear();
      Running running(rank);
      CHECK(running.staysBlocked());
      peer->send(1, 0, 1, peer.at(0), 8);
      CHECK(peer->synchronize(peer.failure) == Outcome::Done);
      CHECK(running.outcome() == Outcome::Done);
      CHECK(rank.compute.order == std::vector<uint32_t>{1});
    }
  }
}

TEST_CASE("backend: the n-th send meets the n-th receive", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank a(*world, 0);
    TestRank b(*world, 1);
    for (int n = 0; n < 8; ++n) {
      const Bytes bytes = static_cast<Bytes>(n) * 13; // also none at all
      a.fill(static_cast<size_t>(n) * 256, n + 1, 256);
      a->send(1, static_cast<uint32_t>(n), 0, a.at(size_t(n) * 256), bytes);
      b->receive(1, static_cast<uint32_t>(n), 0, b.at(size_t(n) * 256), bytes);
    }
    REQUIRE(synchronizeBoth(a, b) == kBothDone);
    for (int n = 0; n < 8; ++n) {
      const size_t at = static_cast<size_t>(n) * 256;
      const size_t bytes = static_cast<size_t>(n) * 13;
      CHECK(b.holds(at, n + 1, bytes));
      CHECK(b.holds(at + bytes, 0, 256 - bytes)); // and not a byte more
    }
    CHECK(a.progress.done[1] == 8);
    CHECK(b.progress.done[1] == 8);
  }
}

TEST_CASE("backend: a send ends when the receive has started, not before",
          "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const bool senderFirst = GENERATE(true, false);
    const auto world = makeWorld(*backend);
    TestRank a(*world, 0);
    TestRank b(*world, 1);
    a->send(1, 0, 0, a.at(0), 8);
    b->receive(1, 0, 0, b.at(0), 8);
    Running running(senderFirst ? a : b);
    CHECK(running.staysBlocked());
    TestRank &other = senderFirst ? b : a;
    CHECK(other->synchronize(other.failure) == Outcome::Done);
    CHECK(running.outcome() == Outcome::Done);
  }
}

TEST_CASE("backend: a posted receive is served while its rank computes",
          "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank a(*world, 0);
    TestRank b(*world, 1);
    std::atomic<bool> computing{false};
    std::atomic<bool> release{false};
    b.compute.body = [&](uint32_t, Failure &) {
      computing = true;
      while (!release)
        std::this_thread::yield();
      return true;
    };
    b->receive(1, 0, 0, b.at(0), 8);
    b->launch(0, 1);
    Running running(b);
    while (!computing)
      std::this_thread::yield();
    a->send(1, 0, 0, a.at(0), 8);
    CHECK(a->synchronize(a.failure) == Outcome::Done);
    CHECK_FALSE(running.isOver());
    release = true;
    CHECK(running.outcome() == Outcome::Done);
  }
}

TEST_CASE("backend: sizes that differ fail", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank a(*world, 0);
    TestRank b(*world, 1);
    a->send(1, 5, 0, a.at(0), 8);
    b->receive(1, 6, 0, b.at(0), 9);
    Running first(a);
    Running second(b);
    while (!first.isOver() && !second.isOver())
      std::this_thread::yield();
    // Whoever came second noticed; the other still waits.
    const bool senderFailed = first.isOver();
    world->abort();
    CHECK(first.outcome() ==
          (senderFailed ? Outcome::Failed : Outcome::Aborted));
    CHECK(second.outcome() ==
          (senderFailed ? Outcome::Aborted : Outcome::Failed));
    const Failure &failure = senderFailed ? a.failure : b.failure;
    CHECK(failure.op == (senderFailed ? 5u : 6u));
    CHECK(failure.message == "a message of 8 bytes meets a receive of 9 bytes");
    CHECK(b.holds(0, 0, 16));
  }
}

TEST_CASE("backend: both sending first hangs until an abort", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank a(*world, 0);
    TestRank b(*world, 1);
    a->send(1, 0, 0, a.at(0), 8);
    a->receive(1, 1, 1, a.at(256), 8);
    b->send(1, 0, 1, b.at(0), 8);
    b->receive(1, 1, 0, b.at(256), 8);
    Running first(a);
    Running second(b);
    CHECK(first.staysBlocked());
    CHECK(second.staysBlocked());
    world->abort();
    CHECK(first.outcome() == Outcome::Aborted);
    CHECK(second.outcome() == Outcome::Aborted);
    CHECK(a.progress.done[1] == 0);
  }
}

TEST_CASE("backend: an abort holds for what comes later", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank rank(*world, 0);
    world->abort();
    world->abort();
    rank->launch(0, 0);
    CHECK(rank->synchronize(rank.failure) == Outcome::Aborted);
    CHECK(rank.compute.order.empty());
  }
}

TEST_CASE("backend: a computation that fails is told", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank rank(*world, 0);
    rank.compute.body = [](uint32_t op, Failure &failure) {
      failure = {op, "no"};
      return op != 1;
    };
    for (uint32_t op = 0; op < 3; ++op)
      rank->launch(0, op);
    CHECK(rank->synchronize(rank.failure) == Outcome::Failed);
    CHECK(rank.failure.op == 1);
    CHECK(rank.failure.message == "no");
    CHECK(rank.compute.order == std::vector<uint32_t>{0, 1});
  }
}

TEST_CASE("backend: a group exchanges both ways at once", "[backend]") {
  for (const BackendInfo *backend : testable({.groups = true})) {
    const auto world = makeWorld(*backend);
    TestRank a(*world, 0);
    TestRank b(*world, 1);
    a.fill(0, 1, 64);
    a.fill(64, 2, 64);
    b.fill(0, 3, 64);
    for (int step = 0; step < 2; ++step) {
      // Two messages of one channel keep their order within the group.
      for (TestRank *rank : {&a, &b})
        (*rank)->beginGroup(1);
      a->send(1, 0, 0, a.at(0), 64);
      a->send(1, 1, 0, a.at(64), 64);
      a->receive(1, 2, 1, a.at(1024), 64);
      b->send(1, 0, 1, b.at(0), 64);
      b->receive(1, 1, 0, b.at(1024), 64);
      b->receive(1, 2, 0, b.at(2048), 64);
      for (TestRank *rank : {&a, &b})
        (*rank)->endGroup(1);
      REQUIRE(synchronizeBoth(a, b) == kBothDone);
      CHECK(a.holds(1024, 3, 64));
      CHECK(b.holds(1024, 1, 64));
      CHECK(b.holds(2048, 2, 64));
      CHECK(a.progress.done[1] == 3);
    }
  }
}

TEST_CASE("backend: a group ends as one", "[backend]") {
  for (const BackendInfo *backend : testable({.groups = true})) {
    const auto world = makeWorld(*backend);
    TestRank a(*world, 0);
    TestRank b(*world, 1);
    a->beginGroup(1);
    a->send(1, 0, 0, a.at(0), 8);
    a->receive(1, 1, 1, a.at(256), 8);
    a->endGroup(1);
    a->record(1, 0);
    a->wait(0, 0);
    a->launch(0, 2);
    b->receive(1, 0, 0, b.at(0), 8); // serves the group's first member
    Running running(a);
    CHECK(b->synchronize(b.failure) == Outcome::Done);
    CHECK(running.staysBlocked());
    CHECK(a.progress.done[1] == 0);
    b->send(1, 1, 1, b.at(0), 8);
    CHECK(b->synchronize(b.failure) == Outcome::Done);
    CHECK(running.outcome() == Outcome::Done);
    CHECK(a.compute.order == std::vector<uint32_t>{2});
  }
}

TEST_CASE("backend: a rank may send to itself within a group", "[backend]") {
  for (const BackendInfo *backend : testable({.groups = true})) {
    const auto world = makeWorld(*backend);
    TestRank rank(*world, 0);
    rank.fill(0, 9, 32);
    rank->beginGroup(1);
    rank->send(1, 0, 2, rank.at(0), 32);
    rank->receive(1, 1, 2, rank.at(512), 32);
    rank->endGroup(1);
    CHECK(rank->synchronize(rank.failure) == Outcome::Done);
    CHECK(rank.holds(512, 9, 32));
  }
}

TEST_CASE("backend: times are recorded where they are asked for", "[backend]") {
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank a(*world, 0);
    TestRank b(*world, 1);
    OpTime times[2][2];
    a->recordTimes(times[0]);
    b->recordTimes(times[1]);
    b.compute.body = [](uint32_t, Failure &) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return true;
    };
    a->send(1, 0, 0, a.at(0), 8);
    b->launch(0, 0);
    b->record(0, 0);
    b->wait(1, 0);
    b->receive(1, 1, 0, b.at(0), 8);
    REQUIRE(synchronizeBoth(a, b) == kBothDone);
    const OpTime &send = times[0][0];
    const OpTime &launch = times[1][0];
    const OpTime &receive = times[1][1];
    CHECK(launch.end - launch.start >= 5'000'000);
    CHECK(receive.start >= launch.end);
    CHECK(send.end >= receive.start);
    CHECK(receive.end >= receive.start);
    CHECK(times[0][1].start == 0);
    // And not where they are not.
    a->recordTimes(nullptr);
    times[0][0] = {};
    a->launch(0, 0);
    CHECK(a->synchronize(a.failure) == Outcome::Done);
    CHECK(times[0][0].start == 0);
    CHECK(times[0][0].end == 0);
  }
}

TEST_CASE("backend: ten thousand messages each way arrive whole", "[backend]") {
  constexpr uint32_t kSteps = 100;
  constexpr uint32_t kMessages = 100;
  for (const BackendInfo *backend : testable()) {
    const auto world = makeWorld(*backend);
    TestRank a(*world, 0, 4096, 4 * kMessages);
    TestRank b(*world, 1, 4096, 4 * kMessages);
    std::atomic<uint32_t> wrong{0};
    // Every rank writes number, sends it, and checks what came.
    const auto run = [&](TestRank &rank, Id self) {
      std::minstd_rand random(self + 1);
      for (uint32_t step = 0; step < kSteps; ++step) {
        rank.compute.order.clear();
        uint32_t number = step * kMessages;
        rank.compute.body = [&](uint32_t, Failure &) {
          uint32_t came = 0;
          std::memcpy(&came, rank.at(256), 4);
          wrong += number != step * kMessages && came != number - 1;
          std::memcpy(rank.at(0), &number, 4);
          ++number;
          if (random() % 16 == 0)
            std::this_thread::yield();
          return true;
        };
        for (uint32_t i = 0; i < kMessages; ++i) {
          if (i != 0)
            rank->wait(0, 2 * i - 1);
          rank->launch(0, 0);
          rank->record(0, 2 * i);
          rank->wait(1, 2 * i);
          if (self == 0) {
            rank->send(1, 1, 0, rank.at(0), 4);
            rank->receive(1, 2, 1, rank.at(256), 4);
          } else {
            rank->receive(1, 2, 0, rank.at(256), 4);
            rank->send(1, 1, 1, rank.at(0), 4);
          }
          rank->record(1, 2 * i + 1);
        }
        if (rank->synchronize(rank.failure) != Outcome::Done)
          ++wrong;
      }
    };
    std::thread thread([&] { run(b, 1); });
    run(a, 0);
    thread.join();
    CHECK(wrong == 0);
  }
}
