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
/// Largest width of a layer and of a microbatch; most tokens. They keep
/// products of any four of these, in bytes or operations, within 128 bits.
inline constexpr uint64_t kMaxWidth = 1 << 20;
inline constexpr uint64_t kMaxTokens = 1 << 24;
inline constexpr uint64_t kMaxExperts = 1 << 14;

/// The keys of the `run` section, which may also be set in a plan.
bool isRunKey(std::string_view key);

/// Read the sections that have a file of their own.
void readModel(const Field &field, Spec &spec);
void readPipeline(const Field &field, Spec &spec);
/// Reads `model.transformer`, with its checks and defaults.
void readTransformer(const Field &field, TransformerSpec &shape);
/// Reads one of its keys, whatever the field is called.
void readTransformerKey(const Field &field, std::string_view key,
                        TransformerSpec &shape);
/// The checks and defaults alone, of a shape that was filled elsewhere.
void finishTransformer(const Field &field, TransformerSpec &shape);
/// Fills the transformer of `spec` from its config, a file beside `specFile`.
void readConfig(const Field &model, std::string_view specFile, ModelSpec &spec);
/// The text of the file that a key of the spec names, relative to the spec, and
/// its path; none after reporting why not.
std::optional<std::string> readBeside(const Located<std::string> &name,
                                      std::string_view specFile,
                                      std::string &path, Reader &reader);
/// Fills the measured times of `spec` from its profile, a file beside
/// `specFile`.
void readProfile(std::string_view specFile, ModelSpec &spec, Reader &reader);
/// Reads the `run` section on its own.
void readRun(const Field &field, RunSpec &run);

/// Reads the whole tree of a spec, reporting every fault.
void readSpec(const Field &top, Spec &spec);

} // namespace sluice

#endif // SLUICE_COMPILER_SPEC_SECTIONS_H
