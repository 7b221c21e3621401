//===- tests/conformance/MessagesTest.cpp - Channels and groups ----------===//
#include "tests/conformance/BackendForTests.h"

using namespace sluice;
using namespace sluice::runtime;
using namespace sluice::tests;

BACKEND_TEST("backend: the n-th send meets the n-th receive",
             kTwoRanks | kHostArena) {
  const auto world = makeWorld(backend, 2);
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

BACKEND_TEST("backend: a send ends when the receive has started, not before",
             kTwoRanks) {
  const bool senderFirst = GENERATE(true, false);
  const auto world = makeWorld(backend, 2);
  TestRank a(*world, 0);
  TestRank b(*world, 1);
  const auto send = [&] { a->send(1, 0, 0, a.at(0), 8); };
  const auto receive = [&] { b->receive(1, 0, 0, b.at(0), 8); };
  senderFirst ? send() : receive();
  Running running(senderFirst ? a : b);
  CHECK(running.staysBlocked());
  senderFirst ? receive() : send(); // a device may begin at once
  TestRank &other = senderFirst ? b : a;
  CHECK(other->synchronize(other.failure) == Outcome::Done);
  CHECK(running.outcome() == Outcome::Done);
}

BACKEND_TEST("backend: a posted receive is served while its rank computes",
             kTwoRanks) {
  const auto world = makeWorld(backend, 2);
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

BACKEND_TEST("backend: sizes that differ fail", kTwoRanks | kHostArena) {
  const auto world = makeWorld(backend, 2);
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
  CHECK(first.outcome() == (senderFailed ? Outcome::Failed : Outcome::Aborted));
  CHECK(second.outcome() ==
        (senderFailed ? Outcome::Aborted : Outcome::Failed));
  const Failure &failure = senderFailed ? a.failure : b.failure;
  CHECK(failure.op == (senderFailed ? 5u : 6u));
  CHECK(failure.message == "a message of 8 bytes meets a receive of 9 bytes");
  CHECK(b.holds(0, 0, 16));
}

BACKEND_TEST("backend: both sending first hangs until an abort", kTwoRanks) {
  const auto world = makeWorld(backend, 2);
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

BACKEND_TEST("backend: a group exchanges both ways at once",
             kTwoRanks | kHostArena | kGroups) {
  const auto world = makeWorld(backend, 2);
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

BACKEND_TEST("backend: a group ends as one", kTwoRanks | kGroups) {
  const auto world = makeWorld(backend, 2);
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

BACKEND_TEST("backend: a rank may send to itself within a group",
             kHostArena | kGroups) {
  const auto world = makeWorld(backend, 1);
  TestRank rank(*world, 0);
  rank.fill(0, 9, 32);
  rank->beginGroup(1);
  rank->send(1, 0, 0, rank.at(0), 32);
  rank->receive(1, 1, 0, rank.at(512), 32);
  rank->endGroup(1);
  CHECK(rank->synchronize(rank.failure) == Outcome::Done);
  CHECK(rank.holds(512, 9, 32));
}

BACKEND_TEST("backend: ten thousand messages each way arrive whole",
             kTwoRanks | kHostArena) {
  constexpr uint32_t kMessages = 100;
  const auto world = makeWorld(backend, 2);
  TestRank a(*world, 0, 4096, 4 * kMessages);
  TestRank b(*world, 1, 4096, 4 * kMessages);
  Turns turns{100, kMessages};
  // Every rank writes number, sends it, and checks what came.
  const auto run = [&](TestRank &rank, Id self) {
    turns.run(
        rank, self + 1,
        [&](uint32_t number) {
          uint32_t came = 0;
          std::memcpy(&came, rank.at(256), 4);
          std::memcpy(rank.at(0), &number, 4);
          return number % kMessages == 0 || came == number - 1;
        },
        [&] {
          if (self == 0) {
            rank->send(1, 1, 0, rank.at(0), 4);
            rank->receive(1, 2, 1, rank.at(256), 4);
          } else {
            rank->receive(1, 2, 0, rank.at(256), 4);
            rank->send(1, 1, 1, rank.at(0), 4);
          }
        });
  };
  std::thread thread([&] { run(b, 1); });
  run(a, 0);
  thread.join();
  CHECK(turns.wrong == 0);
}
