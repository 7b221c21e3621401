//===- tests/runtime/EndingForTests.h - How a job that fails ends ---------===//
#ifndef SLUICE_TESTS_RUNTIME_ENDINGFORTESTS_H
#define SLUICE_TESTS_RUNTIME_ENDINGFORTESTS_H

#include "runtime/Job.h"
#include "tests/Catch.h"

#include <chrono>
#include <functional>
#include <regex>
#include <string>

namespace sluice::tests {

/// What a job that ended early told.
struct Ending {
  Status status;
  std::string table; ///< its times replaced by "T", blanks by one
  int tables = 0;
  double seconds = 0;
};

inline Ending runToFailure(
    const Plan &plan, const sluice_module *module, double timeout = 0.5,
    const std::function<void(const runtime::StepInfo &)> &onStep = nullptr) {
  Ending ending;
  runtime::JobOptions options;
  options.module = module;
  options.steps = 3;
  options.timeoutSeconds = timeout;
  options.onStep = onStep;
  options.onStuck = [&ending](const std::string &table) {
    const std::string times =
        std::regex_replace(table, std::regex("[0-9]+\\.[0-9] s"), "T");
    ending.table = std::regex_replace(times, std::regex(" +"), " ");
    ++ending.tables;
  };
  const auto start = std::chrono::steady_clock::now();
  runtime::JobResult result;
  ending.status = runtime::runJob(plan, options, result);
  ending.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return ending;
}

/// The contract of the timeout: a job that is stuck ends after it, and within
/// two seconds more. No other test asserts a time.
inline void checkTimeout(const Ending &ending, double timeout = 0.5) {
  CHECK(ending.seconds >= timeout);
  CHECK(ending.seconds < timeout + 2);
}

} // namespace sluice::tests

#endif // SLUICE_TESTS_RUNTIME_ENDINGFORTESTS_H
