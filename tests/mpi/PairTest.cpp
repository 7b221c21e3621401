//===- tests/mpi/PairTest.cpp - Two processes, a rank each ----------------===//
//
// mpirun -n 2 mpi_pair: what the suite of backends asks of two ranks, where
// each is a process. Ends with 0 if all of it holds in both.
//
//===----------------------------------------------------------------------===//
#include "runtime/Backend.h"
#include "runtime/Clock.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

using namespace sluice;
using namespace sluice::runtime;

namespace {
class Rank final : public Compute {
public:
  Rank(const BackendFunctions &functions, Id own) : self(own) {
    const std::vector<Channel> channels = {{0, 0, 1, 0, 0}, {0, 1, 0, 0, 0}};
    Collective both;
    both.ranks = {0, 1};
    progress.setStreams(3);
    RankNeeds needs;
    needs.arenaBytes = kArena;
    needs.commands = {kCommands, kCommands, kCommands};
    needs.events = kCommands;
    needs.compute = this;
    needs.progress = &progress;
    holds(functions.make(2, channels, {&both, 1}, world).ok() &&
              world->open(self, backend).ok() && backend->prepare(needs).ok(),
          "the rank is there");
  }

  bool compute(uint32_t, void *, Failure &) override {
    body();
    return true;
  }

  void holds(bool condition, const char *what) {
    ++checks;
    if (condition)
      return;
    std::fprintf(stderr, "process %u: not so: %s\n", self, what);
    std::_Exit(1);
  }
  void synchronize() {
    holds(backend->synchronize(failure) == Outcome::Done, "all moves");
  }
  std::byte *at(size_t offset) {
    return static_cast<std::byte *>(backend->arena()) + offset;
  }
  bool sends() const { return self == 0; }
  /// The n-th message of channel 0, on stream 1.
  void message(uint32_t op, size_t offset, Bytes bytes) {
    if (sends())
      backend->send(1, op, 0, at(offset), bytes);
    else
      backend->receive(1, op, 0, at(offset), bytes);
  }

  static constexpr Bytes kArena = 1 << 20;
  static constexpr uint32_t kCommands = 64;
  const Id self;
  uint32_t checks = 0;
  RankProgress progress;
  std::unique_ptr<World> world;
  std::unique_ptr<Backend> backend;
  std::function<void()> body = [] {};
  Failure failure;
};
} // namespace

/// Of all sizes from none to some pieces, and not a byte more.
static void testOrder(Rank &rank) {
  for (uint32_t n = 0; n < 32; ++n) {
    std::memset(rank.at(size_t(n) * 1024), rank.sends() ? int(n) + 1 : 0, 1024);
    rank.message(n, size_t(n) * 1024, Bytes(n) * 13);
  }
  rank.synchronize();
  for (uint32_t n = 0; n < 32 && !rank.sends(); ++n)
    for (uint32_t i = 0; i < 1024; ++i)
      rank.holds(rank.at(size_t(n) * 1024)[i] ==
                     static_cast<std::byte>(i < n * 13 ? n + 1 : 0),
                 "the n-th receive has the bytes of the n-th send");
}

/// `late` comes 0.3 s after the other, which waits for it.
static void testRendezvous(Rank &rank, Id late) {
  rank.message(0, 0, 8); // both start from here
  rank.synchronize();
  if (rank.self == late)
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const int64_t before = nowNanoseconds();
  rank.message(0, 0, 8);
  rank.synchronize();
  rank.holds(rank.self == late || nowNanoseconds() - before > 200'000'000,
             "no end of a message ends before the other has started");
}

/// Both ways at once, each message made by a computation that has the one
/// before.
static void testTurns(Rank &rank) {
  uint32_t turn = 0;
  rank.body = [&] {
    std::memset(rank.at(0), static_cast<int>(turn * 2 + rank.self), 300);
    rank.holds(turn == 0 || rank.at(1024)[299] == static_cast<std::byte>(
                                                      turn * 2 - 1 - rank.self),
               "a message has what was sent");
    ++turn;
  };
  for (uint32_t step = 0; step < 200; ++step) {
    for (uint32_t i = 0; i < 5; ++i) {
      if (i != 0)
        rank.backend->wait(0, 2 * i - 1);
      rank.backend->launch(0, 0);
      rank.backend->record(0, 2 * i);
      rank.backend->wait(1, 2 * i);
      rank.backend->beginGroup(1);
      rank.backend->send(1, 1, rank.self, rank.at(0), 300);
      rank.backend->receive(1, 2, 1 - rank.self, rank.at(1024), 300);
      rank.backend->endGroup(1);
      rank.backend->record(1, 2 * i + 1);
    }
    rank.synchronize();
  }
  rank.holds(turn == 1000, "all turns came");
}

/// In order of the ranks, with the same bits in both.
static void testSum(Rank &rank) {
  auto *values = reinterpret_cast<float *>(rank.at(0));
  constexpr uint32_t kCount = 10'000;
  const auto value = [](Id of, uint32_t i) {
    return of == 0 ? 1e8F + static_cast<float>(i)
                   : 0.1F * static_cast<float>(i);
  };
  for (uint32_t i = 0; i < kCount; ++i)
    values[i] = value(rank.self, i);
  rank.backend->collective(2, 0, 0, Pattern::AllReduce, Element::Float32,
                           values, kCount * sizeof(float), nullptr);
  rank.synchronize();
  for (uint32_t i = 0; i < kCount; ++i)
    rank.holds(values[i] == value(0, i) + value(1, i), "the sum is the sum");
}

/// The sender compares; the receiver waits until the end of the job.
static void testSizes(Rank &rank) {
  rank.message(0, 0, rank.sends() ? 8 : 16);
  std::thread end;
  if (!rank.sends())
    end = std::thread([&rank] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      rank.world->abort();
    });
  const Outcome outcome = rank.backend->synchronize(rank.failure);
  if (end.joinable())
    end.join();
  rank.holds(outcome == (rank.sends() ? Outcome::Failed : Outcome::Aborted),
             "sizes that differ fail");
  rank.holds(!rank.sends() ||
                 rank.failure.message ==
                     "a message of 8 bytes meets a receive of 16 bytes",
             "both sizes are told");
}

int main() {
  const BackendFunctions *functions = nullptr;
  std::unique_ptr<Peers> peers;
  if (!findBackend("mpi")->functions(functions).ok() ||
      !functions->connect(peers).ok() || peers->count() != 2) {
    std::fprintf(stderr, "start it by mpirun -n 2\n");
    return 2;
  }
  Rank rank(*functions, peers->self());
  testOrder(rank);
  testRendezvous(rank, 0);
  testRendezvous(rank, 1);
  testTurns(rank);
  testSum(rank);
  testSizes(rank);
  std::printf("process %u: %u checks hold\n", rank.self, rank.checks);
  std::fflush(stdout);
  peers.reset();
  std::_Exit(0); // a receive that nobody meets is still under way
}
