//===- tests/runtime/LiaisonTest.cpp - What processes tell each other ----===//
//
// Processes of a job in one process: letters lie in a queue until the test
// hands them on, to those who still live.
//
//===----------------------------------------------------------------------===//
#include "runtime/Liaison.h"

#include "tests/Catch.h"

#include <deque>
#include <memory>
#include <set>
#include <thread>

using namespace sluice;
using namespace sluice::runtime;

namespace {
/// The letters of all processes.
struct Post {
  struct Letter {
    Id from, to;
    std::string text;
  };
  std::mutex mutex;
  std::deque<Letter> letters;
  std::vector<Peers::Listener *> listeners;
  std::set<Id> dead;

  /// Hands on all letters, and those that these bring about; then all tick.
  void deliver() {
    for (;;) {
      std::unique_lock lock(mutex);
      if (letters.empty())
        break;
      const Letter next = letters.front();
      letters.pop_front();
      Peers::Listener *to =
          dead.contains(next.to) ? nullptr : listeners[next.to];
      lock.unlock();
      if (to)
        to->letter(next.from, next.text);
    }
    for (Id rank = 0; rank < listeners.size(); ++rank)
      if (listeners[rank] && !dead.contains(rank))
        listeners[rank]->tick();
  }
};

class TestPeers final : public Peers {
public:
  TestPeers(Post &common, Id own) : office(common), number(own) {}
  Id self() const override { return number; }
  uint32_t count() const override {
    return static_cast<uint32_t>(office.listeners.size());
  }
  std::string share(std::string text) override { return text; }
  void post(Id to, std::string text) override {
    const std::lock_guard lock(office.mutex);
    if (!office.dead.contains(number))
      office.letters.push_back({number, to, std::move(text)});
  }
  void flush(double) override {}
  void listen(Listener *next) override { office.listeners[number] = next; }
  int64_t clockOffset() const override { return 0; }

private:
  Post &office;
  Id number;
};

/// `count` processes, each with a row that names it.
struct Job {
  explicit Job(uint32_t count, double timeout = 0) {
    post.listeners.resize(count);
    for (Id rank = 0; rank < count; ++rank) {
      peers.push_back(std::make_unique<TestPeers>(post, rank));
      Liaison::Hooks hooks;
      hooks.standing = [rank] {
        StandingRow row;
        row.step = rank;
        row.standsAt = std::to_string(rank) + "F0";
        row.line = "a.yaml:1";
        row.waitsFor = "rain";
        return row;
      };
      hooks.stepEnded = [this](Id from, const StepEnd &end) {
        ends.emplace_back(from, end.step);
      };
      hooks.reported = [this](Id from, RankReport &&report) {
        reports.emplace_back(from, report);
      };
      processes.push_back(
          std::make_unique<Liaison>(*peers.back(), timeout, &signal, hooks));
    }
  }
  Liaison &operator[](Id rank) { return *processes[rank]; }

