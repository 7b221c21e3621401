//===- tests/runtime/AllocationTest.cpp - Steps allocate nothing ---------===//
//
// Counts every allocation of the process while a job is between the end of its
// first step and the end of its last; and refuses them, from any one on.
//
//===----------------------------------------------------------------------===//
#include "runtime/Job.h"
#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/Catch.h"
#include "tests/runtime/CopiesForTests.h"
#include "tests/runtime/HookedModule.h"
#include "tests/runtime/PlanForTests.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLUICE_SANITIZER_HOOKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLUICE_SANITIZER_HOOKS 1
#endif
#endif

static std::atomic<bool> counting{false};
static std::atomic<uint64_t> allocations{0};

/// While counting, so many allocations succeed.
static std::atomic<uint64_t> granted{~uint64_t(0)};

/// Counts an allocation; false if it is to fail.
static bool count() {
  if (!counting.load(std::memory_order_relaxed) ||
      allocations.fetch_add(1, std::memory_order_relaxed) <
          granted.load(std::memory_order_relaxed))
    return true;
  errno = ENOMEM; // glibc's own code asserts that a refusal says so
  return false;
}

#ifdef SLUICE_SANITIZER_HOOKS

// g++ does not ship the header that declares it.
extern "C" int __sanitizer_install_malloc_and_free_hooks(
    void (*onMalloc)(const volatile void *, size_t),
    void (*onFree)(const volatile void *));

static void installHooks() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void *, size_t) { (void)count(); },
      [](const volatile void *) {});
  REQUIRE(installed > 0);
}

#else

// glibc's own functions, behind the names that everything calls.
extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t number, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) { return count() ? __libc_malloc(size) : nullptr; }
void *calloc(size_t number, size_t size) {
  return count() ? __libc_calloc(number, size) : nullptr;
}
void *realloc(void *old, size_t size) {
  return count() ? __libc_realloc(old, size) : nullptr;
}
void *memalign(size_t alignment, size_t size) {
  return count() ? __libc_memalign(alignment, size) : nullptr;
}
void *aligned_alloc(size_t alignment, size_t size) {
  return count() ? __libc_memalign(alignment, size) : nullptr;
}
int posix_memalign(void **result, size_t alignment, size_t size) {
  *result = count() ? __libc_memalign(alignment, size) : nullptr;
  return *result ? 0 : ENOMEM;
}
}

static void installHooks() {}

#endif

using namespace sluice;
using namespace sluice::runtime;
using namespace sluice::tests;

/// Something that no compiler may leave out.
static std::unique_ptr<int> volatileAllocation() {
  static volatile int value = 1;
  return std::make_unique<int>(value);
}

TEST_CASE("runtime: steps allocate nothing", "[runtime][allocation]") {
  installHooks();
  ChainOptions chain;
  chain.ranks = GENERATE(1u, 2u, 5u);
  chain.microbatches = 8;
  chain.split = true;
  const bool copies = GENERATE(false, true);
  const Plan plan = copies ? makeCopies(chain.ranks, 64) : makeChain(chain);
  JobOptions options;
  options.module = sluice_synthetic_module();
  options.steps = 20;
  options.onStep = [](const StepInfo &info) {
    if (info.step == 0) {
      allocations = 0;
      counting = true;
    }
    if (info.step + 1 == info.steps)
      counting = false;
  };
  JobResult result;
  const Status status = runJob(plan, options, result);
  const uint64_t counted = allocations;
  INFO(status.message());
  REQUIRE(status.ok());
  CHECK(counted == 0);

  // And the count does count.
  allocations = 0;
  counting = true;
  const std::unique_ptr<int> one = volatileAllocation();
  counting = false;
  CHECK(allocations == 1);
  CHECK(*one == 1);
}

#ifndef SLUICE_SANITIZER_HOOKS // which can count, but not refuse

/// Runs a job of which `allowed` allocations succeed while `counting` is set.
static Status runWithin(const Plan &plan, uint64_t allowed,
                        const JobOptions &options) {
  allocations = 0;
  granted = allowed;
  JobResult result;
  Status status = runJob(plan, options, result);
  counting = false;
  return status;
}

static bool tellsOfMemory(const std::string &message) {
  return message.find("out of memory") != std::string::npos ||
         message.find("cannot start a thread for rank ") == 0 ||
         message.find("cannot start the watchdog: ") == 0;
}

TEST_CASE("runtime: memory may run out at any allocation of a job",
          "[runtime][allocation]") {
  const Plan plan = makeChain({.ranks = 2, .microbatches = 1});
  JobOptions options;
  options.module = hookedModule();
  uint64_t allowed = 0;
  Status status;
  do {
    REQUIRE(allowed < 10'000);
    counting = true;
    status = runWithin(plan, allowed++, options);
    if (!status.ok()) {
      INFO(status.message());
      CHECK(status.fault() == Fault::Environment);
      CHECK(tellsOfMemory(status.message()));
    }
    CHECK(hookedInstances() == 0); // all ranks have ended
  } while (!status.ok());
  CHECK(allowed > 20);
}

TEST_CASE("runtime: memory may run out while a job ends early",
          "[runtime][allocation]") {
  const Plan plan = makeChain({.ranks = 2, .microbatches = 1});
  // From the failing operation on.
  WithHooks hooks({.before = [](std::string_view name, Id stage,
                                const sluice_call *, sluice_error *error) {
    if (name != "forward" || stage != 1)
      return 0;
    counting = true;
    error->message[0] = 'x';
    error->message[1] = 0;
    return 1;
  }});
  JobOptions options;
  options.module = hookedModule();
  bool told = false;
  options.onStuck = [&told](const std::string &) { told = true; };
  const std::string whole = "rank 1 failed at 1F0 (chain.yaml:11) of step 0: x";
  uint64_t allowed = 0;
  while (!told) {
    REQUIRE(allowed < 10'000);
    const Status status = runWithin(plan, allowed++, options);
    INFO(status.message());
    CHECK(status.fault() == Fault::Environment);
    CHECK((status.message() == whole || tellsOfMemory(status.message())));
    CHECK(hookedInstances() == 0); // all ranks have ended
  }
  CHECK(allowed > 5);
}

#endif
