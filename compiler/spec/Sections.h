//===- compiler/spec/Sections.h - The schema of a spec -------------------===//
#ifndef SLUICE_COMPILER_SPEC_SECTIONS_H
#define SLUICE_COMPILER_SPEC_SECTIONS_H

#include "compiler/spec/Keys.h"

namespace sluice {

/// Most layers of a model, all repeats together; most stages; most microbatches
/// of a step; most pairs of a stage and a microbatch.
inline constexpr uint64_t kMaxLayers = 1 << 18;
inline constexpr uint64_t kMaxStages = 1 << 16;
inline constexpr uint64_t kMaxMicrobatches = 1 << 24;
inline constexpr uint64_t kMaxStageMicrobatches = 1 << 28;

/// The keys of the `run` section, which may also be set in a plan.
bool isRunKey(std::string_view key);

/// Reads the `run` section on its own.
void readRun(const Field &field, RunSpec &run);

/// Reads the whole tree of a spec, reporting every fault.
void readSpec(const Field &top, Spec &spec);

} // namespace sluice

#endif // SLUICE_COMPILER_SPEC_SECTIONS_H