  /// All that live end, each for its reason; the verdicts by rank.
  std::vector<Liaison::Verdict> end(std::vector<EarlyEnd> reasons) {
    std::vector<Liaison::Verdict> verdicts(processes.size());
    std::vector<std::thread> threads;
    for (Id rank = 0; rank < processes.size(); ++rank)
      if (!post.dead.contains(rank))
        threads.emplace_back([&, rank] {
          verdicts[rank] = processes[rank]->end(reasons[rank]);
        });
    for (int i = 0; i < 60; ++i) {
      post.deliver();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (std::thread &thread : threads)
      thread.join();
    return verdicts;
  }

  std::atomic<int> signal{0};
  Post post;
  std::vector<std::unique_ptr<TestPeers>> peers;
  std::vector<std::unique_ptr<Liaison>> processes;
  std::vector<std::pair<Id, uint64_t>> ends;
  std::vector<std::pair<Id, RankReport>> reports;
};

EarlyEnd because(EarlyEnd::Reason reason, std::string message = "") {
  EarlyEnd end;
  end.reason = reason;
  end.message = std::move(message);
  end.row.standsAt = "own";
  return end;
}
} // namespace

TEST_CASE("liaison: all must load, and the same job", "[runtime][liaison]") {
  Job job(3);
  job[0].tellLoaded({}, "plan a\nsteps 3\n");
  job[2].tellLoaded({}, "plan a\nsteps 4\n");
  job.post.deliver();
  CHECK_FALSE(job[0].allLoaded());
  job[1].tellLoaded({}, "plan a\nsteps 3\n");
  job.post.deliver();
  Id whose = 9;
  for (Id rank = 0; rank < 3; ++rank) {
    REQUIRE(job[rank].allLoaded());
    const Status verdict = job[rank].loadVerdict(whose);
    CHECK(verdict.fault() == Fault::Input);
    CHECK(verdict.message() ==
          "process 2 was given another job than process 0: there steps 4, "
          "here steps 3; all must read the same plan or spec");
    CHECK(whose == 2);
  }
}

TEST_CASE("liaison: the first that could not load counts",
          "[runtime][liaison]") {
  Job job(3);
  job[0].tellLoaded({}, "a");
  job[1].tellLoaded(Status::input("no file"), "b");
  job[2].tellLoaded(Status::environment("no memory"), "a");
  job.post.deliver();
  Id whose = 9;
  const Status verdict = job[0].loadVerdict(whose);
  CHECK(verdict.fault() == Fault::Input);
  CHECK(verdict.message() == "no file");
  CHECK(whose == 1);
}

TEST_CASE("liaison: step ends and reports come to process 0",
          "[runtime][liaison]") {
  Job job(2);
  job[1].tellStepEnd({.step = 0});
  job[0].tellStepEnd({.step = 0});
  job[1].tellStepEnd({.step = 1});
  RankReport report;
  report.arenaBytes = 12;
  report.stages = {3, 1};
  report.costs.resize(2);
  report.costs[1].forward.calls = 5;
  report.times = {{1, 2}};
  job[1].tellReport(report);
  job.post.deliver();
  const std::vector<std::pair<Id, uint64_t>> expected = {
      {1, 0}, {0, 0}, {1, 1}};
  CHECK(job.ends == expected);
  CHECK_FALSE(job[0].allReported(false)); // its own is missing
  job[0].tellReport({});
  job.post.deliver();
  CHECK(job[0].allReported(false));
  CHECK_FALSE(job[0].allReported(true)); // no weights were offered
  REQUIRE(job.reports.size() == 2);
  CHECK(job.reports[0].first == 1);
  const RankReport &came = job.reports[0].second;
  CHECK(came.arenaBytes == 12);
  CHECK(came.stages == std::vector<Id>{3, 1});
  REQUIRE(came.costs.size() == 2);
  CHECK(came.costs[1].forward.calls == 5);
  REQUIRE(came.times.size() == 1);
  CHECK(came.times[0].end == 2);
}

TEST_CASE("liaison: tensors are fetched, in pieces where they are large",
          "[runtime][liaison]") {
  Job job(2);
  const std::string small = "abc";
  std::string large((size_t(40) << 20) + 5, 'x');
  large.back() = 'y';
  job[1].offer({{.name = "large",
                 .position = 7,
                 .bytes = large.size(),
                 .rank = 1,
                 .index = 0,
                 .data = large.data()},
                {.name = "small",
                 .position = 8,
                 .bytes = small.size(),
                 .rank = 1,
                 .index = 1,
                 .data = small.data()}});
  job.post.deliver();
  const std::vector<HeldTensor> offered = job[0].offered();
  REQUIRE(offered.size() == 2);
  CHECK(offered[1].name == "small");
  CHECK(offered[1].position == 8);
  CHECK(offered[0].data == nullptr);
  std::atomic<bool> through{false};
  std::thread courier([&] {
    while (!through)
      job.post.deliver();
  });
  std::string bytes;
  CHECK(job[0].fetch(offered[0], bytes).ok());
  CHECK(bytes == large);
  CHECK(job[0].fetch(offered[1], bytes).ok());
  CHECK(bytes == small);
  through = true;
  courier.join();
}

TEST_CASE("liaison: what a rank said goes before all else, and the first "
          "speaks",
          "[runtime][liaison]") {
  Job job(3);
  job.post.deliver();
  const auto verdicts = job.end({because(EarlyEnd::Reason::Stuck),
                                 because(EarlyEnd::Reason::Failed, "broken"),
                                 because(EarlyEnd::Reason::Asked)});
  for (Id rank = 0; rank < 3; ++rank) {
    const Liaison::Verdict &verdict = verdicts[rank];
    CHECK(verdict.speaks == (rank == 0));
    CHECK(verdict.reason == EarlyEnd::Reason::Failed);
    CHECK(verdict.rank == 1);
    CHECK(verdict.message == "broken");
    REQUIRE(verdict.rows.size() == 3);
    CHECK(verdict.rows[2].standsAt == "own");
  }
}

TEST_CASE("liaison: of one that is gone its last row is told, by who is left",
          "[runtime][liaison]") {
  Job job(3);
  job.post.deliver(); // ticks: all tell where they stand
  job.post.deliver();
  job.post.dead = {0};
  const auto verdicts =
      job.end({{},
               because(EarlyEnd::Reason::Signal, "signal 15"),
               because(EarlyEnd::Reason::Signal, "signal 15")});
  CHECK(verdicts[1].speaks);
  CHECK_FALSE(verdicts[2].speaks);
  CHECK(verdicts[1].reason == EarlyEnd::Reason::Silent);
  CHECK(verdicts[1].rank == 0);
  CHECK(verdicts[1].rows[0].standsAt == "0F0");
  CHECK(verdicts[1].rows[0].waitsFor.starts_with("not heard of for 0."));
}

TEST_CASE("liaison: all stop after the latest step that somebody proposes",
          "[runtime][liaison]") {
  Job job(3);
  CHECK(job[0].stopCause() == 0);
  job[2].proposeStop({7, 15});
  job.post.deliver();
  for (Id rank = 0; rank < 3; ++rank) {
    CHECK(job[rank].stopCause() == 15);
    CHECK_FALSE(job[rank].agreedStop().has_value());
  }
  job[0].proposeStop({8, 15});
  job.post.deliver();
  CHECK_FALSE(job[1].agreedStop().has_value());
  job[1].proposeStop({6, 15});
  job.post.deliver();
  for (Id rank = 0; rank < 3; ++rank)
    CHECK(job[rank].agreedStop() == 8);
}

TEST_CASE("liaison: a signal alone is told as such", "[runtime][liaison]") {
  Job job(2);
  job.post.deliver();
  job.signal = 15;
  CHECK_FALSE(job[0].endsEarly()); // who runs the job decides
  const auto verdicts =
      job.end({because(EarlyEnd::Reason::Signal, "signal 15"),
               because(EarlyEnd::Reason::Signal, "signal 15")});
  CHECK(verdicts[0].reason == EarlyEnd::Reason::Signal);
  CHECK(verdicts[0].message == "signal 15");
}
