//===- compiler/MemoryLimit.h - A plan over its memory limit -------------===//
#ifndef SLUICE_COMPILER_MEMORYLIMIT_H
#define SLUICE_COMPILER_MEMORYLIMIT_H

#include "compiler/Compilation.h"

#include <utility>

namespace sluice {

/// The rank that needs most, and its bytes as they are compared with the limit.
std::pair<Id, Bytes> neediestRank(const Plan &plan);

/// Reports that the plan of `compilation` needs more than its memory limit: the
/// rank that needs most, its operation at the peak, and the five largest
/// contributors. Needs a spec and a plan.
void reportOverLimit(Compilation &compilation);

} // namespace sluice

#endif // SLUICE_COMPILER_MEMORYLIMIT_H
