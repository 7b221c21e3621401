//===- tests/conformance/BackendForTests.h - Ranks to try a backend on ---===//
//
// One suite for every row of Backends.def, in one program or another. A test
// says what it needs; a backend that lacks it, by its columns, is passed over,
// and a machine that no test fits fails the suite.
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
#include <string>
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
  /// What communicates on several streams meets though each rank enqueues it in
  /// another order: more than plans need.
  kAnyOrder = 16,
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

/// What a program tries the suite on: a backend, and how it is set up.
struct Machine {
  std::string name;
  const BackendInfo *backend;
  ConnectOptions options;
  std::function<void()> begin, end; ///< around each test
  unsigned lacks = 0;               ///< of needs that no column tells
};

/// All of the program; each defines its own.
const std::vector<Machine> &machines();

/// Those that have what a test needs.
inline std::vector<const Machine *> machinesFor(unsigned needs) {
  std::vector<const Machine *> fitting;
  for (const Machine &machine : machines())
    if (fits(*machine.backend, needs) && !(machine.lacks & needs))
      fitting.push_back(&machine);
  return fitting;
}

/// The one that a test is running on.
inline const Machine *&currentMachine() {
  static const Machine *current = nullptr;
  return current;
}

inline void runOn(const Machine &machine,
                  void (*test)(const BackendInfo &backend)) {
  currentMachine() = &machine;
  if (machine.begin)
    machine.begin();
  test(*machine.backend);
  if (machine.end)
    machine.end();
}

// A test that runs on every machine that has what it needs; its body sees the
// row of the table as `backend`.
#define BACKEND_TEST(Text, Set) BACKEND_TEST_ON(Text, Set, __LINE__)
#define BACKEND_TEST_ON(Text, Set, Line) BACKEND_TEST_IN(Text, Set, Line)
#define BACKEND_TEST_IN(Text, Set, Line)                                       \
  BACKEND_TEST_AT(Text, Set, backendTest##Line)
#define BACKEND_TEST_AT(Text, Set, Function)                                   \
  static void Function(const sluice::runtime::BackendInfo &backend);           \
  TEST_CASE(Text, "[backend]") {                                               \
    if (sluice::tests::machinesFor(Set).empty())                               \
      return;                                                                  \
    const sluice::tests::Machine *machine =                                    \
        GENERATE(from_range(sluice::tests::machinesFor(Set)));                 \
    INFO("on " << machine->name);                                              \
    sluice::tests::runOn(*machine, Function);                                  \
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
  REQUIRE(world->connect(currentMachine()->options).ok());
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
