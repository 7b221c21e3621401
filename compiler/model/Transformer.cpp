//===- Transformer.cpp - Parameters, costs and bytes of a transformer ----===//
//
// h hidden, f ffn, d = h/heads, k = kv_heads*d, V vocab, s sequence,
// T = s * microbatch_size tokens, e bytes of a number.
//
// Parameters of a block: queries and attention output 2h^2, keys and values
// 2hk, MLP 2hf (gated: 3hf), biases of the linear layers h+2k+h and f+h (gated:
// 2f+h), two norms of h weights each and, for a layer norm, h biases.
//
// Floating-point operations of a block and a microbatch, with P = the
// parameters of its matrices (Qi et al., arXiv 2401.10241, table 1, with the
// half of the attention matrix that causality leaves):
//   forward          T * (2P + 2sh)
//   backward input   T * (2P + 4sh)
//   backward weight  T * 2P
// Head: 2hVT each. Embedding: a lookup, taken as free.
//
// Saved by a block's forward, numbers per token (Korthikanti et al., arXiv
// 2205.05198, section 4.1): input h, first norm h, queries h, keys and values
// 2k, attention output h, residual h, second norm h, MLP 2f (before and after
// the activation; gated: gate, up and product 3f). With k = h, f = 4h: 16h
// numbers, 32h bytes in 16 bits; two dropout masks of a byte make it 34h.
// Without flash attention also the attention matrix before and after dropout,
// 2 * heads * s numbers, and with dropout its mask of heads * s bytes: 5as.
// W needs all of it but the masks and the attention matrix: these are what
// selective recomputation makes again (section 5 there), for the half of the
// forward's attention that makes the matrix, T * sh. Full recomputation is the
// forward once more, of a stage's input; the forward then works through a block
// in its workspace. The head keeps all it needs in any case: its norm's input
// would cost the last block's product.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Transformer.h"

#include "compiler/spec/Spec.h"
#include "ir/ModuleKeys.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {

namespace {

using Wide = unsigned __int128;

/// Over every limit that the totals are checked against, but safe to add.
constexpr Bytes kTooManyBytes = Bytes(1) << 63;
constexpr Ticks kTooLong = kMaxTicks + 1;

Bytes toBytes(Wide value) {
  return static_cast<Bytes>(std::min<Wide>(value, kTooManyBytes));
}

/// The shape, widened so that products of four of its numbers fit.
struct Shape {
  Wide h, f, k, vocab, s, tokens, e, heads, positions;
  bool gated, bias, learned, flash, dropout, tied;
  Wide normParameters;

  Shape(const TransformerSpec &spec, uint32_t microbatchSize)
      : h(spec.hidden.value), f(spec.ffn.value),
        k(h / spec.heads.value * spec.kvHeads.value), vocab(spec.vocab.value),
        s(spec.sequence.value), tokens(s * microbatchSize),
        e(spec.dtype.value == DataType::Fp32 ? 4 : 2), heads(spec.heads.value),
        positions(spec.positions.value), gated(spec.gatedFfn), bias(spec.bias),
        learned(spec.position.value == Positions::Learned),
        flash(spec.flashAttention), dropout(spec.dropout),
        tied(spec.tiedEmbeddings),
        normParameters(spec.norm.value == Norm::Rms ? h : 2 * h) {}

  /// Parameters of the matrices of a block.
  Wide matrices() const {
    return 2 * h * h + 2 * h * k + (gated ? 3 : 2) * h * f;
  }
};

/// Operations of one microbatch of a layer.
struct Flops {
  Wide forward = 0, backwardInput = 0, backwardWeight = 0;
  Wide recomputeSelective = 0;
};

Flops blockFlops(const Shape &x) {
  Wide matrices = 2 * x.matrices(), attention = 2 * x.s * x.h;
  return {x.tokens * (matrices + attention),
          x.tokens * (matrices + 2 * attention), x.tokens * matrices,
          x.flash ? 0 : x.tokens * attention / 2};
}

Flops headFlops(const Shape &x) {
  Wide product = 2 * x.h * x.vocab * x.tokens;
  return {product, product, product, 0};
}

/// Turns operations into ticks: by the speed of the device, or, without one, so
/// that a block's forward is one unit.
class Clock {
public:
  Clock(const std::optional<DeviceSpec> &device, Wide forwardOfBlock)
      : unitFlops(forwardOfBlock) {
    if (device && device->flops.given)
      flopsPerSecond = device->flops.value * device->efficiency.value;
  }

