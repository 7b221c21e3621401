//===- compiler/MemoryAdvice.h - What to do about a plan over its limit --===//
#ifndef SLUICE_COMPILER_MEMORYADVICE_H
#define SLUICE_COMPILER_MEMORYADVICE_H

#include "compiler/Compilation.h"

namespace sluice {

/// Adds to the last error, which says that the plan of `compilation` needs more
/// than its memory limit (reportOverLimit), changes of the spec that would fit,
/// each found by compiling it. Needs a spec, warmup counts and a plan. Some
/// tens of compilations long.
void adviseOnLimit(Compilation &compilation);

} // namespace sluice

#endif // SLUICE_COMPILER_MEMORYADVICE_H
