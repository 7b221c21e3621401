//===- tests/cuda/WatchedModule.h - A module that the double can watch ----===//
#ifndef SLUICE_TESTS_CUDA_WATCHEDMODULE_H
#define SLUICE_TESTS_CUDA_WATCHEDMODULE_H

#include "ir/Plan.h"
#include "runtime/sluice.h"

namespace sluice::tests {

/// Does what `synthetic` does, and tells the double of it: the name of the
/// operation, what it touches (as the plan's operands say), and the virtual
/// time that the plan gives it; no real time.
const sluice_module *watchedModule();

/// What it watches: for as long as this lives. One at a time.
class Watching {
public:
  explicit Watching(const Plan &plan);
  ~Watching();
  Watching(const Watching &) = delete;
  Watching &operator=(const Watching &) = delete;
};

} // namespace sluice::tests

#endif // SLUICE_TESTS_CUDA_WATCHEDMODULE_H
