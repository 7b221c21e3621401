//===- compiler/schedules/DualPipes.h - The phases of both DualPipes ------===//
#ifndef SLUICE_COMPILER_SCHEDULES_DUALPIPES_H
#define SLUICE_COMPILER_SCHEDULES_DUALPIPES_H

#include "compiler/schedules/Schedules.h"

namespace sluice {

/// The eight phases of a rank at distance `h` from its end of `half` ranks, two
/// lanes of `microbatches` each; at least 2 · half of them.
RankProgram dualPhases(uint32_t h, uint32_t half, uint32_t microbatches);

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_DUALPIPES_H
