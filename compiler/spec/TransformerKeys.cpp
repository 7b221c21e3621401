//===- compiler/spec/TransformerKeys.cpp - The keys of model.transformer --===//
#include "compiler/spec/Sections.h"
#include "ir/Words.h"

#include <algorithm>
#include <utility>

namespace sluice {

namespace {

using Spec32 = Located<uint32_t> TransformerSpec::*;

constexpr Key<TransformerSpec> kTransformerKeys[] = {
    {.name = "layers",
     .read = count<&TransformerSpec::layers, 1, kMaxLayers>,
     .required = true},
    {.name = "hidden",
     .read = count<&TransformerSpec::hidden, 1, kMaxWidth>,
     .required = true},
    {.name = "ffn", .read = count<&TransformerSpec::ffn, 1, 4 * kMaxWidth>},
    {.name = "gated_ffn", .read = flag<&TransformerSpec::gatedFfn>},
    {.name = "heads",
     .read = count<&TransformerSpec::heads, 1, kMaxWidth>,
     .required = true},
    {.name = "kv_heads",
     .read = count<&TransformerSpec::kvHeads, 1, kMaxWidth>},
    {.name = "head_dim",
     .read = count<&TransformerSpec::headDim, 1, kMaxWidth>},
    {.name = "vocab",
     .read = count<&TransformerSpec::vocab, 1, kMaxTokens>,
     .required = true},
    {.name = "sequence",
     .read = count<&TransformerSpec::sequence, 1, kMaxTokens>,
     .required = true},
    {.name = "positions",
     .read = count<&TransformerSpec::positions, 1, kMaxTokens>},
    {.name = "position", .read = word<&TransformerSpec::position, kPositions>},
    {.name = "norm", .read = word<&TransformerSpec::norm, kNorms>},
    {.name = "bias", .read = flag<&TransformerSpec::bias>},
    {.name = "tied_embeddings", .read = flag<&TransformerSpec::tiedEmbeddings>},
    {.name = "flash_attention", .read = flag<&TransformerSpec::flashAttention>},
    {.name = "dropout", .read = flag<&TransformerSpec::dropout>},
    {.name = "dtype", .read = word<&TransformerSpec::dtype, kDataTypes>},
    // Variants of the block.
    {.name = "qkv_bias", .read = flag<&TransformerSpec::qkvBias>},
    {.name = "output_bias", .read = flag<&TransformerSpec::outputBias>},
    {.name = "mlp_bias", .read = flag<&TransformerSpec::mlpBias>},
    {.name = "qk_norm", .read = flag<&TransformerSpec::qkNorm>},
    {.name = "post_norms", .read = flag<&TransformerSpec::postNorms>},
    {.name = "embed_layernorm", .read = flag<&TransformerSpec::embedLayernorm>},
    // Mixture of experts.
    {.name = "experts",
     .read = count<&TransformerSpec::experts, 1, kMaxExperts>},
    {.name = "topk", .read = count<&TransformerSpec::topk, 1, kMaxExperts>},
    {.name = "moe_ffn",
     .read = count<&TransformerSpec::moeFfn, 1, 4 * kMaxWidth>},
    {.name = "shared_experts",
     .read = count<&TransformerSpec::sharedExperts, 0, kMaxExperts>},
    {.name = "shared_expert_gate",
     .read = flag<&TransformerSpec::sharedExpertGate>},
    {.name = "dense_layers",
     .read = count<&TransformerSpec::denseLayers, 0, kMaxLayers>},
    {.name = "router_bias", .read = flag<&TransformerSpec::routerBias>},
    // Multi-head latent attention.
    {.name = "q_lora_rank",
     .read = count<&TransformerSpec::qLoraRank, 1, kMaxWidth>},
    {.name = "kv_lora_rank",
     .read = count<&TransformerSpec::kvLoraRank, 1, kMaxWidth>},
    {.name = "qk_nope", .read = count<&TransformerSpec::qkNope, 1, kMaxWidth>},
    {.name = "qk_rope", .read = count<&TransformerSpec::qkRope, 1, kMaxWidth>},
    {.name = "v_head", .read = count<&TransformerSpec::vHead, 1, kMaxWidth>},
    // Multi-token prediction.
    {.name = "mtp_layers",
     .read = count<&TransformerSpec::mtpLayers, 0, kMaxLayers>},
};

/// What the fields of a transformer mean together. Missing ones are 0 here.
class Checker {
public:
  Checker(const Field &theField, const TransformerSpec &theShape)
      : field(theField), shape(theShape) {}

  void check() {
    attention();
    widths();
    latent();
    experts();
    ends();
  }

private:
  std::string path(std::string_view key) const {
    return field.name() + "." + std::string(key);
  }
  void fault(const Located<uint32_t> &value, std::string_view key,
             const std::string &message) {
    field.reader.error(value.where,
                       path(key) + " is " + number(value) + ", " + message);
  }
  void without(bool given, SourceLocation where, std::string_view key,
               std::string_view other) {
    if (given)
      field.reader.error(where, path(key) + " needs " + std::string(other));
  }
  void needs(bool given, std::string_view key, std::string_view other) {
    if (!given)
      field.reader.error(field.where, field.name() + " has " +
                                          std::string(other) + ", but no " +
                                          std::string(key));
  }
  void attention();
  void rotated(uint32_t headDim);
  void widths();
  void latent();
  void experts();
  void ends();

