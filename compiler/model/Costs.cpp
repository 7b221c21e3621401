//===- compiler/model/Costs.cpp - Operations and bytes, kind by kind ------===//
//
// h hidden, f ffn, V vocabulary, s sequence, T tokens of a microbatch on one
// device of the context group, t tensor_parallel, c context_parallel, e bytes
// of a number, g bytes of a gradient; q and v the numbers of all heads' queries
// and values together, k those of a device's keys and values (all three h
// without variants and with t = 1). Numbers of a token that tensor parallelism
// leaves whole are those of T' tokens: T / t with sequence parallelism, else T.
//
// Operations are those of products of matrices (Qi et al., arXiv 2401.10241,
// table 1, with the half of the attention matrix that causality leaves), a
// multiplication and an addition being two: 2 T in out for a matrix, as often
// for each of its gradients; T s (q + v) for attention, twice that backward,
// and none for weights. Of a matrix that tensor parallelism divides, in and out
// are what the device holds; one that it does not divide has T' tokens.
//
// Bytes moved: every kernel reads each of its inputs once from the device's
// memory and writes its output once; what a cache spares or a tile costs again
// is not counted, nor are vectors (norms, biases). Kernels are:
//   a matrix of n numbers, in -> out:  forward and backward input
//     e (n + T in + T out); backward weight e (T in + T out) + 2 g n, as the
//     gradient is added to. Of experts all that the device has are used;
//   attention that never stores the matrix (Dao et al., arXiv 2205.14135):
//     forward e (T (q + v) + c T k), backward e (T (2q + 2v) + 2 c T k): it
//     reads queries, keys, values, output and its gradient and writes three
//     gradients. One that stores it, M = T s a / t numbers, besides 4 e M
//     forward (scores; softmax twice; product) and 7 e M backward (gradient of
//     the product, and its other operand; softmax three times; two products);
//     with dropout (2e + 1) M more each way. What selective recomputation makes
//     again is T s q / t operations, and all forward but the product's read of
//     M, of the values, and its output;
//   elementwise, numbers forward / backward: a norm of h 2 / 3 per T' token, a
//     sum of residuals 3 / 3 (two a block), dropout e + e bytes and one of its
//     mask (two a block), an activation function 2f / 3f, gated 3f / 5f, rotary
//     positions twice the queries and keys each way, copies of a token to topk
//     experts and their sum 2 + 2 topk times h each way;
//   embedding: forward reads and writes h numbers a token, backward weight
//     reads h and adds h; learned positions are read and added to besides;
//   loss: forward reads the scores and writes probabilities, backward reads
//     these and writes gradients, V / t numbers each.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Costs.h"

#include <algorithm>
#include <cmath>

namespace sluice {

namespace {

constexpr Ticks kTooLong = kMaxTicks + 1;

/// Gathers the costs of one layer by kind.
class Gathered {
public:
  explicit Gathered(const Shape &shape, Bytes gradientBytes)
      : x(shape), g(gradientBytes) {}

  void matrix(const Matrix &m, CostKind kind);
  void attention();
  /// Numbers per token in whole and divided tokens, read and written.
  void elementwise(Wide tokens, Wide forward, Wide backward) {
    PartCost &part = of(CostKind::Elementwise);
    part.forward.bytes += x.e * tokens * forward;
    part.backwardInput.bytes += x.e * tokens * backward;
  }
  void norms(Wide width) { elementwise(whole(), 2 * width, 3 * width); }
  void activation(Wide ffn) {
    elementwise(x.tokens, (x.gated ? 3 : 2) * ffn, (x.gated ? 5 : 3) * ffn);
  }
  PartCost &of(CostKind kind) { return parts[static_cast<unsigned>(kind)]; }
  Wide whole() const { return x.tokens / x.wholeBy(); }

