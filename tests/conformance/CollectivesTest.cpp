//===- tests/conformance/CollectivesTest.cpp - Operations of all ranks ---===//
#include "tests/conformance/BackendForTests.h"

#include <functional>
#include <span>

using namespace sluice;
using namespace sluice::runtime;
using namespace sluice::tests;

static constexpr unsigned kThreads = kTwoRanks | kCollectives;

/// `ranks` ranks with two collectives over all of them and a channel from rank
/// 0 to rank 1.
static std::unique_ptr<World> makeWorldOfAll(const BackendInfo &backend,
                                             uint32_t ranks) {
  const std::vector<Channel> channels = {{0, 0, 1, 0, 0}};
  std::vector<Collective> collectives(2);
  for (Id number = 0; number < 2; ++number) {
    collectives[number].communicator = 1 + number;
    for (Id rank = 0; rank < ranks; ++rank)
      collectives[number].ranks.push_back(rank);
  }
  std::unique_ptr<World> world;
  REQUIRE(backend.make(ranks, channels, collectives, world).ok());
  REQUIRE(world->connect(currentMachine()->options).ok());
  return world;
}

static std::span<float> floats(TestRank &rank, size_t offset, size_t count) {
  return {reinterpret_cast<float *>(rank.at(offset)), count};
}

static void sum(TestRank &rank, uint32_t op, Id collective, size_t offset,
                size_t count, uint8_t stream = 1) {
  rank->collective(stream, op, collective, Pattern::AllReduce, Element::Float32,
                   rank.at(offset), 4 * count, nullptr);
}

BACKEND_TEST("backend: a collective of no rank there is refused", kThreads) {
  std::vector<Collective> collectives(1);
  collectives[0].ranks = {0, 2};
  std::unique_ptr<World> world;
  const Status status = backend.make(2, {}, collectives, world);
  CHECK(status.fault() == Fault::Input);
  CHECK(status.message() == "a collective names rank 2, but there are 2 ranks");
}

/// Lets each of three ranks enqueue one operation of all and run it: `last`
/// when the others wait for it.
static void meet(TestRank *const (&ranks)[3], Id last,
                 const std::function<void(TestRank &)> &enqueue) {
  for (Id r = 0; r < 3; ++r)
    if (r != last)
      enqueue(*ranks[r]);
  Running first(*ranks[(last + 1) % 3]);
  Running second(*ranks[(last + 2) % 3]);
  CHECK(first.staysBlocked());
  CHECK(second.staysBlocked());
  TestRank &late = *ranks[last];
  enqueue(late); // a device may begin at once
  CHECK(late->synchronize(late.failure) == Outcome::Done);
  CHECK(first.outcome() == Outcome::Done);
  CHECK(second.outcome() == Outcome::Done);
}

BACKEND_TEST("backend: an all-reduce sums in order of ranks, whoever is last",
             kThreads | kHostArena) {
  const Id last = GENERATE(Id(0), Id(1), Id(2));
  const size_t count = GENERATE(size_t(0), size_t(1), size_t(5000));
  const auto world = makeWorldOfAll(backend, 3);
  TestRank a(*world, 0, 32768);
  TestRank b(*world, 1, 32768);
  TestRank c(*world, 2, 32768);
  TestRank *const ranks[] = {&a, &b, &c};
  for (int step = 0; step < 2; ++step) {
    // In this order the one is lost beside the large number; in any other that
    // adds the large ones first it would be left.
    const float values[] = {1e8f, 1, -1e8f};
    for (Id r = 0; r < 3; ++r) {
      for (float &each : floats(*ranks[r], 0, count))
        each = values[r];
      floats(*ranks[r], 4 * count, 1)[0] = 7;
      if (count > 1)
        floats(*ranks[r], 0, count)[count - 1] = static_cast<float>(r);
    }
    meet(ranks, last, [&](TestRank &rank) { sum(rank, 0, 0, 0, count); });
    for (TestRank *rank : ranks) {
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i)
        wrong += floats(*rank, 0, count)[i] !=
                 (count > 1 && i == count - 1 ? 3.0f : 0.0f);
      CHECK(wrong == 0);
      CHECK(floats(*rank, 4 * count, 1)[0] == 7); // and not one more
      CHECK(rank->progress.done[1] == 1);
    }
  }
}

