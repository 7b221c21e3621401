//===- compiler/model/Transformer.cpp - A transformer as costed layers ----===//
//
// Operations and bytes of each layer, and the times that follow: Costs.cpp. A
// time that the profile gives is taken instead, messages and all.
//
// Recompute: selective the attention matrix, whose product with the values is
// kept; full the whole forward.
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
#include "compiler/model/Costs.h"
#include "compiler/model/Parallel.h"
#include "compiler/model/Profile.h"
#include "compiler/model/Shape.h"
#include "compiler/spec/Spec.h"
#include "ir/ModuleKeys.h"

#include <algorithm>
#include <utility>

namespace sluice {

namespace {

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

constexpr std::string_view kMessages = "messages";
constexpr std::string_view kMeasured = "measured";

/// Makes the layers of one transformer.
class Builder {
public:
  Builder(const Spec &theSpec, Model &built)
      : spec(theSpec), model(built), x(theSpec),
        clock(theSpec.cluster, forwardFlops(lastBlockCosts())) {}

  void addLayers();

private:
  using Parts = std::vector<PartCost>;
  Parts lastBlockCosts() const {
    bool withExperts = x.dense < x.layers;
    return blockCosts(x, blockParts(x, withExperts), withExperts,
                      model.gradientBytes);
  }
  void addEmbedding();
  void addBlocks(std::string_view name, LayerKind kind, const LayerParts &parts,
                 bool withExperts, Wide count);
  void addHead();
  void add(Layer layer, std::string_view name, const Parts &costs,
           const Exchange &forward, const Exchange &backward, Wide count);
  void addSizes(const Layer &layer, std::string_view name, Wide count);
  Ticks time(std::string_view layer, Wide count, CostPass pass,
             const Parts &costs, const Exchange &exchange);