  Ticks ticks(Wide flops) const {
    if (flopsPerSecond > 0) {
      double value = static_cast<double>(flops) / flopsPerSecond * 1e12;
      return value < static_cast<double>(kMaxTicks)
                 ? static_cast<Ticks>(std::llround(value))
                 : kTooLong;
    }
    Wide scale = ticksPer(TimeUnit::Unit);
    Wide value = (flops * scale + unitFlops / 2) / unitFlops;
    return static_cast<Ticks>(std::min<Wide>(value, kTooLong));
  }
  void setTimes(Layer &layer, const Flops &flops) const {
    layer.forward = ticks(flops.forward);
    layer.backwardInput = ticks(flops.backwardInput);
    layer.backwardWeight = ticks(flops.backwardWeight);
    layer.recomputeFull = layer.forward;
    layer.recomputeSelective = ticks(flops.recomputeSelective);
  }

private:
  Wide unitFlops;
  double flopsPerSecond = 0;
};

Layer embeddingLayer(const Shape &x) {
  Layer layer;
  layer.name = "embedding";
  layer.kind = LayerKind::Embedding;
  layer.parameters =
      toBytes(x.vocab * x.h + (x.learned ? x.positions * x.h : 0));
  layer.output = toBytes(x.tokens * x.h * x.e);
  return layer;
}

Layer blockLayer(const Shape &x) {
  Layer layer;
  layer.name = "block";
  layer.kind = LayerKind::Block;
  Wide biases = 3 * x.h + 2 * x.k + (x.gated ? 2 : 1) * x.f;
  layer.parameters =
      toBytes(x.matrices() + (x.bias ? biases : 0) + 2 * x.normParameters);
  Wide kept = x.tokens * x.e * (6 * x.h + 2 * x.k + (x.gated ? 3 : 2) * x.f);
  Wide masks = x.dropout ? x.tokens * 2 * x.h : 0;
  if (!x.flash)
    masks += x.tokens * x.heads * x.s * (2 * x.e + (x.dropout ? 1 : 0));
  layer.activation = toBytes(kept + masks);
  layer.keptForWeight = toBytes(kept);
  layer.output = toBytes(x.tokens * x.h * x.e);
  layer.workspace =
      toBytes(x.e * (x.tokens * (4 * x.h + 2 * x.f) + 2 * x.s * x.s));
  layer.checkpoint = layer.output;
  layer.remade = toBytes(masks);
  layer.forwardWorkspace = toBytes(kept + x.e * x.s * x.s);
  return layer;
}

/// Final norm, projection to the vocabulary, cross entropy. Tied embeddings
/// count with the embedding.
Layer headLayer(const Shape &x) {
  Layer layer;
  layer.name = "head";
  layer.kind = LayerKind::Head;
  layer.parameters = toBytes(x.normParameters + (x.tied ? 0 : x.vocab * x.h));
  layer.activation = toBytes(x.tokens * x.e * (2 * x.h + x.vocab));
  layer.keptForWeight = toBytes(x.tokens * x.e * (x.h + x.vocab));
  layer.workspace = toBytes(x.tokens * x.e * 2 * x.h);
  layer.checkpoint = toBytes(x.tokens * x.h * x.e);
  layer.forwardWorkspace = layer.activation;
  return layer;
}

/// Training state by number format, for what the spec leaves open: mixed
/// precision keeps a gradient, a master copy and two moments in 32 bits.
void setStateBytes(const Spec &spec, Model &model) {
  if (spec.model.transformer->dtype.value != DataType::Fp32)
    return; // the defaults: 2, 4, 12
  if (!spec.model.parameterBytes.given)
    model.parameterBytes = 4;
  if (!spec.model.optimizerBytes.given)
    model.optimizerBytes = 8;
}

std::string describe(const Spec &spec) {
  namespace keys = stagekeys;
  const TransformerSpec &x = *spec.model.transformer;
  std::string out;
  auto text = [&](const char *key, std::string_view value) {
    out.append(key).append("=").append(value).append("\n");
  };
  auto number = [&](const char *key, uint64_t value) {
    text(key, std::to_string(value));
  };
  text(keys::kKind, "gpt");
  number(keys::kHidden, x.hidden);
  number(keys::kFfn, x.ffn);
  number(keys::kGatedFfn, x.gatedFfn);
  number(keys::kHeads, x.heads);
  number(keys::kKvHeads, x.kvHeads);
  number(keys::kVocab, x.vocab);
  number(keys::kSequence, x.sequence);
  number(keys::kPositions, x.positions);
  number(keys::kMicrobatchSize, spec.pipeline.microbatchSize);
  number(keys::kLayers, x.layers);
  number(keys::kBias, x.bias);
  text(keys::kNorm, wordOf(kNorms, *x.norm));
  text(keys::kPosition, wordOf(kPositions, *x.position));
  number(keys::kTiedEmbeddings, x.tiedEmbeddings);
  if (x.dropout)
    number(keys::kDropout, 1);
  if (!x.flashAttention)
    number(keys::kFlashAttention, 0);
  text(keys::kDtype, wordOf(kDataTypes, *x.dtype));
  return out;
}

} // namespace

void addTransformerLayers(const Spec &spec, Model &model) {
  const TransformerSpec &transformer = *spec.model.transformer;
  Shape shape(transformer, spec.pipeline.microbatchSize);
  Clock clock(spec.cluster.device, blockFlops(shape).forward);
  Layer block = blockLayer(shape), head = headLayer(shape);
  clock.setTimes(block, blockFlops(shape));
  clock.setTimes(head, headFlops(shape));
  model.layers.reserve(transformer.layers.value + 2);
  model.layers.push_back(embeddingLayer(shape));
  model.layers.insert(model.layers.end(), transformer.layers.value, block);
  model.layers.push_back(std::move(head));
  for (Layer &layer : model.layers)
    layer.location = transformer.where;
  setStateBytes(spec, model);
  model.description = describe(spec);
}

} // namespace sluice
