//===- tests/fuzz/PlanFileFuzz.cpp - Fuzzes the reader of plan files ------===//
//
// libFuzzer's entry point. The bytes are read as they are and once more with
// the hashes made right, so that the fuzzer gets behind them.
//
//===----------------------------------------------------------------------===//
#include "ir/PlanFile.h"
#include "tests/ir/PlanFilePlans.h"

#include <cstdlib>

#include <sys/mman.h>
#include <unistd.h>

using namespace sluice;

/// Reads `bytes` as a file in memory; what is accepted must hold its promise.
static void readPlan(const std::string &bytes) {
  static const int kFile = ::memfd_create("plan", MFD_CLOEXEC);
  static const std::string kPath = "/proc/self/fd/" + std::to_string(kFile);
  if (::ftruncate(kFile, 0) != 0 ||
      ::pwrite(kFile, bytes.data(), bytes.size(), 0) !=
          static_cast<ssize_t>(bytes.size()))
    std::abort();
  Plan plan;
  if (readPlanFile(kPath, plan).ok() && testing::textOf(plan).empty())
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string bytes(reinterpret_cast<const char *>(data), size);
  readPlan(bytes);
  testing::repairHashes(bytes);
  readPlan(bytes);
  return 0;
}
