//===- tests/runtime/ScheduleTraining.h - Runs specs with a spy ----------===//
#ifndef SLUICE_TESTS_RUNTIME_SCHEDULETRAINING_H
#define SLUICE_TESTS_RUNTIME_SCHEDULETRAINING_H

#include "ir/Ops.h"
#include "ir/Plan.h"
#include "runtime/Job.h"
#include "runtime/sluice.h"

#include <functional>
#include <string>

namespace sluice::tests {

/// One call of a stage's function.
struct SpyMoment {
  enum Function : uint8_t {
    Forward,
    BackwardInput,
    BackwardWeight,
    AddGradients,
    OptimizerStep
  };
  Function function;
  Id rank, stage;
  uint64_t step;
  const sluice_call *call; ///< of the first three, else null
  const sluice_module *inner;
  void *instance; ///< of inner
  const sluice_state *state;
};

/// Called from the rank's thread.
struct SpyHooks {
  std::function<void(const SpyMoment &)> before, after;
};

/// The plan of `spec`; a fault fails the test.
Plan compileSpec(const std::string &spec);

/// Runs `plan` with `inner`, the hooks around every call; a failure fails the
/// test. One at a time.
runtime::JobResult runSpied(const Plan &plan, const sluice_module *inner,
                            uint64_t steps, SpyHooks hooks);

} // namespace sluice::tests

#endif // SLUICE_TESTS_RUNTIME_SCHEDULETRAINING_H
