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

/// Of a stage of a transformer. The first are always given; the variants are
/// given where they are on: a module that does not know one must not ignore it.
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
inline constexpr char kDtype[] = "dtype";
inline constexpr char kMicrobatchSize[] = "microbatch_size"; ///< sequences
// Variants of the model, of its training and of the group of a rank's devices.
inline constexpr char kDropout[] = "dropout";                ///< flag
inline constexpr char kFlashAttention[] = "flash_attention"; ///< flag, if off
inline constexpr char kHeadDim[] = "head_dim";
inline constexpr char kQkvBias[] = "qkv_bias";       ///< flag, if not as bias
inline constexpr char kOutputBias[] = "output_bias"; ///< flag, if not as bias
inline constexpr char kMlpBias[] = "mlp_bias";       ///< flag, if not as bias
inline constexpr char kQkNorm[] = "qk_norm";         ///< flag
inline constexpr char kPostNorms[] = "post_norms";   ///< flag
inline constexpr char kEmbedLayernorm[] = "embed_layernorm"; ///< flag
inline constexpr char kExperts[] = "experts";
inline constexpr char kTopk[] = "topk";
inline constexpr char kMoeFfn[] = "moe_ffn";
inline constexpr char kSharedExperts[] = "shared_experts";
inline constexpr char kSharedExpertGate[] = "shared_expert_gate"; ///< flag
inline constexpr char kDenseLayers[] = "dense_layers";
inline constexpr char kRouterBias[] = "router_bias"; ///< flag
inline constexpr char kQLoraRank[] = "q_lora_rank";
inline constexpr char kKvLoraRank[] = "kv_lora_rank";
inline constexpr char kQkNope[] = "qk_nope";
inline constexpr char kQkRope[] = "qk_rope";
inline constexpr char kVHead[] = "v_head";
inline constexpr char kMtpLayers[] = "mtp_layers";
inline constexpr char kTensorParallel[] = "tensor_parallel";
inline constexpr char kSequenceParallel[] = "sequence_parallel"; ///< flag
inline constexpr char kContextParallel[] = "context_parallel";
inline constexpr char kExpertParallel[] = "expert_parallel";
inline constexpr char kDataParallel[] = "data_parallel";
inline constexpr char kZero[] = "zero";
// The stage.
inline constexpr char kFirstLayer[] = "first_layer";
inline constexpr char kStageLayers[] = "stage_layers";
inline constexpr char kEmbedding[] = "embedding"; ///< flag: begins with it
inline constexpr char kHead[] = "head";           ///< flag: ends with it
} // namespace stagekeys

/// Of the run, named as in the section `run` of a spec.
namespace runkeys {
inline constexpr char kModule[] = "module";
inline constexpr char kClipNorm[] = "clip_norm";
inline constexpr char kData[] = "data";
inline constexpr char kSteps[] = "steps";
inline constexpr char kGradientGroups[] = "gradient_groups";
inline constexpr char kLearningRate[] = "learning_rate";
inline constexpr char kSeed[] = "seed";
} // namespace runkeys

} // namespace sluice

#endif // SLUICE_IR_MODULEKEYS_H
