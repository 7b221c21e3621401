//===- tests/conformance/BackendForTests.h - Ranks to try a backend on ---===//
//
// One suite, run for every row of Backends.def; a backend that lacks what a
// test needs is passed over by its columns.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_CONFORMANCE_BACKENDFORTESTS_H
#define SLUICE_TESTS_CONFORMANCE_BACKENDFORTESTS_H

#include "runtime/Backend.h"
#include "tests/Catch.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::tests {

using namespace sluice::runtime;

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

/// The backends that can run a test of two ranks in this process.
inline std::vector<const BackendInfo *> testable(Need need = {}) {
  std::vector<const BackendInfo *> result;
  for (const BackendInfo &row : backends())
    if (row.hostMemory && row.sharedProcess && (row.groups || !need.groups))
      result.push_back(&row);
  return result;
}

/// Two ranks and a channel each way, 0 from rank 0 to 1 and 1 back; channel 2
/// goes from rank 0 to itself.
inline std::unique_ptr<World> makeWorld(const BackendInfo &backend) {
  const std::vector<Channel> channels = {
      {0, 0, 1, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 0, 0, 0}};
  std::unique_ptr<World> world;
  REQUIRE(backend.make(2, channels, world).ok());
  return world;
}

/// Runs what was enqueued on both, each in a thread of its own.
inline std::pair<Outcome, Outcome> synchronizeBoth(TestRank &a, TestRank &b) {
  Outcome second = Outcome::Failed;
  std::thread thread([&] { second = b->synchronize(b.failure); });
  const Outcome first = a->synchronize(a.failure);
  thread.join();
  return {first, second};
}

inline constexpr std::pair<Outcome, Outcome> kBothDone = {Outcome::Done,
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

} // namespace sluice::tests

#endif // SLUICE_TESTS_CONFORMANCE_BACKENDFORTESTS_H
