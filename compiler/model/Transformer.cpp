//===- Transformer.cpp - A transformer as layers with costs ---------------===//
//
// Floating-point operations of a block and a microbatch, with T tokens on a
// device of the context group, s the sequence, P the parameters of the matrices
// that a token uses, q and v the widths of all heads' queries and values (both
// h without variants) (Qi et al., arXiv 2401.10241, table 1, with the half of
// the attention matrix that causality leaves):
//   forward          T * (2P + s(q + v))
//   backward input   T * (2P + 2s(q + v))
//   backward weight  T * 2P
// Head: 2hVT each, for every prediction of a token. Embedding: a lookup, taken
// as free. Tensor parallelism divides all of it by t.
//
// Recompute: selective T * sq / t, the attention matrix, whose product with the
// values is kept; full the whole forward.
//
// Messages in the group of devices of a rank take time if `cluster.group_link`
// says how, and none else; they are not hidden behind computing. With M = the
// bytes of a boundary and rings (Thakur et al., 2005): an all-reduce among t
// moves 2M(t-1)/t in 2(t-1) steps; a block makes two in the forward and two in
// the backward (Shoeybi et al., arXiv 1909.08053), which sequence parallelism
// replaces by as many bytes; embedding and head make one. Experts: two
// all-to-alls each way of the topk copies of a token, (e-1)/e of them in e-1
// steps. Context: keys and values of the others, c-1 steps forward, twice as
// many bytes backward.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Transformer.h"

#include "compiler/model/Activations.h"
#include "compiler/model/Network.h"
#include "compiler/model/Parallel.h"
#include "compiler/model/Shape.h"
#include "compiler/spec/Spec.h"
#include "ir/ModuleKeys.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {

namespace {

constexpr Ticks kTooLong = kMaxTicks + 1;

/// Operations of one microbatch of a layer on one device.
struct Flops {
  Wide forward = 0, backwardInput = 0, backwardWeight = 0;
};

/// Of the attention alone, forward.
Wide attentionFlops(const Shape &x) {
  return x.tokens * x.s * (x.queries() + x.attended()) / x.t;
}

Flops blockFlops(const Shape &x, const LayerParts &parts) {
  Wide matrices = x.tokens * matrixFlops(parts) / x.t;
  Wide attention = attentionFlops(x);
  return {matrices + attention, matrices + 2 * attention, matrices};
}

Flops headFlops(const Shape &x) {
  Wide product = (x.mtp + 1) * 2 * x.h * x.vocab * x.tokens / x.t;
  return {product, product, product};
}

/// Messages among the devices of a rank: bytes through one of them, and steps
/// one after the other.
struct Exchange {
  Wide bytes = 0, steps = 0;

  Exchange &operator+=(const Exchange &other) {
    bytes += other.bytes;
    steps += other.steps;
    return *this;
  }
  Exchange operator*(Wide factor) const {
    return {bytes * factor, steps * factor};
  }
};

/// Sum over the tensor group of a boundary's numbers.
Exchange allReduce(const Shape &x) {
  return {2 * (x.t - 1) * x.e * x.tokens * x.h / x.t, 2 * (x.t - 1)};
}

Exchange blockExchange(const Shape &x, bool withExperts, bool backward) {
  Exchange sum = allReduce(x) * 2;
  if (withExperts) {
    Wide copies = x.e * (x.tokens / x.wholeBy()) * x.topk * x.h;
    sum += Exchange{copies * (x.ep - 1) / x.ep, x.ep - 1} * 2;
  }
  Wide keys = x.kvRank ? x.kvRank + x.rope : 2 * x.deviceKvHeads() * x.headDim;
  Exchange ring{x.e * x.tokens * keys * (x.c - 1), x.c - 1};
  sum += backward ? ring * 2 : ring;
  return sum;
}

/// Turns operations into ticks: by the speed of the device, or, without one, so
/// that a block's forward is one unit. And exchanges, by the link of the group.
class Clock {
public:
  Clock(const ClusterSpec &cluster, Wide forwardOfBlock)
      : unitFlops(std::max<Wide>(forwardOfBlock, 1)) {
    if (cluster.device && cluster.device->flops.given)
      flopsPerSecond =
          cluster.device->flops.value * cluster.device->efficiency.value;
    if (cluster.groupLink)
      link = {cluster.groupLink->latency, cluster.groupLink->bandwidth};
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
  Ticks ticks(const Exchange &exchange) const {
    TimeUnit unit = flopsPerSecond > 0 ? TimeUnit::Seconds : TimeUnit::Unit;
    Wide sum = Wide(link.latency) * exchange.steps +
               link.occupancy(toBytes(exchange.bytes), unit);
    return static_cast<Ticks>(std::min<Wide>(sum, kTooLong));
  }
  Ticks ticks(Wide flops, const Exchange &exchange) const {
    return std::min(ticks(flops) + ticks(exchange), kTooLong);
  }

private:
  Wide unitFlops;
  double flopsPerSecond = 0;
  Link link;
};

/// Makes the layers of one transformer.
class Builder {
public:
  explicit Builder(const Spec &spec)
      : x(spec),
        clock(spec.cluster,
              blockFlops(x, blockParts(x, x.dense < x.layers)).forward) {}

