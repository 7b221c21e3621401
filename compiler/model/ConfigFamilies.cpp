//===- compiler/model/ConfigFamilies.cpp - The table of families ----------===//
//
// Names and defaults of fields are those of the families' configuration classes
// in Hugging Face's transformers.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/ConfigFamilies.h"

namespace sluice {

namespace {

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

constexpr ConfigField kGpt2[] = {
    {"n_layer", "layers", kNeeded},       {"n_embd", "hidden", kNeeded},
    {"n_head", "heads", kNeeded},         {"n_inner", "ffn"},
    {"vocab_size", "vocab", kNeeded},     {"n_positions", "sequence", kNeeded},
    {"n_positions", "positions", kNeeded}};

constexpr ConfigField kBloom[] = {
    {"n_layer|num_hidden_layers", "layers", kNeeded},
    {"hidden_size|n_embed", "hidden", kNeeded},
    {"n_head|num_attention_heads", "heads", kNeeded},
    {"vocab_size", "vocab", kNeeded},
    {"seq_length", "sequence", "2048"}};

constexpr ConfigField kOpt[] = {
    {"num_hidden_layers", "layers", kNeeded},
    {"hidden_size", "hidden", kNeeded},
    {"num_attention_heads", "heads", kNeeded},
    {"ffn_dim", "ffn", kNeeded},
    {"vocab_size", "vocab", kNeeded},
    {"max_position_embeddings", "sequence", kNeeded},
    {"max_position_embeddings", "positions", kNeeded,
     2}, // the first two unused
    {"enable_bias", "bias", "true"}};

/// What most families since have in common.
constexpr ConfigField kCommon[] = {
    {"num_hidden_layers", "layers", kNeeded},
    {"hidden_size", "hidden", kNeeded},
    {"intermediate_size", "ffn", kNeeded},
    {"num_attention_heads", "heads", kNeeded},
    {"vocab_size", "vocab", kNeeded},
    {"max_position_embeddings", "sequence", kNeeded}};

/// The same where the class has a default for most.
constexpr ConfigField kGemma3[] = {
    {"num_hidden_layers", "layers", kNeeded},
    {"hidden_size", "hidden", kNeeded},
    {"intermediate_size", "ffn", kNeeded},
    {"num_attention_heads", "heads", "8"},
    {"num_key_value_heads", "kv_heads", "4"},
    {"head_dim", "head_dim", "256"},
    {"vocab_size", "vocab", "262208"},
    {"max_position_embeddings", "sequence", "131072"},
    {"attention_bias", "qkv_bias", "false"},
    {"attention_bias", "output_bias", "false"}};

constexpr ConfigField kNeoX[] = {{"attention_bias", "qkv_bias", "true"},
                                 {"attention_bias", "output_bias", "true"}};

constexpr ConfigField kLlama[] = {{"num_key_value_heads", "kv_heads"},
                                  {"head_dim", "head_dim"},
                                  {"attention_bias", "qkv_bias", "false"},
                                  {"attention_bias", "output_bias", "false"},
                                  {"mlp_bias", "mlp_bias", "false"}};

constexpr ConfigField kMistral[] = {{"num_key_value_heads", "kv_heads", "8"},
                                    {"head_dim", "head_dim"}};

constexpr ConfigField kMixtral[] = {{"num_local_experts", "experts", kNeeded},
                                    {"num_experts_per_tok", "topk", kNeeded}};

constexpr ConfigField kQwen2[] = {{"num_key_value_heads", "kv_heads"},
                                  {"head_dim", "head_dim"},
                                  {"qkv_bias", "qkv_bias", "true"}};

constexpr ConfigField kQwen2Experts[] = {
    {"num_experts", "experts", kNeeded},
    {"num_experts_per_tok", "topk", kNeeded},
    {"moe_intermediate_size", "moe_ffn", kNeeded},
    {"shared_expert_intermediate_size", "shared_experts", kNeeded, 0,
     "moe_intermediate_size"}};

constexpr ConfigField kQwen3[] = {{"num_key_value_heads", "kv_heads"},
                                  {"head_dim", "head_dim", "128"},
                                  {"attention_bias", "qkv_bias", "false"},
                                  {"attention_bias", "output_bias", "false"}};

constexpr ConfigField kQwen3Moe[] = {
    {"num_key_value_heads", "kv_heads"},
    {"head_dim", "head_dim"},
    {"attention_bias", "qkv_bias", "false"},
    {"attention_bias", "output_bias", "false"}};

constexpr ConfigField kQwen3Experts[] = {
    {"num_experts", "experts", kNeeded},
    {"num_experts_per_tok", "topk", kNeeded},
    {"moe_intermediate_size", "moe_ffn", kNeeded}};

constexpr ConfigField kDeepseek[] = {
    {"q_lora_rank", "q_lora_rank"},
    {"kv_lora_rank", "kv_lora_rank", kNeeded},
    {"qk_nope_head_dim", "qk_nope", kNeeded},
    {"qk_rope_head_dim", "qk_rope", kNeeded},
    {"v_head_dim", "v_head", kNeeded},
    {"n_routed_experts", "experts", kNeeded},
    {"n_shared_experts", "shared_experts", "0"},
    {"num_experts_per_tok", "topk", kNeeded},
    {"moe_intermediate_size", "moe_ffn", kNeeded},
    {"first_k_dense_replace", "dense_layers", "0"},
    {"attention_bias", "qkv_bias", "false"},
    {"attention_bias", "output_bias", "false"}};

constexpr ConfigField kGemma[] = {{"num_key_value_heads", "kv_heads"},
                                  {"head_dim", "head_dim", "256"},
                                  {"attention_bias", "qkv_bias", "false"},
                                  {"attention_bias", "output_bias", "false"}};

constexpr ConfigField kTied[] = {
    {"tie_word_embeddings", "tied_embeddings", "true"}};
constexpr ConfigField kUntied[] = {
    {"tie_word_embeddings", "tied_embeddings", "false"}};
constexpr ConfigField kPredicting[] = {
    {"num_nextn_predict_layers", "mtp_layers", "0"}};

//===----------------------------------------------------------------------===//
// What is the same in a whole family
//===----------------------------------------------------------------------===//

constexpr ConfigTrait kNeoXTraits[] = {{"position", "rope"}};
constexpr ConfigTrait kBloomTraits[] = {{"position", "alibi"},
                                        {"embed_layernorm", "true"}};

#define SLUICE_RMS_GATED                                                       \
  {"gated_ffn", "true"}, {"norm", "rms"}, {"position", "rope"}, {              \
    "bias", "false"                                                            \
  }
constexpr ConfigTrait kLlamaTraits[] = {SLUICE_RMS_GATED};
constexpr ConfigTrait kQwen2MoeTraits[] = {SLUICE_RMS_GATED,
                                           {"shared_expert_gate", "true"}};
constexpr ConfigTrait kQwen3Traits[] = {SLUICE_RMS_GATED, {"qk_norm", "true"}};
constexpr ConfigTrait kDeepseekV3Traits[] = {SLUICE_RMS_GATED,
                                             {"router_bias", "true"}};
constexpr ConfigTrait kGemma2Traits[] = {SLUICE_RMS_GATED,
                                         {"post_norms", "true"}};
constexpr ConfigTrait kGemma3Traits[] = {
    SLUICE_RMS_GATED, {"post_norms", "true"}, {"qk_norm", "true"}};
#undef SLUICE_RMS_GATED

constexpr ConfigFixed kGpt2Fixed[] = {{"add_cross_attention", "false"}};
constexpr ConfigFixed kOptFixed[] = {{"do_layer_norm_before", "true"},
                                     {"_remove_final_layer_norm", "false"},
                                     {"layer_norm_elementwise_affine", "true"},
                                     {"word_embed_proj_dim", "=hidden_size"}};
constexpr ConfigFixed kQwenMoeFixed[] = {{"decoder_sparse_step", "1"},
                                         {"mlp_only_layers", "[]"}};
constexpr ConfigFixed kDeepseekFixed[] = {{"moe_layer_freq", "1"}};

constexpr ConfigFamily kFamilies[] = {
    {"gpt2", {kGpt2, kTied}, {}, kGpt2Fixed},
    {"gpt_neox", {kCommon, kNeoX, kUntied}, kNeoXTraits},
    {"bloom", {kBloom, kTied}, kBloomTraits},
    {"opt", {kOpt, kTied}, {}, kOptFixed},
    {"llama", {kCommon, kLlama, kUntied}, kLlamaTraits},
    {"mistral", {kCommon, kMistral, kUntied}, kLlamaTraits},
    {"mixtral", {kCommon, kMistral, kMixtral, kUntied}, kLlamaTraits},
    {"qwen2", {kCommon, kQwen2, kUntied}, kLlamaTraits},
    {"qwen2_moe",
     {kCommon, kQwen2, kQwen2Experts, kUntied},
     kQwen2MoeTraits,
     kQwenMoeFixed},
    {"qwen3", {kCommon, kQwen3, kUntied}, kQwen3Traits},
    {"qwen3_moe",
     {kCommon, kQwen3Moe, kQwen3Experts, kUntied},
     kQwen3Traits,
     kQwenMoeFixed},
    {"deepseek_v2",
     {kCommon, kDeepseek, kUntied},
     kLlamaTraits,
     kDeepseekFixed},
    {"deepseek_v3",
     {kCommon, kDeepseek, kUntied, kPredicting},
     kDeepseekV3Traits,
     kDeepseekFixed},
    {"gemma", {kCommon, kGemma, kTied}, kLlamaTraits},
    {"gemma2", {kCommon, kGemma, kTied}, kGemma2Traits},
    {"gemma3_text", {kGemma3, kTied}, kGemma3Traits},
    {"gemma3", {kGemma3, kTied}, kGemma3Traits, {}, "text_config"},
};

} // namespace

std::span<const ConfigFamily> allConfigFamilies() { return kFamilies; }

} // namespace sluice
