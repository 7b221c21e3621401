//===- compiler/passes/WarmupBounds.h - Why counts are not the book's ----===//
#ifndef SLUICE_COMPILER_PASSES_WARMUPBOUNDS_H
#define SLUICE_COMPILER_PASSES_WARMUPBOUNDS_H

#include "compiler/passes/WarmupMeter.h"

#include <string>
#include <vector>

namespace sluice {

/// Where and why `counts`, which a search found, are not the standard ones, if
/// that is for want of memory or takes more of it: a sentence for each rank.
/// Said to be bound by memory is what has no room for one more. At most eight
/// runs.
std::vector<std::string> explainWarmup(WarmupMeter &meter,
                                       const Counts &counts);

} // namespace sluice

#endif // SLUICE_COMPILER_PASSES_WARMUPBOUNDS_H