  const Spec &spec;
  Model &model;
  Shape x;
  Clock clock;
};

void Builder::addLayers() {
  addEmbedding();
  addBlocks("dense_block", LayerKind::Block, blockParts(x, false), false,
            x.dense);
  addBlocks("expert_block", LayerKind::Block, blockParts(x, true), true,
            x.layers - std::min(x.layers, x.dense));
  addBlocks("mtp", LayerKind::Mtp, mtpParts(x), x.experts != 0, x.mtp);
  addHead();
  model.table = toBytes((x.vocab + x.t - 1) / x.t * x.h);
  model.tiedTable = x.tied ? model.table : 0;
}

/// What a layer takes in one pass, with the rows that tell how.
Ticks Builder::time(std::string_view layer, Wide count, CostPass pass,
                    const Parts &costs, const Exchange &exchange) {
  CostRow row{.layer = layer,
              .layers = static_cast<uint32_t>(count),
              .kind = kMeasured,
              .pass = pass,
              .work = {},
              .time = 0,
              .bound = CostBound::Profile};
  const LayerTimes *times = measuredTimes(spec.model, layer);
  const Located<Ticks> *measured = times ? &timeOf(*times, pass) : nullptr;
  if (measured && measured->given) {
    for (const PartCost &part : costs)
      row.work += part.in(pass);
    row.time = measured->value;
    model.costs.push_back(row);
    return row.time;
  }
  for (const PartCost &part : costs) {
    row.kind = kCostKinds[static_cast<unsigned>(part.kind)];
    row.work = part.in(pass);
    row.time = clock.ticks(row.work);
    row.bound =
        clock.boundByBytes(row.work) ? CostBound::Bytes : CostBound::Flops;
    if (row.work.any())
      model.costs.push_back(row);
  }
  row.kind = kMessages;
  row.work = {0, exchange.bytes};
  row.time = clock.ticks(exchange);
  row.bound = CostBound::Link;
  if (exchange.bytes != 0)
    model.costs.push_back(row);
  return std::min(clock.ticks(costs, pass) + row.time, kMaxTicks + 1);
}

/// The attention matrix is part of the published count where it is stored.
void Builder::addSizes(const Layer &layer, std::string_view name, Wide count) {
  SizeRow row{.layer = name,
              .layers = static_cast<uint32_t>(count),
              .parameters = layer.held.dense + layer.held.experts,
              .saved = layer.activation};
  if (layer.kind == LayerKind::Block) {
    Wide matrix = x.flash ? 0 : 5 * x.tokens * x.heads * x.s / x.t;
    Wide each = x.sequenceParallel ? 34 : 10 * x.t + 24;
    row.publishedParameters = toCount(12 * x.h * x.h / x.t);
    row.publishedSaved = toBytes(x.tokens * x.h * each / x.t + matrix);
  }
  model.sizes.push_back(row);
}

/// Adds `count` copies of a layer, of which nothing but the times is missing.
void Builder::add(Layer layer, std::string_view name, const Parts &costs,
                  const Exchange &forward, const Exchange &backward,
                  Wide count) {
  if (count == 0)
    return;
  addSizes(layer, name, count);
  layer.name = name;
  layer.forward = time(name, count, CostPass::Forward, costs, forward);
  layer.backwardInput =
      time(name, count, CostPass::BackwardInput, costs, backward);
  layer.backwardWeight = time(name, count, CostPass::BackwardWeight, costs, {});
  const LayerTimes *measured = measuredTimes(spec.model, name);
  bool given = measured && measured->recompute.given;
  layer.recomputeFull = given ? measured->recompute.value : layer.forward;
  model.layers.insert(model.layers.end(), static_cast<size_t>(count), layer);
}

void Builder::addEmbedding() {
  Layer layer;
  layer.kind = LayerKind::Embedding;
  setParameters(layer, embeddingParts(x), x);
  layer.output = boundaryBytes(x);
  add(layer, "embedding", embeddingCosts(x, model.gradientBytes), allReduce(x),
      {}, 1);
}

void Builder::addBlocks(std::string_view name, LayerKind kind,
                        const LayerParts &parts, bool withExperts, Wide count) {
  Layer layer;
  layer.kind = kind;
  setParameters(layer, parts, x);
  setBlockBytes(layer, x, withExperts);
  if (!x.flash)
    layer.recomputeSelective = clock.ticks(scoresWork(x));
  Parts costs = blockCosts(x, parts, withExperts, model.gradientBytes);
  add(std::move(layer), name, costs, blockExchange(x, withExperts, false),
      blockExchange(x, withExperts, true), count);
}

/// Final norm, projection to the vocabulary, cross entropy. Tied embeddings
/// count with the embedding.
void Builder::addHead() {
  Layer layer;
  layer.kind = LayerKind::Head;
  setParameters(layer, headParts(x), x);
  setHeadBytes(layer, x);
  add(layer, "head", headCosts(x, model.gradientBytes), {},
      allReduce(x) * (x.mtp + 1), 1);
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

/// Of data_parallel and ZeRO only what the plan leaves to the module.
void describeGroup(const PipelineSpec &pipeline, Bytes gradientBytes,
                   Lines &lines) {
  namespace keys = stagekeys;
  lines.variant(keys::kTensorParallel, pipeline.tensorParallel, 1);
  lines.variant(keys::kSequenceParallel, pipeline.sequenceParallel);
  lines.variant(keys::kContextParallel, pipeline.contextParallel, 1);
  lines.variant(keys::kExpertParallel, pipeline.expertParallel, 1);
  if (replicasOf(pipeline, gradientBytes) != pipeline.dataParallel &&
      pipeline.zero == 0) // else that is what keeps it out of the plan
    lines.number(keys::kDataParallel, pipeline.dataParallel);
  const bool hasCopies =
      uint64_t(pipeline.dataParallel) * pipeline.contextParallel > 1;
  if (hasCopies && optimizerPartsOf(pipeline, gradientBytes) == 1)
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
  setStateBytes(spec, model);
  Builder(spec, model).addLayers();
  for (Layer &layer : model.layers)
    layer.location = transformer.where;
  model.description = describe(spec, model.gradientBytes);
}

Bytes normBytes(const TransformerSpec &transformer) {
  constexpr Bytes kBlock = 12, kEnds = 5;
  return (kEnds + kBlock * transformer.layers.value) * sizeof(double);
}

} // namespace sluice