  void addLayers(Model &model) const {
    model.layers.push_back(embedding());
    model.layers.insert(model.layers.end(), static_cast<size_t>(x.dense),
                        block(LayerKind::Block, blockParts(x, false), false));
    if (x.dense < x.layers)
      model.layers.insert(model.layers.end(),
                          static_cast<size_t>(x.layers - x.dense),
                          block(LayerKind::Block, blockParts(x, true), true));
    if (x.mtp)
      model.layers.insert(model.layers.end(), static_cast<size_t>(x.mtp),
                          block(LayerKind::Mtp, mtpParts(x), x.experts != 0));
    model.layers.push_back(head());
    model.tiedTable = x.tied ? toBytes((x.vocab + x.t - 1) / x.t * x.h) : 0;
  }

private:
  Layer embedding() const;
  Layer block(LayerKind kind, const LayerParts &parts, bool withExperts) const;
  Layer head() const;

  Shape x;
  Clock clock;
};

Layer Builder::embedding() const {
  Layer layer;
  layer.name = "embedding";
  layer.kind = LayerKind::Embedding;
  setParameters(layer, embeddingParts(x), x);
  layer.forward = layer.recomputeFull = clock.ticks(allReduce(x));
  layer.output = boundaryBytes(x);
  return layer;
}

Layer Builder::block(LayerKind kind, const LayerParts &parts,
                     bool withExperts) const {
  Layer layer;
  layer.name = kind == LayerKind::Mtp ? "mtp" : "block";
  layer.kind = kind;
  setParameters(layer, parts, x);
  setBlockBytes(layer, x, withExperts);
  Flops flops = blockFlops(x, parts);
  Exchange forward = blockExchange(x, withExperts, false);
  layer.forward = clock.ticks(flops.forward, forward);
  layer.backwardInput =
      clock.ticks(flops.backwardInput, blockExchange(x, withExperts, true));
  layer.backwardWeight = clock.ticks(flops.backwardWeight);
  if (!x.flash)
    layer.recomputeSelective = clock.ticks(x.tokens * x.s * x.queries() / x.t);
  layer.recomputeFull = layer.forward;
  return layer;
}

/// Final norm, projection to the vocabulary, cross entropy. Tied embeddings
/// count with the embedding.
Layer Builder::head() const {
  Layer layer;
  layer.name = "head";
  layer.kind = LayerKind::Head;
  setParameters(layer, headParts(x), x);
  setHeadBytes(layer, x);
  Flops flops = headFlops(x);
  layer.forward = layer.recomputeFull = clock.ticks(flops.forward);
  layer.backwardInput =
      clock.ticks(flops.backwardInput, allReduce(x) * (x.mtp + 1));
  layer.backwardWeight = clock.ticks(flops.backwardWeight);
  return layer;
}

/// Training state by number format, for what the spec leaves open: parameter,
/// gradient, optimizer. In 32 bits two moments; mixed precision adds a master
/// copy and, with gradients of 16 bits, one of those too (Megatron-LM's
/// distributed optimizer: 16, 18 and 20 bytes).
void setStateBytes(const Spec &spec, Model &model) {
  struct Row {
    DataType dtype;
    Bytes parameter, gradient, optimizer;
  };
  constexpr Row kRows[] = {{DataType::Fp32, 4, 4, 8},
                           {DataType::Bf16, 2, 4, 12},
                           {DataType::Fp16, 2, 2, 16}};
  auto fill = [](const Located<Bytes> &given, Bytes otherwise) {
    return given.given ? given.value : otherwise;
  };
  for (const Row &row : kRows)
    if (row.dtype == spec.model.transformer->dtype.value) {
      model.parameterBytes = fill(spec.model.parameterBytes, row.parameter);
      model.gradientBytes = fill(spec.model.gradientBytes, row.gradient);
      model.optimizerBytes = fill(spec.model.optimizerBytes, row.optimizer);
    }
}

/// Lines `key=value`.
class Lines {
public:
  void text(const char *key, std::string_view value) {
    out.append(key).append("=").append(value).append("\n");
  }
  void number(const char *key, uint64_t value) {
    text(key, std::to_string(value));
  }
  /// Only what differs from what a plain model has.
  void variant(const char *key, uint64_t value, uint64_t plain = 0) {
    if (value != plain)
      number(key, value);
  }

