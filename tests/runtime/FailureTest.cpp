//===- tests/runtime/FailureTest.cpp - Jobs that end early ---------------===//
#include "runtime/Memory.h"
#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/runtime/EndingForTests.h"
#include "tests/runtime/HookedModule.h"
#include "tests/runtime/PlanForTests.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <thread>

using namespace sluice;
using namespace sluice::runtime;
using namespace sluice::tests;

//===----------------------------------------------------------------------===//
// Modules that fail
//===----------------------------------------------------------------------===//

/// Fails by `fail` in `function` of stage 1, in one microbatch.
static ModuleHooks failingIn(const std::string &function,
                             std::function<int(sluice_error *)> fail,
                             Id microbatch = 2) {
  ModuleHooks hooks;
  hooks.before = [function, fail, microbatch](std::string_view name, Id stage,
                                              const sluice_call *call,
                                              sluice_error *error) {
    const bool here = name == function && stage == 1 &&
                      (!call || call->microbatch == microbatch);
    return here ? fail(error) : 0;
  };
  return hooks;
}

TEST_CASE("runtime: a module's error stops all ranks at once",
          "[runtime][failure]") {
  WithHooks hooks(failingIn("forward", [](sluice_error *error) {
    return failWith(error, "the disk\nis full");
  }));
  const Ending ending = runToFailure(makeChain({.ranks = 2, .microbatches = 3}),
                                     hookedModule(), 20);
  CHECK(ending.status.fault() == Fault::Environment);
  CHECK(ending.status.message() ==
        "rank 1 failed at 1F2 (chain.yaml:11) of step 0: the disk\\x0ais full");
  // Rank 0 may be on its way to the wait or in it.
  CHECK(ending.table.find("\n1 0 1F2 chain.yaml:11 T nothing, it failed\n") !=
        std::string::npos);
  CHECK(ending.tables == 1);
  CHECK(hookedInstances() == 0);
}

TEST_CASE("runtime: what a module throws is its error", "[runtime][failure]") {
  const Plan plan = makeChain({.ranks = 3, .microbatches = 3});
  {
    WithHooks hooks(failingIn("backward_input", [](sluice_error *) -> int {
      throw std::runtime_error("no such token");
    }));
    CHECK(runToFailure(plan, hookedModule(), 20).status.message() ==
          "rank 1 failed at 1B2 (chain.yaml:11) of step 0: threw an "
          "exception: no such token");
  }
  {
    WithHooks hooks(
        failingIn("backward_weight", [](sluice_error *) -> int { throw 7; }));
    CHECK(runToFailure(plan, hookedModule(), 20).status.message() ==
          "rank 1 failed at 1B2 (chain.yaml:11) of step 0: threw something "
          "that is no std::exception");
  }
  {
    WithHooks hooks(
        failingIn("optimizer_step", [](sluice_error *) { return 4; }));
    CHECK(runToFailure(plan, hookedModule(), 20).status.message() ==
          "rank 1 failed at 1STEP (chain.yaml:11) of step 0: failed without "
          "a message");
  }
  {
    // Neither zero-terminated nor short.
    WithHooks hooks(failingIn("begin_step", [](sluice_error *error) {
      std::fill(std::begin(error->message), std::end(error->message), 'x');
      return 1;
    }));
    CHECK(runToFailure(plan, hookedModule(), 20).status.message() ==
          "rank 1 failed in step 0: begin_step of stage 1: " +
              std::string(255, 'x'));
  }
}

/// Blocks whoever calls it until it is opened.
class Gate {
public:
  int pass() {
    opened.wait(false);
    return 0;
  }
  void open() {
    opened.store(true);
    opened.notify_all();
  }

private:
  std::atomic<bool> opened{false};
};