  std::vector<PartCost> take();

private:
  const Shape &x;
  Wide g;
  PartCost parts[kCostKindCount];
};

void Gathered::matrix(const Matrix &m, CostKind kind) {
  Wide tokens = (m.split == Split::None ? whole() : x.tokens) * m.active;
  auto [in, out] = heldSides(m, x);
  Wide numbers = in * out * (m.expert ? m.count / x.ep : m.count);
  Wide moved = x.e * tokens * (in + out);
  Wide flops = 2 * tokens * in * out;
  PartCost &part = of(kind);
  part.forward += Work{flops, moved + x.e * numbers};
  part.backwardInput += Work{flops, moved + x.e * numbers};
  part.backwardWeight += Work{flops, moved + 2 * g * numbers};
}

void Gathered::attention() {
  Wide queries = x.queries() / x.t, values = x.attended() / x.t;
  Wide keys =
      x.c * (x.kvRank ? queries + values : 2 * x.deviceKvHeads() * x.headDim);
  PartCost &part = of(CostKind::Attention);
  Wide flops = x.tokens * x.s * (x.queries() + x.attended()) / x.t;
  Wide once = x.e * x.tokens * (queries + values + keys);
  part.forward += Work{flops, once};
  part.backwardInput += Work{2 * flops, 2 * once};
  if (x.flash)
    return;
  Wide matrix = x.tokens * (x.heads / x.t) * x.s;
  Wide dropout = x.dropout ? 2 * x.e + 1 : 0;
  part.forward.bytes += matrix * (4 * x.e + dropout);
  part.backwardInput.bytes += matrix * (7 * x.e + dropout);
}

std::vector<PartCost> Gathered::take() {
  std::vector<PartCost> some;
  for (unsigned kind = 0; kind < kCostKindCount; ++kind) {
    parts[kind].kind = static_cast<CostKind>(kind);
    if (parts[kind].any())
      some.push_back(parts[kind]);
  }
  return some;
}

/// Norms over heads or ranks, and rotary positions.
void addHeadWise(const Shape &x, Gathered &costs) {
  Wide queries = x.queries() / x.t, keys = x.deviceKvHeads() * x.headDim;
  if (x.kvRank) {
    costs.norms(x.qRank + x.kvRank);
    Wide turned = x.heads / x.t * x.rope + x.rope;
    costs.elementwise(x.tokens, 2 * turned, 2 * turned);
    return;
  }
  if (x.qkNorm)
    costs.elementwise(x.tokens, 2 * (queries + keys), 3 * (queries + keys));
  if (x.rotary)
    costs.elementwise(x.tokens, 2 * (queries + keys), 2 * (queries + keys));
}

void addDropout(const Shape &x, Gathered &costs) {
  Wide bytes = x.dropout ? 2 * costs.whole() * x.h * (2 * x.e + 1) : 0;
  costs.of(CostKind::Elementwise).forward.bytes += bytes;
  costs.of(CostKind::Elementwise).backwardInput.bytes += bytes;
}

} // namespace

std::vector<PartCost> embeddingCosts(const Shape &x, Bytes gradientBytes) {
  Gathered costs(x, gradientBytes);
  Wide numbers = x.tokens * x.h, tables = x.learned ? 2 : 1;
  PartCost &part = costs.of(CostKind::Embedding);
  part.forward.bytes = x.e * numbers * (tables + 1);
  part.backwardWeight.bytes = numbers * tables * (x.e + 2 * gradientBytes);
  if (x.embedNorm)
    costs.norms(x.h);
  return costs.take();
}

std::vector<PartCost> blockCosts(const Shape &x, const LayerParts &parts,
                                 bool withExperts, Bytes gradientBytes) {
  Gathered costs(x, gradientBytes);
  for (const Matrix &m : parts.matrices)
    costs.matrix(m, m.kind);
  costs.attention();
  addHeadWise(x, costs);
  for (Wide i = 0; i < parts.wideNorms; ++i)
    costs.norms(x.h);
  costs.elementwise(costs.whole(), 6 * x.h, 6 * x.h);
  addDropout(x, costs);
  if (!withExperts) {
    costs.activation(x.f / x.t);
  } else {
    costs.activation((x.topk + x.shared) * x.moeFfn / x.t);
    Wide copies = (2 + 2 * x.topk) * x.h;
    costs.elementwise(costs.whole(), copies, copies);
  }
  return costs.take();
}

std::vector<PartCost> headCosts(const Shape &x, Bytes gradientBytes) {
  Gathered costs(x, gradientBytes);
  Wide scores = (x.vocab + x.t - 1) / x.t;
  for (Wide i = 0; i <= x.mtp; ++i) {
    costs.matrix(
        {.in = x.h, .out = x.vocab, .split = Split::Out, .parts = x.vocab},
        CostKind::Head);
    costs.norms(x.h);
    PartCost &loss = costs.of(CostKind::Loss);
    loss.forward.bytes += 2 * x.e * x.tokens * scores;
    loss.backwardInput.bytes += 2 * x.e * x.tokens * scores;
  }
  return costs.take();
}

Work scoresWork(const Shape &x) {
  Wide queries = x.queries() / x.t;
  Wide keys = x.kvRank ? queries : x.deviceKvHeads() * x.headDim;
  Wide matrix = x.tokens * (x.heads / x.t) * x.s;
  return {x.tokens * x.s * x.queries() / x.t,
          x.e * x.tokens * (queries + x.c * keys) +
              matrix * (3 * x.e + (x.dropout ? 2 * x.e + 1 : 0))};
}

Wide forwardFlops(const std::vector<PartCost> &parts) {
  Wide flops = 0;
  for (const PartCost &part : parts)
    flops += part.forward.flops;
  return flops;
}

//===----------------------------------------------------------------------===//
// Clock
//===----------------------------------------------------------------------===//

Clock::Clock(const ClusterSpec &cluster, Wide flopsOfUnit)
    : unitFlops(std::max<Wide>(flopsOfUnit, 1)) {
  if (cluster.device && cluster.device->flops.given) {
    flopsPerSecond =
        cluster.device->flops.value * cluster.device->efficiency.value;
    bytesPerSecond = static_cast<double>(cluster.device->bandwidth.value);
  }
  if (cluster.groupLink)
    link = {cluster.groupLink->latency, cluster.groupLink->bandwidth};
}

bool Clock::boundByBytes(const Work &work) const {
  return bytesPerSecond > 0 &&
         static_cast<double>(work.bytes) / bytesPerSecond >
             static_cast<double>(work.flops) / flopsPerSecond;
}

double Clock::seconds(const Work &work) const {
  return boundByBytes(work) ? static_cast<double>(work.bytes) / bytesPerSecond
                            : static_cast<double>(work.flops) / flopsPerSecond;
}

static Ticks ticksOf(double seconds) {
  double value = seconds * 1e12;
  return value < static_cast<double>(kMaxTicks)
             ? static_cast<Ticks>(std::llround(value))
             : kTooLong;
}

Ticks Clock::ticks(const Work &work) const {
  if (flopsPerSecond > 0)
    return ticksOf(seconds(work));
  Wide scale = ticksPer(TimeUnit::Unit);
  Wide value = (work.flops * scale + unitFlops / 2) / unitFlops;
  return static_cast<Ticks>(std::min<Wide>(value, kTooLong));
}

Ticks Clock::ticks(const std::vector<PartCost> &parts, CostPass pass) const {
  Work all;
  double sum = 0;
  for (const PartCost &part : parts) {
    all += part.in(pass);
    sum += bytesPerSecond > 0 ? seconds(part.in(pass)) : 0;
  }
  return bytesPerSecond > 0 ? ticksOf(sum) : ticks(all);
}

Ticks Clock::ticks(const Exchange &exchange) const {
  TimeUnit unit = flopsPerSecond > 0 ? TimeUnit::Seconds : TimeUnit::Unit;
  Wide sum = Wide(link.latency) * exchange.steps +
             link.occupancy(toBytes(exchange.bytes), unit);
  return static_cast<Ticks>(std::min<Wide>(sum, kTooLong));
}

} // namespace sluice
