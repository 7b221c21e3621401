//===- tests/conformance/BackendForTests.h - Ranks to try a backend on ---===//
//
// One suite, run for every row of Backends.def. A test says what it needs; a
// backend that lacks it, by its columns, is passed over, and a row that no test
// fits fails the suite. So is a plug-in that this build does not have.
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
#include <random>
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
           uint32_t commands = 64, Bytes hostArenaBytes = 4096) {
    progress.setStreams(3);
    REQUIRE(world.open(rank, backend).ok());
    RankNeeds needs;
    needs.arenaBytes = arenaBytes;
    needs.hostArenaBytes = hostArenaBytes;
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
  std::byte *onHost(size_t offset) {
    return static_cast<std::byte *>(backend->hostArena()) + offset;
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

/// What a test needs of a backend; a set of these.
enum Need : unsigned {
  kNothing = 0,
  kTwoRanks = 1,  ///< in this process, as threads
  kHostArena = 2, ///< the test reads and writes the arena
  kGroups = 4,
  kCollectives = 8,
};

inline bool fits(const BackendInfo &backend, unsigned needs) {
  return backend.isBuilt() && (backend.sharedProcess || !(needs & kTwoRanks)) &&
         (backend.hostMemory || !(needs & kHostArena)) &&
         (backend.groups || !(needs & kGroups)) &&
         (backend.collectives || !(needs & kCollectives));
}

/// What each BACKEND_TEST of the program needs.
inline std::vector<unsigned> &needsOfTests() {
  static std::vector<unsigned> needs;
  return needs;
}
struct NoteNeeds {
  explicit NoteNeeds(unsigned needs) { needsOfTests().push_back(needs); }
};

// A test that runs on every backend that has what it needs; its body sees the
// row as `backend`.
#define BACKEND_TEST(Text, Set) BACKEND_TEST_ON(Text, Set, __LINE__)
#define BACKEND_TEST_ON(Text, Set, Line) BACKEND_TEST_IN(Text, Set, Line)
#define BACKEND_TEST_IN(Text, Set, Line)                                       \
  BACKEND_TEST_AT(Text, Set, backendTest##Line)
#define BACKEND_TEST_AT(Text, Set, Function)                                   \
  static void Function(const sluice::runtime::BackendInfo &backend);           \
  TEST_CASE(Text, "[backend]") {                                               \
    for (const auto &row : sluice::runtime::backends())                        \
      if (sluice::tests::fits(row, Set)) {                                     \
        INFO("backend " << row.text);                                          \
        Function(row);                                                         \
      }                                                                        \
  }                                                                            \
  static const sluice::tests::NoteNeeds Function##Noted(Set);                  \
  static void Function(const sluice::runtime::BackendInfo &backend)

/// One rank with channel 0 to itself; or two with a channel each way, 0 from
/// rank 0 to 1 and 1 back.
inline std::unique_ptr<World> makeWorld(const BackendInfo &backend,
                                        uint32_t ranks) {
  std::vector<Channel> channels = {{0, 0, 0, 0, 0}};
  if (ranks == 2)
    channels = {{0, 0, 1, 0, 0}, {0, 1, 0, 0, 0}};
  std::unique_ptr<World> world;
  REQUIRE(backend.make(ranks, channels, {}, world).ok());
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

/// Steps in which a rank computes and communicates in turn.
struct Turns {
  uint32_t steps, ofStep; ///< how many, and turns of each
  std::atomic<uint32_t> wrong{0};

  /// Of `rank`: `compute(n)` does the n-th turn of all and says whether what
  /// came before is right, and `communicate()` enqueues what follows it on
  /// stream 1. Yields now and then.
  template <typename Compute, typename Communicate>
  void run(TestRank &rank, unsigned seed, Compute compute,
           Communicate communicate) {
    std::minstd_rand random(seed);
    for (uint32_t step = 0; step < steps; ++step) {
      rank.compute.order.clear();
      uint32_t number = step * ofStep;
      rank.compute.body = [&](uint32_t, Failure &) {
        wrong += !compute(number++);
        if (random() % 8 == 0)
          std::this_thread::yield();
        return true;
      };
      for (uint32_t i = 0; i < ofStep; ++i) {
        if (i != 0)
          rank->wait(0, 2 * i - 1);
        rank->launch(0, 0);
        rank->record(0, 2 * i);
        rank->wait(1, 2 * i);
        communicate();
        rank->record(1, 2 * i + 1);
      }
      if (rank->synchronize(rank.failure) != Outcome::Done)
        ++wrong;
    }
  }
};

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
