//===- tests/runtime/AllocationTest.cpp - Steps allocate nothing ---------===//
//
// Counts every allocation of the process while a job is between the end of its
// first step and the end of its last.
//
//===----------------------------------------------------------------------===//
#include "runtime/Job.h"
#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/Catch.h"
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

static void count() {
  if (counting.load(std::memory_order_relaxed))
    allocations.fetch_add(1, std::memory_order_relaxed);
}

#ifdef SLUICE_SANITIZER_HOOKS

// g++ does not ship the header that declares it.
extern "C" int __sanitizer_install_malloc_and_free_hooks(
    void (*onMalloc)(const volatile void *, size_t),
    void (*onFree)(const volatile void *));

static void installHooks() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void *, size_t) { count(); },
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

void *malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
void *calloc(size_t number, size_t size) {
  count();
  return __libc_calloc(number, size);
}
void *realloc(void *old, size_t size) {
  count();
  return __libc_realloc(old, size);
}
void *memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void **result, size_t alignment, size_t size) {
  count();
  *result = __libc_memalign(alignment, size);
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
  const Plan plan = makeChain(chain);
  JobOptions options;
  options.module = sluice_synthetic_module();
  options.steps = 20;
  options.recordSteps = 10;
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