  const Field &field;
  const TransformerSpec &shape;
};

void Checker::attention() {
  uint32_t hidden = shape.hidden, heads = shape.heads;
  if (shape.kvHeads.given && heads % shape.kvHeads.value != 0)
    fault(shape.heads, "heads",
          "not divisible by " + number(shape.kvHeads) + " kv_heads");
  if (heads == 0 || hidden == 0 || shape.kvLoraRank.given)
    return;
  if (shape.headDim.given)
    return rotated(shape.headDim);
  if (hidden % heads != 0)
    fault(shape.hidden, "hidden",
          "not divisible by " + number(heads) + " heads");
  else
    rotated(hidden / heads);
}

void Checker::rotated(uint32_t headDim) {
  if (shape.position.value != Positions::Rope || headDim % 2 == 0)
    return;
  std::string must = "which must be even for position rope";
  if (shape.headDim.given)
    fault(shape.headDim, "head_dim", must);
  else
    fault(shape.hidden, "hidden",
          "so a head has " + number(headDim) + " numbers, " + must);
}

/// All heads together; the limit keeps products within 128 bits.
void Checker::widths() {
  uint64_t head = std::max<uint64_t>({shape.headDim.value,
                                      uint64_t(shape.qkNope) + shape.qkRope,
                                      shape.vHead.value});
  if (head * shape.heads > 4 * kMaxWidth)
    fault(shape.heads, "heads",
          "of " + number(head) + " numbers each, more than " +
              number(4 * kMaxWidth) + " in all");
}

void Checker::latent() {
  constexpr std::pair<std::string_view, Spec32> kParts[] = {
      {"qk_nope", &TransformerSpec::qkNope},
      {"qk_rope", &TransformerSpec::qkRope},
      {"v_head", &TransformerSpec::vHead}};
  bool latent = shape.kvLoraRank.given;
  for (auto [key, member] : kParts)
    if (latent)
      needs((shape.*member).given, key, "kv_lora_rank");
    else
      without((shape.*member).given, (shape.*member).where, key,
              "kv_lora_rank");
  if (!latent)
    without(shape.qLoraRank.given, shape.qLoraRank.where, "q_lora_rank",
            "kv_lora_rank");
}

void Checker::experts() {
  if (!shape.experts.given) {
    constexpr std::pair<std::string_view, Spec32> kParts[] = {
        {"topk", &TransformerSpec::topk},
        {"moe_ffn", &TransformerSpec::moeFfn},
        {"shared_experts", &TransformerSpec::sharedExperts},
        {"dense_layers", &TransformerSpec::denseLayers}};
    for (auto [key, member] : kParts)
      without((shape.*member).given, (shape.*member).where, key, "experts");
    without(shape.routerBias.given, shape.routerBias.where, "router_bias",
            "experts");
  }
  without(shape.sharedExpertGate.value && shape.sharedExperts.value == 0,
          shape.sharedExpertGate.where, "shared_expert_gate", "shared_experts");
  if (!shape.experts.given)
    return;
  needs(shape.topk.given, "topk", "experts");
  if (shape.topk.value > shape.experts.value)
    fault(shape.topk, "topk",
          "more than the " + number(shape.experts) + " experts");
  if (shape.layers.given && shape.denseLayers.value > shape.layers.value)
    fault(shape.denseLayers, "dense_layers",
          "more than the " + number(shape.layers) + " layers");
}

void Checker::ends() {
  bool learned = shape.position.value == Positions::Learned;
  if (shape.positions.given && learned &&
      shape.positions.value < shape.sequence.value)
    fault(shape.positions, "positions",
          "fewer than the sequence of " + number(shape.sequence));
  if (shape.positions.given && !learned)
    field.reader.warning(shape.positions.where,
                         path("positions") + " has no effect with position " +
                             std::string(wordOf(kPositions, *shape.position)));
  bool dense = !shape.experts.given || shape.denseLayers.value != 0;
  if (shape.gatedFfn.value && !shape.ffn.given &&
      (dense || !shape.moeFfn.given))
    field.reader.error(field.where, field.name() +
                                        " has gated_ffn, but no ffn (only "
                                        "without gating it is 4 x hidden)");
}

void setDefaults(TransformerSpec &shape) {
  auto fill = [](auto &to, const auto &value) {
    if (!to.given)
      to.value = value;
  };
  fill(shape.ffn, 4 * shape.hidden.value);
  fill(shape.moeFfn, shape.ffn.value);
  fill(shape.kvHeads, shape.heads.value);
  fill(shape.headDim,
       shape.heads.value ? shape.hidden.value / shape.heads.value : 0);
  fill(shape.positions, shape.sequence.value);
  fill(shape.qkvBias, shape.bias.value);
  fill(shape.outputBias, shape.bias.value);
  fill(shape.mlpBias, shape.bias.value);
}

} // namespace

void readTransformer(const Field &field, TransformerSpec &shape) {
  shape.where = field.where;
  readSection(field, kTransformerKeys, shape);
  finishTransformer(field, shape);
}

void readTransformerKey(const Field &field, std::string_view key,
                        TransformerSpec &shape) {
  for (const Key<TransformerSpec> &row : kTransformerKeys)
    if (row.name == key)
      row.read(field, shape);
}

void finishTransformer(const Field &field, TransformerSpec &shape) {
  Checker(field, shape).check();
  setDefaults(shape);
}

} // namespace sluice
