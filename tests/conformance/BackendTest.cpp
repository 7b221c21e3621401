//===- tests/conformance/BackendTest.cpp - Streams, events, aborts -------===//
#include "tests/conformance/BackendForTests.h"

using namespace sluice;
using namespace sluice::runtime;
using namespace sluice::tests;

TEST_CASE("backend: rows are found by their text", "[backend]") {
  REQUIRE(findBackend("host") != nullptr);
  CHECK(findBackend("host")->text == "host");
  CHECK(findBackend("Host") == nullptr);
  CHECK(findBackend("") == nullptr);
}

TEST_CASE("backend: every machine is tried", "[backend]") {
  CHECK_FALSE(machines().empty());
  for (const Machine &machine : machines()) {
    REQUIRE(machine.backend != nullptr);
    size_t tests = 0;
    for (unsigned needs : needsOfTests())
      tests += fits(*machine.backend, needs);
    INFO(machine.name << " fits none of " << needsOfTests().size() << " tests");
    CHECK(tests > 0);
  }
  CHECK(needsOfTests().size() >= 26);
}

BACKEND_TEST("backend: a channel to nowhere is refused", kTwoRanks) {
  const std::vector<Channel> channels = {{0, 1, 2, 0, 0}};
  std::unique_ptr<World> world;
  const Status status = backend.make(2, channels, {}, world);
  CHECK(status.fault() == Fault::Input);
  CHECK(status.message() ==
        "a channel goes from rank 1 to rank 2, but there are 2 ranks");
}

BACKEND_TEST("backend: the arena is exact, aligned and zero", kHostArena) {
  const Bytes bytes = GENERATE(Bytes(0), Bytes(1), Bytes(256), Bytes(100000));
  const auto world = makeWorld(backend, 1);
  TestRank rank(*world, 0, bytes);
  CHECK(rank->arenaBytes() == bytes);
  REQUIRE(rank->arena() != nullptr);
  CHECK(reinterpret_cast<uintptr_t>(rank->arena()) % kBufferAlignment == 0);
  CHECK(rank.holds(0, 0, bytes));
}

BACKEND_TEST("backend: so is that of host memory", kNothing) {
  const Bytes bytes = GENERATE(Bytes(0), Bytes(1), Bytes(100000));
  const auto world = makeWorld(backend, 1);
  TestRank rank(*world, 0, 256, 64, bytes);
  CHECK(rank->hostArenaBytes() == bytes);
  REQUIRE(rank->hostArena() != nullptr);
  CHECK(reinterpret_cast<uintptr_t>(rank->hostArena()) % kBufferAlignment == 0);
  for (Bytes i = 0; i < bytes; ++i)
    REQUIRE(rank.onHost(i)[0] == std::byte(0));
}

// Two pieces go to the host in one operation, and come back to other places
// once what waits for it may go on.
BACKEND_TEST("backend: copies move all their pieces, in order of the events",
             kHostArena) {
  const auto world = makeWorld(backend, 1);
  TestRank rank(*world, 0);
  const CopyPiece out[] = {{rank.onHost(0), rank.at(0), 300},
                           {rank.onHost(300), rank.at(512), 100}};
  const CopyPiece in[] = {{rank.at(1024), rank.onHost(0), 300},
                          {rank.at(2048), rank.onHost(300), 100}};
  std::vector<OpTime> times(4);
  for (int step = 1; step <= 2; ++step) {
    rank.compute.body = [&](uint32_t op, Failure &) {
      if (op == 0) {
        rank.fill(0, step, 300);
        rank.fill(512, 10 * step, 100);
        return true;
      }
      return rank.holds(1024, step, 300) && rank.holds(2048, 10 * step, 100) &&
             rank.holds(1324, 0, 100) && rank.holds(2148, 0, 100);
    };
    rank->recordTimes(times.data());
    rank->launch(0, 0);
    rank->record(0, 0);
    rank->wait(1, 0);
    rank->copy(1, 1, out);
    rank->record(1, 1);
    rank->wait(2, 1);
    rank->copy(2, 2, in);
    rank->record(2, 2);
    rank->wait(0, 2);
    rank->launch(0, 3);
    rank.progress.beginStep(static_cast<uint64_t>(step));
    REQUIRE(rank->synchronize(rank.failure) == Outcome::Done);
    CHECK(rank.progress.done[0] == 2);
    CHECK(rank.progress.done[1] == 1);
    CHECK(rank.progress.done[2] == 1);
    for (size_t op = 1; op < times.size(); ++op)
      CHECK((times[op - 1].start <= times[op - 1].end &&
             times[op - 1].end <= times[op].start));
  }
}

BACKEND_TEST("backend: a stream runs in order, again and again", kNothing) {
  const auto world = makeWorld(backend, 1);
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

BACKEND_TEST("backend: a wait holds its stream until the record", kNothing) {
  const auto world = makeWorld(backend, 1);
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

BACKEND_TEST("backend: an event of an earlier step does not count", kTwoRanks) {
  const auto world = makeWorld(backend, 2);
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

BACKEND_TEST("backend: an abort holds for what comes later", kNothing) {
  const auto world = makeWorld(backend, 1);
  TestRank rank(*world, 0);
  world->abort();
  world->abort();
  rank->launch(0, 0);
  CHECK(rank->synchronize(rank.failure) == Outcome::Aborted);
  CHECK(rank.compute.order.empty());
}

BACKEND_TEST("backend: an abort during the last computation is told",
             kNothing) {
  const auto world = makeWorld(backend, 1);
  TestRank rank(*world, 0);
  rank.compute.body = [&](uint32_t, Failure &) {
    world->abort();
    return true;
  };
  rank->launch(0, 0);
  CHECK(rank->synchronize(rank.failure) == Outcome::Aborted);
}

BACKEND_TEST("backend: a computation that fails is told", kNothing) {
  const auto world = makeWorld(backend, 1);
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

BACKEND_TEST("backend: times are recorded where they are asked for",
             kTwoRanks) {
  const auto world = makeWorld(backend, 2);
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
  CHECK(launch.end - launch.start >= 5'000'000); // no sleep ends early
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
