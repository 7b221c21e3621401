//===- compiler/model/Shape.cpp - A transformer's layers as matrices ------===//
//
// h hidden, f ffn, q = heads * head_dim, k = kv_heads * head_dim. A linear
// layer has a matrix and, where the spec says so, a bias.
//
// Attention: queries h -> q, keys and values h -> 2k, output q -> h; with
// qk_norm a norm of head_dim weights each for queries and keys. Multi-head
// latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): queries
// h -> q_lora_rank -> heads (qk_nope + qk_rope), keys and values
// h -> kv_lora_rank + qk_rope, of which kv_lora_rank -> heads (qk_nope +
// v_head), both ranks with a norm; output heads v_head -> h.
// MLP: h -> f (gated: 2f) -> h. Experts: a router h -> experts and for each an
// MLP of moe_ffn; shared ones besides.
// Two norms of h a block, four with post_norms. A layer norm has weights and
// biases, an RMS norm weights.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Shape.h"

#include "compiler/spec/Spec.h"

namespace sluice {

Shape::Shape(const Spec &spec) {
  const TransformerSpec &x = *spec.model.transformer;
  const PipelineSpec &pipeline = spec.pipeline;
  h = x.hidden, f = x.ffn, heads = x.heads, kvHeads = x.kvHeads;
  headDim = x.headDim, vocab = x.vocab, s = x.sequence, positions = x.positions;
  e = x.dtype.value == DataType::Fp32 ? 4 : 2;
  gated = x.gatedFfn, flash = x.flashAttention, dropout = x.dropout;
  learned = x.position.value == Positions::Learned;
  rotary = x.position.value == Positions::Rope;
  tied = x.tiedEmbeddings, embedNorm = x.embedLayernorm, qkNorm = x.qkNorm;
  postNorms = x.postNorms, qkvBias = x.qkvBias, outputBias = x.outputBias;
  mlpBias = x.mlpBias, routerBias = x.routerBias;
  sharedGate = x.sharedExpertGate, layerNorm = x.norm.value == Norm::Layer;
  experts = x.experts, topk = x.topk, moeFfn = x.moeFfn;
  shared = x.sharedExperts, layers = x.layers, mtp = x.mtpLayers;
  dense = x.experts.given ? x.denseLayers : x.layers;
  qRank = x.qLoraRank, kvRank = x.kvLoraRank, nope = x.qkNope, rope = x.qkRope;
  vHead = x.vHead;
  t = pipeline.tensorParallel, c = pipeline.contextParallel;
  ep = pipeline.expertParallel, sequenceParallel = pipeline.sequenceParallel;
  tokens = s * pipeline.microbatchSize.value / c;
}

namespace {

void addMlp(const Shape &x, LayerParts &parts, Wide ffn,
            Matrix of = {.kind = CostKind::Mlp}) {
  Matrix in = of, out = of;
  in.in = x.h, in.out = ffn * (x.gated ? 2 : 1), in.split = Split::Out;
  out.in = ffn, out.out = x.h, out.split = Split::In;
  in.parts = out.parts = ffn;
  in.bias = out.bias = x.mlpBias;
  parts.matrices.push_back(in);
  parts.matrices.push_back(out);
}

void addLatentAttention(const Shape &x, LayerParts &parts) {
  if (x.qRank) {
    parts.matrices.push_back({.in = x.h, .out = x.qRank, .bias = x.qkvBias});
    parts.vectors += x.norm(x.qRank);
  }
  parts.matrices.push_back({.in = x.qRank ? x.qRank : x.h,
                            .out = x.queries(),
                            .split = Split::Out,
                            .parts = x.heads});
  parts.matrices.push_back(
      {.in = x.h, .out = x.kvRank + x.rope, .bias = x.qkvBias});
  parts.vectors += x.norm(x.kvRank);
  parts.matrices.push_back({.in = x.kvRank,
                            .out = x.heads * (x.nope + x.vHead),
                            .split = Split::Out,
                            .parts = x.heads});
}

void addAttention(const Shape &x, LayerParts &parts) {
  if (x.kvRank) {
    addLatentAttention(x, parts);
  } else {
    parts.matrices.push_back({.in = x.h,
                              .out = x.queries(),
                              .split = Split::Out,
                              .parts = x.heads,
                              .bias = x.qkvBias});
    parts.matrices.push_back({.in = x.h,
                              .out = 2 * x.keys(),
                              .split = Split::Out,
                              .parts = x.kvHeads,
                              .bias = x.qkvBias});
    parts.vectors += x.qkNorm ? 2 * x.norm(x.headDim) : 0;
  }
  parts.matrices.push_back({.in = x.attended(),
                            .out = x.h,
                            .split = Split::In,
                            .parts = x.heads,
                            .bias = x.outputBias});
}

void addExperts(const Shape &x, LayerParts &parts) {
  parts.matrices.push_back({.in = x.h,
                            .out = x.experts,
                            .bias = x.routerBias,
                            .kind = CostKind::Experts});
  addMlp(x, parts, x.moeFfn,
         {.expert = true,
          .count = x.experts,
          .active = x.topk,
          .kind = CostKind::Experts});
  if (x.shared)
    addMlp(x, parts, x.shared * x.moeFfn);
  if (x.sharedGate)
    parts.matrices.push_back({.in = x.h, .out = 1, .kind = CostKind::Experts});
}

/// Parameters of one matrix on one device.
Wide held(const Matrix &m, const Shape &x) {
  auto [in, out] = heldSides(m, x);
  return in * out + (m.bias ? out : 0);
}

} // namespace

std::pair<Wide, Wide> heldSides(const Matrix &matrix, const Shape &shape) {
  const Matrix &m = matrix;
  Wide here = (m.parts + shape.t - 1) / shape.t;
  return {m.split == Split::In ? m.in / m.parts * here : m.in,
          m.split == Split::Out ? m.out / m.parts * here : m.out};
}

LayerParts embeddingParts(const Shape &x) {
  LayerParts parts;
  parts.matrices.push_back(
      {.in = x.h, .out = x.vocab, .split = Split::Out, .parts = x.vocab});
  parts.vectors =
      (x.learned ? x.positions * x.h : 0) + (x.embedNorm ? x.norm(x.h) : 0);
  return parts;
}

LayerParts blockParts(const Shape &x, bool withExperts) {
  LayerParts parts;
  addAttention(x, parts);
  if (withExperts)
    addExperts(x, parts);
  else
    addMlp(x, parts, x.f);
  parts.wideNorms = x.postNorms ? 4 : 2;
  parts.vectors += parts.wideNorms * x.norm(x.h);
  return parts;
}

LayerParts mtpParts(const Shape &x) {
  LayerParts parts = blockParts(x, x.experts != 0);
  parts.matrices.push_back(
      {.in = 2 * x.h, .out = x.h, .split = Split::Out, .parts = x.h});
  parts.wideNorms += 3;
  parts.vectors += 3 * x.norm(x.h);
  return parts;
}

LayerParts headParts(const Shape &x) {
  LayerParts parts;
  if (!x.tied)
    parts.matrices.push_back(
        {.in = x.h, .out = x.vocab, .split = Split::Out, .parts = x.vocab});
  parts.vectors = x.norm(x.h);
  return parts;
}

void setParameters(Layer &layer, const LayerParts &parts, const Shape &shape) {
  Wide all = parts.vectors, active = parts.vectors;
  Wide dense = parts.vectors, experts = 0;
  for (const Matrix &m : parts.matrices) {
    Wide one = m.in * m.out + (m.bias ? m.out : 0);
    all += m.count * one;
    active += m.active * one;
    Wide here = (m.expert ? m.count / shape.ep : m.count) * held(m, shape);
    (m.expert ? experts : dense) += here;
  }
  layer.parameters = toBytes(all);
  layer.activeParameters = toBytes(active);
  layer.held = {toBytes(dense), toBytes(experts)};
}

} // namespace sluice