  std::string out;
};

void describeVariants(const TransformerSpec &x, Lines &lines) {
  namespace keys = stagekeys;
  lines.variant(keys::kDropout, x.dropout);
  lines.variant(keys::kFlashAttention, x.flashAttention, 1);
  if (!x.kvLoraRank.given)
    lines.variant(keys::kHeadDim, x.headDim, x.hidden / x.heads);
  lines.variant(keys::kQkvBias, x.qkvBias, x.bias);
  lines.variant(keys::kOutputBias, x.outputBias, x.bias);
  lines.variant(keys::kMlpBias, x.mlpBias, x.bias);
  lines.variant(keys::kQkNorm, x.qkNorm);
  lines.variant(keys::kPostNorms, x.postNorms);
  lines.variant(keys::kEmbedLayernorm, x.embedLayernorm);
  lines.variant(keys::kExperts, x.experts);
  lines.variant(keys::kTopk, x.topk);
  lines.variant(keys::kMoeFfn, x.experts.given ? *x.moeFfn : 0);
  lines.variant(keys::kSharedExperts, x.sharedExperts);
  lines.variant(keys::kSharedExpertGate, x.sharedExpertGate);
  lines.variant(keys::kDenseLayers, x.denseLayers);
  lines.variant(keys::kRouterBias, x.routerBias);
  lines.variant(keys::kQLoraRank, x.qLoraRank);
  lines.variant(keys::kKvLoraRank, x.kvLoraRank);
  lines.variant(keys::kQkNope, x.qkNope);
  lines.variant(keys::kQkRope, x.qkRope);
  lines.variant(keys::kVHead, x.vHead);
  lines.variant(keys::kMtpLayers, x.mtpLayers);
}

/// Of data_parallel only what the plan leaves to the module.
void describeGroup(const PipelineSpec &pipeline, Bytes gradientBytes,
                   Lines &lines) {
  namespace keys = stagekeys;
  lines.variant(keys::kTensorParallel, pipeline.tensorParallel, 1);
  lines.variant(keys::kSequenceParallel, pipeline.sequenceParallel);
  lines.variant(keys::kContextParallel, pipeline.contextParallel, 1);
  lines.variant(keys::kExpertParallel, pipeline.expertParallel, 1);
  if (replicasOf(pipeline, gradientBytes) != pipeline.dataParallel)
    lines.number(keys::kDataParallel, pipeline.dataParallel);
  lines.variant(keys::kZero, pipeline.zero);
}

std::string describe(const Spec &spec, Bytes gradientBytes) {
  namespace keys = stagekeys;
  const TransformerSpec &x = *spec.model.transformer;
  Lines lines;
  lines.text(keys::kKind, "gpt");
  lines.number(keys::kHidden, x.hidden);
  lines.number(keys::kFfn, x.ffn);
  lines.number(keys::kGatedFfn, x.gatedFfn);
  lines.number(keys::kHeads, x.heads);
  lines.number(keys::kKvHeads, x.kvHeads);
  lines.number(keys::kVocab, x.vocab);
  lines.number(keys::kSequence, x.sequence);
  lines.number(keys::kPositions, x.positions);
  lines.number(keys::kMicrobatchSize, spec.pipeline.microbatchSize);
  lines.number(keys::kLayers, x.layers);
  lines.number(keys::kBias, x.bias);
  lines.text(keys::kNorm, wordOf(kNorms, *x.norm));
  lines.text(keys::kPosition, wordOf(kPositions, *x.position));
  lines.number(keys::kTiedEmbeddings, x.tiedEmbeddings);
  describeVariants(x, lines);
  describeGroup(spec.pipeline, gradientBytes, lines);
  lines.text(keys::kDtype, wordOf(kDataTypes, *x.dtype));
  return lines.out;
}

} // namespace

void addTransformerLayers(const Spec &spec, Model &model) {
  const TransformerSpec &transformer = *spec.model.transformer;
  model.layers.reserve(size_t(transformer.layers) + transformer.mtpLayers + 2);
  Builder(spec).addLayers(model);
  for (Layer &layer : model.layers)
    layer.location = transformer.where;
  setStateBytes(spec, model);
  model.description = describe(spec, model.gradientBytes);
}

Bytes normBytes(const TransformerSpec &transformer) {
  constexpr Bytes kBlock = 12, kEnds = 5;
  return (kEnds + kBlock * transformer.layers.value) * sizeof(double);
}

} // namespace sluice
