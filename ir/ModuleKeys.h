//===- ir/ModuleKeys.h - Keys of what a stage module is told -------------===//
//
// A plan tells a stage's module what the stage is (Stage::description) and what
// the run is (Plan::run), as lines `key=value`. The compiler writes them, the
// modules read them; flags are 0 or 1.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_MODULEKEYS_H
#define SLUICE_IR_MODULEKEYS_H

namespace sluice {

/// Of a stage of a transformer. All of them are given, but for dropout and
/// flash attention, which are given where that is on and where this is off: a
/// module that does not know them must not ignore them.
namespace stagekeys {
inline constexpr char kKind[] = "kind"; ///< "gpt"
// The model, as its spec has it.
inline constexpr char kLayers[] = "layers";
inline constexpr char kHidden[] = "hidden";
inline constexpr char kFfn[] = "ffn";
inline constexpr char kGatedFfn[] = "gated_ffn"; ///< flag
inline constexpr char kHeads[] = "heads";
inline constexpr char kKvHeads[] = "kv_heads";
inline constexpr char kVocab[] = "vocab";
inline constexpr char kSequence[] = "sequence";
inline constexpr char kPositions[] = "positions";
inline constexpr char kPosition[] = "position";
inline constexpr char kNorm[] = "norm";
inline constexpr char kBias[] = "bias";                      ///< flag
inline constexpr char kTiedEmbeddings[] = "tied_embeddings"; ///< flag
inline constexpr char kDropout[] = "dropout";                ///< flag
inline constexpr char kFlashAttention[] = "flash_attention"; ///< flag
inline constexpr char kDtype[] = "dtype";
inline constexpr char kMicrobatchSize[] = "microbatch_size"; ///< sequences
// The stage.
inline constexpr char kFirstLayer[] = "first_layer";
inline constexpr char kStageLayers[] = "stage_layers";
inline constexpr char kEmbedding[] = "embedding"; ///< flag: begins with it
inline constexpr char kHead[] = "head";           ///< flag: ends with it
} // namespace stagekeys

/// Of the run, named as in the section `run` of a spec.
namespace runkeys {
inline constexpr char kModule[] = "module";
inline constexpr char kData[] = "data";
inline constexpr char kSteps[] = "steps";
inline constexpr char kLearningRate[] = "learning_rate";
inline constexpr char kSeed[] = "seed";
} // namespace runkeys

} // namespace sluice

#endif // SLUICE_IR_MODULEKEYS_H
