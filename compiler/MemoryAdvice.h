//===- compiler/MemoryAdvice.h - What to do about a plan over its limit --===//
#ifndef SLUICE_COMPILER_MEMORYADVICE_H
#define SLUICE_COMPILER_MEMORYADVICE_H

#include "compiler/Compilation.h"

namespace sluice {

/// Reports that the plan of `compilation` needs more than its memory limit: the
/// rank that needs most, its operation at the peak, the five largest
/// contributors, and changes of the spec that would fit, each found by
/// compiling it. Needs a spec and a plan. A few compilations long.
void reportOverLimit(Compilation &compilation);

} // namespace sluice

#endif // SLUICE_COMPILER_MEMORYADVICE_H