BACKEND_TEST("backend: of scattered sums each rank has the part of its number, "
             "and all gather them",
             kThreads | kHostArena) {
  const Id last = GENERATE(Id(0), Id(1), Id(2));
  // Elements of a part: none, one, and more than is moved at once.
  const size_t count = GENERATE(size_t(0), size_t(1), size_t(100'000));
  const bool elsewhere = GENERATE(false, true); // where a rank's own part goes
  const size_t all = 3 * count;
  const Bytes partAt = 4 * (all + 1), bytes = partAt + 4 * (count + 1);
  const auto world = makeWorldOfAll(backend, 3);
  TestRank a(*world, 0, bytes);
  TestRank b(*world, 1, bytes);
  TestRank c(*world, 2, bytes);
  TestRank *const ranks[] = {&a, &b, &c};
  const auto valueAt = [](Id rank, size_t i) {
    // In order of ranks a sum loses its small addend; in others it does not.
    const float large = rank == 0 ? 1e8f : rank == 1 ? 1.0f : -1e8f;
    return i % 2 == 0 ? large : static_cast<float>(i + rank);
  };
  const auto wrongIn = [](TestRank &rank, size_t begin, size_t end) {
    size_t wrong = 0;
    for (size_t i = begin; i < end; ++i)
      wrong += floats(rank, 0, end)[i] !=
               (i % 2 == 0 ? 0.0f : static_cast<float>(3 * i + 3));
    return wrong;
  };
  for (int step = 0; step < 2; ++step) {
    for (Id r = 0; r < 3; ++r) {
      const std::span<float> values = floats(*ranks[r], 0, all + 1);
      for (size_t i = 0; i < all; ++i)
        values[i] = valueAt(r, i);
      values[all] = 7;
      floats(*ranks[r], partAt, count + 1)[count] = 7;
    }
    meet(ranks, last, [&](TestRank &rank) {
      rank->collective(1, 0, 0, Pattern::ReduceScatter, Element::Float32,
                       rank.at(0), 4 * all,
                       elsewhere ? rank.at(partAt) : nullptr);
    });
    for (Id r = 0; elsewhere && r < 3; ++r) {
      const std::span<float> part = floats(*ranks[r], partAt, count + 1);
      std::copy_n(part.begin(), count,
                  floats(*ranks[r], 4 * r * count, count).begin());
      CHECK(part[count] == 7); // and not one more
    }
    for (Id r = 0; r < 3; ++r)
      CHECK(wrongIn(*ranks[r], r * count, (r + 1) * count) == 0);
    meet(ranks, last, [&](TestRank &rank) {
      rank->collective(1, 0, 0, Pattern::AllGather, Element::None, rank.at(0),
                       4 * all, nullptr);
    });
    for (TestRank *rank : ranks) {
      CHECK(wrongIn(*rank, 0, all) == 0);
      CHECK(floats(*rank, 4 * all, 1)[0] == 7); // and not one more
    }
  }
}

BACKEND_TEST("backend: gathers of different sizes fail",
             kThreads | kHostArena) {
  const auto world = makeWorldOfAll(backend, 2);
  TestRank a(*world, 0);
  TestRank b(*world, 1);
  a.fill(0, 1, 64);
  const auto gather = [](TestRank &rank, uint32_t op, Bytes bytes) {
    rank->collective(1, op, 0, Pattern::AllGather, Element::None, rank.at(0),
                     bytes, nullptr);
  };
  gather(a, 5, 16);
  gather(b, 6, 8);
  Running first(a);
  Running second(b);
  while (!first.isOver() && !second.isOver())
    std::this_thread::yield();
  const bool isFirst = first.isOver();
  world->abort();
  CHECK(first.outcome() == (isFirst ? Outcome::Failed : Outcome::Aborted));
  CHECK(second.outcome() == (isFirst ? Outcome::Aborted : Outcome::Failed));
  const Failure &failure = isFirst ? a.failure : b.failure;
  CHECK(failure.op == (isFirst ? 5u : 6u));
  CHECK(failure.message == "rank 0 gathers 16 bytes, rank 1 8");
  CHECK(a.holds(16, 1, 48)); // a device may have begun to receive into the rest
}

BACKEND_TEST("backend: sums of 64-bit floats keep all of their bits",
             kThreads | kHostArena) {
  const auto world = makeWorldOfAll(backend, 3);
  TestRank a(*world, 0);
  TestRank b(*world, 1);
  TestRank c(*world, 2);
  TestRank *const ranks[] = {&a, &b, &c};
  const auto doubles = [](TestRank &rank) {
    return reinterpret_cast<double *>(rank.at(0));
  };
  // In order of ranks the one is lost beside the large number, and the other
  // number has more bits than 32-bit floats.
  const double values[] = {1e16, 1, -1e16};
  const double fine = 1 + 0x1p-40;
  for (Id r = 0; r < 3; ++r) {
    doubles(*ranks[r])[0] = values[r];
    doubles(*ranks[r])[1] = fine;
    (*ranks[r])->collective(1, 0, 0, Pattern::AllReduce, Element::Float64,
                            ranks[r]->at(0), 16, nullptr);
  }
  Running first(b);
  Running second(c);
  CHECK(a->synchronize(a.failure) == Outcome::Done);
  CHECK(first.outcome() == Outcome::Done);
  CHECK(second.outcome() == Outcome::Done);
  for (TestRank *rank : ranks) {
    CHECK(doubles(*rank)[0] == 0);
    CHECK(doubles(*rank)[1] == 3 * fine);
  }
}

BACKEND_TEST("backend: sums of different sizes fail", kThreads | kHostArena) {
  const auto world = makeWorldOfAll(backend, 2);
  TestRank a(*world, 0);
  TestRank b(*world, 1);
  a.fill(0, 1, 64);
  sum(a, 5, 0, 0, 2);
  sum(b, 6, 0, 0, 3);
  Running first(a);
  Running second(b);
  while (!first.isOver() && !second.isOver())
    std::this_thread::yield();
  const bool isFirst = first.isOver();
  world->abort();
  CHECK(first.outcome() == (isFirst ? Outcome::Failed : Outcome::Aborted));
  CHECK(second.outcome() == (isFirst ? Outcome::Aborted : Outcome::Failed));
  const Failure &failure = isFirst ? a.failure : b.failure;
  CHECK(failure.op == (isFirst ? 5u : 6u));
  CHECK(failure.message == "rank 0 sums 8 bytes, rank 1 12");
  CHECK(a.holds(0, 1, 64));
}

BACKEND_TEST("backend: collectives in opposite orders hang until an abort",
             kThreads) {
  const auto world = makeWorldOfAll(backend, 2);
  TestRank a(*world, 0);
  TestRank b(*world, 1);
  sum(a, 0, 0, 0, 1);
  sum(a, 1, 1, 256, 1);
  sum(b, 0, 1, 0, 1);
  sum(b, 1, 0, 256, 1);
  Running first(a);
  Running second(b);
  CHECK(first.staysBlocked());
  CHECK(second.staysBlocked());
  world->abort();
  CHECK(first.outcome() == Outcome::Aborted);
  CHECK(second.outcome() == Outcome::Aborted);
  CHECK(a.progress.done[1] == 0);
}

BACKEND_TEST("backend: collectives on two streams meet in any order",
             kThreads | kHostArena | kAnyOrder) {
  const auto world = makeWorldOfAll(backend, 2);
  TestRank a(*world, 0);
  TestRank b(*world, 1);
  floats(a, 0, 1)[0] = 1;
  floats(b, 0, 1)[0] = 2;
  floats(a, 256, 1)[0] = 10;
  floats(b, 256, 1)[0] = 20;
  sum(a, 0, 0, 0, 1, 1);
  sum(a, 1, 1, 256, 1, 2);
  sum(b, 0, 1, 256, 1, 2);
  sum(b, 1, 0, 0, 1, 1);
  REQUIRE(synchronizeBoth(a, b) == kBothDone);
  for (TestRank *rank : {&a, &b}) {
    CHECK(floats(*rank, 0, 1)[0] == 3);
    CHECK(floats(*rank, 256, 1)[0] == 30);
  }
}

BACKEND_TEST("backend: a group of a sum and a message meets them in any order",
             kThreads | kHostArena | kGroups) {
  const auto world = makeWorldOfAll(backend, 2);
  TestRank a(*world, 0);
  TestRank b(*world, 1);
  for (int step = 0; step < 2; ++step) {
    floats(a, 0, 1)[0] = 1;
    floats(b, 0, 1)[0] = 2;
    floats(a, 512, 1)[0] = 4;
    floats(b, 512, 1)[0] = 5;
    a.fill(1024, 3, 8);
    // Two sums of one collective keep their order within the group.
    a->beginGroup(1);
    sum(a, 0, 0, 0, 1);
    sum(a, 1, 0, 512, 1);
    a->send(1, 2, 0, a.at(1024), 8);
    a->endGroup(1);
    b->receive(1, 0, 0, b.at(1024), 8);
    sum(b, 1, 0, 0, 1);
    sum(b, 2, 0, 512, 1);
    REQUIRE(synchronizeBoth(a, b) == kBothDone);
    CHECK(floats(a, 0, 1)[0] == 3);
    CHECK(floats(b, 512, 1)[0] == 9);
    CHECK(b.holds(1024, 3, 8));
    CHECK(a.progress.done[1] == 3);
  }
}

BACKEND_TEST("backend: times of a collective end after its last start",
             kThreads) {
  const auto world = makeWorldOfAll(backend, 2);
  TestRank a(*world, 0);
  TestRank b(*world, 1);
  OpTime times[2][2];
  a->recordTimes(times[0]);
  b->recordTimes(times[1]);
  b.compute.body = [](uint32_t, Failure &) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return true;
  };
  sum(a, 0, 0, 0, 1);
  b->launch(0, 0);
  b->record(0, 0);
  b->wait(1, 0);
  sum(b, 1, 0, 0, 1);
  REQUIRE(synchronizeBoth(a, b) == kBothDone);
  CHECK(times[1][1].start >= times[1][0].end);
  for (const OpTime &of : {times[0][0], times[1][1]})
    CHECK(of.end >= times[1][1].start);
}

BACKEND_TEST("backend: a thousand sums of three ranks come whole",
             kThreads | kHostArena) {
  constexpr uint32_t kSums = 20;
  const auto world = makeWorldOfAll(backend, 3);
  TestRank a(*world, 0, 4096, 4 * kSums);
  TestRank b(*world, 1, 4096, 4 * kSums);
  TestRank c(*world, 2, 4096, 4 * kSums);
  Turns turns{50, kSums};
  // Every rank writes number + rank, sums, and checks what came.
  const auto run = [&](TestRank &rank, Id self) {
    uint32_t sums = 0;
    turns.run(
        rank, self + 1,
        [&](uint32_t number) {
          float &value = floats(rank, 0, 1)[0];
          const bool isRight =
              number % kSums == 0 || value == static_cast<float>(3 * number);
          value = static_cast<float>(number + self);
          return isRight;
        },
        [&] { sum(rank, 1, sums++ % 2, 0, 1); });
  };
  std::thread second([&] { run(b, 1); });
  std::thread third([&] { run(c, 2); });
  run(a, 0);
  second.join();
  third.join();
  CHECK(turns.wrong == 0);
}