/// Threads that were left behind end once their module returns.
static void awaitNoInstances() {
  for (int i = 0; i < 1000 && hookedInstances() != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  REQUIRE(hookedInstances() == 0);
}

TEST_CASE("runtime: a module that never returns does not hold the job",
          "[runtime][failure]") {
  static Gate gate;
  WithHooks hooks(failingIn(
      "forward", [](sluice_error *) { return gate.pass(); }, 0));
  const Plan plan = makeChain({.ranks = 3, .microbatches = 1});
  const Ending ending = runToFailure(plan, hookedModule());
  CHECK(ending.status.fault() == Fault::Environment);
  CHECK(ending.status.message() ==
        "rank 1 has made no progress for 0.5 s at 1F0 (chain.yaml:11) of step "
        "0: it waits for the module to return");
  CHECK(ending.table ==
        "rank step stands at line since waits for\n"
        "0 0 0RECV_B0 chain.yaml:10 T rank 1 to reach 1SEND_B0\n"
        "1 0 1F0 chain.yaml:11 T the module to return\n"
        "2 0 2RECV_F0 chain.yaml:12 T rank 1 to reach 1SEND_F0\n");
  checkTimeout(ending);
  gate.open();
  awaitNoInstances();
}

TEST_CASE("runtime: no step is told after the job has given up",
          "[runtime][failure]") {
  // In the last operation of a step, and after it.
  const std::string function = GENERATE("optimizer_step", "loss");
  Gate gate;
  std::atomic<int> told{0};
  WithHooks hooks(
      failingIn(function, [&gate](sluice_error *) { return gate.pass(); }));
  const Plan plan = makeChain({.ranks = 2, .microbatches = 1});
  const Ending ending = runToFailure(plan, hookedModule(), 0.2,
                                     [&told](const StepInfo &) { ++told; });
  CHECK(ending.status.message() ==
        (function == "loss"
             ? "rank 1 has made no progress for 0.2 s: it waits for the report "
               "of the step"
             : "rank 1 has made no progress for 0.2 s at 1STEP (chain.yaml:11) "
               "of step 0: it waits for the module to return"));
  checkTimeout(ending, 0.2);
  gate.open();
  awaitNoInstances();
  CHECK(told == 0);
}

TEST_CASE("runtime: a module that never loads does not hold the job",
          "[runtime][failure]") {
  static Gate gate;
  WithHooks hooks(
      failingIn("bind", [](sluice_error *) { return gate.pass(); }));
  const Plan plan = makeChain({.ranks = 2, .microbatches = 3});
  const Ending ending = runToFailure(plan, hookedModule());
  CHECK(ending.status.message() ==
        "rank 1 has made no progress for 0.5 s: it waits for the module and "
        "the libraries it uses to load");
  CHECK(ending.table ==
        "rank step stands at line since waits for\n"
        "0 0 loaded - T the other ranks to load\n"
        "1 0 load - T the module and the libraries it uses to load\n");
  checkTimeout(ending);
  gate.open();
  awaitNoInstances();
}

TEST_CASE("runtime: a fault at loading is told though another rank hangs",
          "[runtime][failure]") {
  Gate gate;
  WithHooks hooks({.before = [&gate](std::string_view name, Id stage,
                                     const sluice_call *, sluice_error *error) {
    if (name != "bind")
      return 0;
    return stage == 0 ? failWith(error, "no data") : gate.pass();
  }});
  const Plan plan = makeChain({.ranks = 2});
  const Ending ending = runToFailure(plan, hookedModule());
  CHECK(ending.status.fault() == Fault::Environment);
  CHECK(ending.status.message() == "module hooked, stage 0: no data");
  CHECK(ending.table ==
        "rank step stands at line since waits for\n"
        "0 0 load - T nothing, it could not load\n"
        "1 0 load - T the module and the libraries it uses to load\n");
  checkTimeout(ending);
  gate.open();
  awaitNoInstances();
}

//===----------------------------------------------------------------------===//
// Memory that is short
//===----------------------------------------------------------------------===//

TEST_CASE("runtime: a module that is out of memory is the environment's fault",
          "[runtime][failure]") {
  const Plan plan = makeChain({.ranks = 2, .microbatches = 3});
  const std::string failed = "rank 1 failed ";
  const std::pair<const char *, std::string> cases[] = {
      {"create", "out of memory while loading rank 1"},
      {"bind", "out of memory while loading rank 1"},
      {"begin_step", failed + "in step 0: out of memory"},
      {"forward", failed + "at 1F2 (chain.yaml:11) of step 0: out of memory"},
      {"loss", failed + "in step 0: out of memory"}};
  for (const auto &[function, message] : cases) {
    WithHooks hooks(failingIn(
        function, [](sluice_error *) -> int { throw std::bad_alloc(); }));
    const Ending ending = runToFailure(plan, hookedModule(), 20);
    CHECK(ending.status.fault() == Fault::Environment);
    CHECK(ending.status.message() == message);
    CHECK(hookedInstances() == 0);
  }
}

TEST_CASE("runtime: a listener that is out of memory ends the job",
          "[runtime][failure]") {
  const Ending ending =
      runToFailure(makeChain({.ranks = 2}), sluice_synthetic_module(), 20,
                   [](const StepInfo &info) {
                     if (info.step == 1)
                       throw std::bad_alloc();
                   });
  CHECK(ending.status.fault() == Fault::Environment);
  // Whichever rank ends the step last.
  CHECK(ending.status.message().ends_with(" failed in step 1: out of memory"));
}

//===----------------------------------------------------------------------===//
// Refused before the first step
//===----------------------------------------------------------------------===//

TEST_CASE("runtime: the first rank's fault at loading is told",
          "[runtime][failure]") {
  WithHooks hooks({.before = [](std::string_view name, Id stage,
                                const sluice_call *, sluice_error *error) {
    if (name != "create")
      return 0;
    if (stage == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return failWith(error, "no file for stage " + std::to_string(stage));
  }});
  const Ending ending = runToFailure(makeChain({.ranks = 3}), hookedModule());
  CHECK(ending.status.fault() == Fault::Input);
  CHECK(ending.status.message() ==
        "module hooked, stage 0: no file for stage 0");
  CHECK(ending.tables == 0);
}

TEST_CASE("runtime: buffers that are too small are refused",
          "[runtime][failure]") {
  struct Case {
    uint64_t sluice_bytes::*field;
    const char *message;
  };
  const Case cases[] = {
      {&sluice_bytes::parameters, "parameters, the plan gives 96"},
      {&sluice_bytes::gradients, "gradients, the plan gives 96"},
      {&sluice_bytes::optimizer, "optimizer, the plan gives 96"},
      {&sluice_bytes::workspace, "workspace, the plan gives 16"},
      {&sluice_bytes::saved,
       "saved at 0F0 (chain.yaml:10), the plan gives 128"},
      {&sluice_bytes::kept, "kept at 0F0 (chain.yaml:10), the plan gives 32"},
      {&sluice_bytes::output,
       "activation at 0F0 (chain.yaml:10), the plan gives 64"}};
  for (const Case &one : cases) {
    ModuleHooks hooks;
    hooks.needs.*one.field = 1000;
    WithHooks with(hooks);
    const Ending ending = runToFailure(makeChain({}), hookedModule());
    CHECK(ending.status.fault() == Fault::Input);
    CHECK(ending.status.message() ==
          std::string("module hooked, stage 0: needs 1000 bytes for ") +
              one.message);
  }
  ModuleHooks hooks;
  hooks.needs.input = 1000;
  WithHooks with(hooks);
  CHECK(runToFailure(makeChain({}), hookedModule()).status.message() ==
        "module hooked, stage 1: needs 1000 bytes for activation at 1F0 "
        "(chain.yaml:11), the plan gives 64");
}

TEST_CASE("runtime: operands that do not fit the stage are refused",
          "[runtime][failure]") {
  Plan plan = makeChain({.ranks = 2, .microbatches = 1});
  plan.edges.clear();
  CHECK(runToFailure(plan, sluice_synthetic_module()).status.message() ==
        "rank 0, operation 0F0 (chain.yaml:10): writes 1 buffers of kind "
        "activation, its stage has 0");
  plan = makeChain({.ranks = 2, .microbatches = 1});
  plan.ranks[0].ops[0].op = Op::Recompute;
  sluice_module module = *sluice_synthetic_module();
  module.recompute = nullptr;
  CHECK(runToFailure(plan, &module).status.message() ==
        "rank 0, operation 0R0 (chain.yaml:10): module synthetic has no "
        "recompute");
}

TEST_CASE("runtime: what cannot be run at all is refused",
          "[runtime][failure]") {
  CHECK(runToFailure(Plan(), sluice_synthetic_module()).status.message() ==
        "the plan has no ranks");
  Plan plan = makeChain({});
  plan.stages.clear();
  const Ending ending = runToFailure(plan, sluice_synthetic_module());
  CHECK(ending.status.fault() == Fault::Input);
  CHECK(ending.status.message() == "the plan has no stages");
  CHECK(runToFailure(makeChain({}), nullptr).status.message() ==
        "no module was given");
  JobOptions options;
  options.module = sluice_synthetic_module();
  options.backend = "abacus";
  JobResult result;
  const Status status = runJob(makeChain({}), options, result);
  CHECK(status.fault() == Fault::Usage);
  CHECK(status.message() == "there is no backend abacus");
}

TEST_CASE("runtime: an arena that is too large is refused",
          "[runtime][failure]") {
  Plan plan = makeChain({.ranks = 1, .microbatches = 1});
  plan.ranks[0].arenaBytes = Bytes(1) << 60;
  const Ending ending = runToFailure(plan, sluice_synthetic_module());
  CHECK(ending.status.fault() == Fault::Environment);
  CHECK(ending.status.message().starts_with(
      "out of memory: the arenas of 1 rank take 1.00 EiB, and "));
}

TEST_CASE("runtime: arenas that fit only one by one are refused untouched",
          "[runtime][failure]") {
  WithHooks hooks({});
  Plan plan = makeChain({.ranks = 4, .microbatches = 1});
  for (RankPlan &rank : plan.ranks)
    rank.arenaBytes = availableMemory() / 2;
  const Ending ending = runToFailure(plan, hookedModule());
  CHECK(ending.status.fault() == Fault::Environment);
  CHECK(ending.status.message().starts_with(
      "out of memory: the arenas of 4 ranks together take " +
      formatBytes(4 * plan.ranks[0].arenaBytes) + ", and "));
}

TEST_CASE("runtime: what a module calls the machine's fault is not the input's",
          "[runtime][failure]") {
  for (const int code : {1, SLUICE_ENVIRONMENT}) {
    WithHooks hooks(failingIn("create", [code](sluice_error *error) {
      failWith(error, "no library");
      return code;
    }));
    const Ending ending = runToFailure(makeChain({.ranks = 2}), hookedModule());
    CHECK(ending.status.fault() ==
          (code == 1 ? Fault::Input : Fault::Environment));
    CHECK(ending.status.message().ends_with(": no library"));
    CHECK(hookedInstances() == 0);
  }
}

TEST_CASE("runtime: that code is a failure wherever it comes from",
          "[runtime][failure]") {
  const std::string function =
      GENERATE("bind", "begin_step", "forward", "backward_weight",
               "optimizer_step", "loss");
  WithHooks hooks(failingIn(function, [](sluice_error *error) {
    failWith(error, "no library");
    return SLUICE_ENVIRONMENT;
  }));
  const Ending ending =
      runToFailure(makeChain({.ranks = 2, .microbatches = 3}), hookedModule());
  CHECK(ending.status.fault() == Fault::Environment);
  CHECK(ending.status.message().ends_with(": no library"));
  CHECK(hookedInstances() == 0);
}
