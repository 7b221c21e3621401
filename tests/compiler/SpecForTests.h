//===- tests/compiler/SpecForTests.h - Small answers about a spec ---------===//
#ifndef SLUICE_TESTS_COMPILER_SPECFORTESTS_H
#define SLUICE_TESTS_COMPILER_SPECFORTESTS_H

#include "compiler/spec/Spec.h"

namespace sluice {

/// Ranks times virtual stages, whatever the schedule.
inline uint32_t stagesOf(const Spec &spec) {
  return spec.pipeline.ranks.value * spec.pipeline.virtualStages.value;
}

} // namespace sluice

#endif // SLUICE_TESTS_COMPILER_SPECFORTESTS_H
