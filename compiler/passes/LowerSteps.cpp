//===- compiler/passes/LowerSteps.cpp - The end of a step in a plan -------===//
//
// What comes after the last computation: copies of a stage, replicas and tied
// stages exchange their gradients, norms are summed, steps are taken, and what
// each replica has stepped of the parameters is gathered; and the sum over
// replicas, which `lower` adds as early as it can.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/Lowering.h"

#include <algorithm>

namespace sluice {

/// The end of the step: copies of a stage exchange their gradients, each adds
/// the other's, and replicas sum what comes of it; tied stages get each
/// other's; then all take their steps, and replicas that take one of a part of
/// the parameters each gather the others'.
void Lowering::addSteps() {
  std::vector<uint32_t> lastCompute;
  for (const RankPlan &rank : plan.ranks)
    lastCompute.push_back(lastComputeOf(rank));
  auto forEach = [&](auto visit) {
    for (Id stage = 0; stage < graph.stages.size(); ++stage)
      for (size_t copy = 0; copy < copies[stage].size(); ++copy)
        if (graph.stages[stage].backward)
          visit(stage, copy);
  };
  forEach([&](Id stage, size_t copy) {
    StateBuffers &state = copies[stage][copy];
    if (graph.replicas == 1 || copies[stage].size() > 1)
      state.summed = lastCompute[state.rank];
    for (StateBuffers &other : copies[stage])
      if (other.rank != state.rank)
        sendGradients(stage, state, other);
  });
  forEach([&](Id stage, size_t copy) {
    if (copies[stage].size() > 1)
      addGradients(stage, copies[stage][copy]);
  });
  forEach([&](Id stage, size_t copy) {
    if (graph.replicas > 1 && copies[stage].size() > 1)
      reduceGradients(stage, kNone, copies[stage][copy]);
  });
  forEach([&](Id stage, size_t copy) {
    if (graph.stages[stage].tiedTo != kNone)
      takeTied(stage, copy);
  });
  forEach([&](Id stage, size_t copy) {
    if (copy == 0 && graph.stages[stage].bytes.norms != 0)
      addNorms(stage, copies[stage][copy]);
  });
  sumNorms();
  forEach([&](Id stage, size_t copy) {
    addStep(stage, copies[stage][copy]);
    if (graph.stages[stage].optimizerParts > 1)
      gatherParameters(stage, copies[stage][copy]);
  });
}

uint32_t Lowering::lastComputeOf(const RankPlan &rank) {
  auto at = static_cast<uint32_t>(rank.ops.size());
  while (at > 0 && !isCompute(rank.ops[at - 1].op))
    --at;
  return at - 1;
}

void Lowering::sendGradients(Id stage, StateBuffers &from, StateBuffers &to) {
  const Route &route = routeOf(from.rank, to.rank);
  from.sent = static_cast<uint32_t>(plan.ranks[from.rank].ops.size());
  beginOp(from.rank, Op::SendGradients, stage, kNone, route.sendStream)
      .channel = route.channel;
  waitFor(from.rank, from.summed);
  addOperand(from.rank, from.gradients, Access::Read);

  to.received = static_cast<uint32_t>(plan.ranks[to.rank].ops.size());
  beginOp(to.rank, Op::RecvGradients, stage, kNone, route.receiveStream)
      .channel = route.channel;
  to.copyGradients = addBuffer(to.rank, stage, BufferKind::CopyGradients,
                               graph.stages[stage].bytes.gradients);
  addOperand(to.rank, to.copyGradients, Access::Write);
}

void Lowering::addGradients(Id stage, StateBuffers &state) {
  state.summed = static_cast<uint32_t>(plan.ranks[state.rank].ops.size());
  beginOp(state.rank, Op::AddGradients, stage, kNone, kComputeStream);
  waitFor(state.rank, state.sent);
  waitFor(state.rank, state.received);
  addOperand(state.rank, state.gradients, Access::Update);
  addOperand(state.rank, state.copyGradients, Access::Read);
}

/// What joins a rank of all replicas.
const Lowering::Reduction &Lowering::reductionOf(Id rank) {
  Reduction &path = states[rank].reduction;
  if (path.collective == kNone) {
    Link link = network.betweenReplicas();
    path.collective = static_cast<Id>(plan.collectives.size());
    path.stream = addStream(rank, "replicas");
    plan.collectives.push_back({kNone, // known when all channels are
                                {rank},
                                link.latency,
                                link.bandwidth,
                                /*overReplicas=*/true});
  }
  return path;
}

/// Sums the gradients of a stage over replicas, once its rank has summed them;
/// of a part of them where the step needs no other. Where the rank keeps that
/// part alone, those of one microbatch.
void Lowering::reduceGradients(Id stage, Id microbatch, StateBuffers &state) {
  const Reduction &path = reductionOf(state.rank);
  auto at = static_cast<uint32_t>(plan.ranks[state.rank].ops.size());
  Op op = microbatch != kNone                     ? Op::ReduceScatterMicrobatch
          : graph.stages[stage].gradientParts > 1 ? Op::ReduceScatterGradients
                                                  : Op::AllReduceGradients;
  beginOp(state.rank, op, stage, microbatch, path.stream).channel =
      path.collective;
  waitFor(state.rank, state.summed);
  addOperand(state.rank, state.gradients, Access::Update);
  if (microbatch != kNone)
    addOperand(state.rank,
               bufferOfWhole[size_t(stage) * graph.microbatches + microbatch],
               Access::Update);
  state.summed = at;
}

/// Brings all replicas what each has stepped; the step stands last in the list.
void Lowering::gatherParameters(Id stage, const StateBuffers &state) {
  const Reduction &path = reductionOf(state.rank);
  auto step = static_cast<uint32_t>(plan.ranks[state.rank].ops.size() - 1);
  beginOp(state.rank, Op::AllGatherParameters, stage, kNone, path.stream)
      .channel = path.collective;
  waitFor(state.rank, step);
  addOperand(state.rank, state.parameters, Access::Update);
}

/// Brings a copy of a tied stage the gradients of the other stage: those of its
/// own rank, where that holds both.
void Lowering::takeTied(Id stage, size_t copy) {
  StateBuffers &to = copies[stage][copy];
  Id other = graph.stages[stage].tiedTo;
  llvm::SmallVector<StateBuffers, 1> &sources = copies[other];
  to.tiedReceived = kNone;
  for (const StateBuffers &source : sources)
    if (source.rank == to.rank) {
      to.tiedGradients = source.gradients;
      if (graph.replicas > 1)
        to.tiedReceived = source.summed;
      return;
    }
  const StateBuffers &from = sources[std::min(copy, sources.size() - 1)];
  const Route &route = routeOf(from.rank, to.rank);
  beginOp(from.rank, Op::SendTied, other, kNone, route.sendStream).channel =
      route.channel;
  waitFor(from.rank, from.summed);
  addOperand(from.rank, from.gradients, Access::Read);

  to.tiedReceived = static_cast<uint32_t>(plan.ranks[to.rank].ops.size());
  beginOp(to.rank, Op::RecvTied, stage, kNone, route.receiveStream).channel =
      route.channel;
  to.tiedGradients = addBuffer(to.rank, stage, BufferKind::TiedGradients,
                               graph.stages[stage].bytes.tied);
  addOperand(to.rank, to.tiedGradients, Access::Write);
}

/// Makes the operation begun last wait for all that goes into the gradients of
/// a stage.
void Lowering::takeGradients(Id stage, const StateBuffers &state) {
  if (graph.replicas > 1)
    waitFor(state.rank, state.summed);
  if (graph.stages[stage].tiedTo != kNone && state.tiedReceived != kNone)
    waitFor(state.rank, state.tiedReceived);
}

void Lowering::addTiedOperand(Id stage, const StateBuffers &state) {
  if (graph.stages[stage].tiedTo != kNone)
    addOperand(state.rank, state.tiedGradients, Access::Read);
}

/// Computes the norms of a stage, of which one copy is enough.
void Lowering::addNorms(Id stage, const StateBuffers &state) {
  RankState &rank = states[state.rank];
  rank.normed = static_cast<uint32_t>(plan.ranks[state.rank].ops.size());
  beginOp(state.rank, Op::NormGradients, stage, kNone, kComputeStream);
  takeGradients(stage, state);
  addOperand(state.rank, state.gradients, Access::Read);
  addOperand(state.rank, rank.norms, Access::Update);
  addTiedOperand(stage, state);
}

/// The slowest link between neighbours of a ring.
Link Lowering::slowestOf(llvm::ArrayRef<Id> ranks) const {
  Link slowest;
  for (size_t i = 0; ranks.size() > 1 && i < ranks.size(); ++i) {
    Link link = network.between(ranks[i], ranks[(i + 1) % ranks.size()]);
    slowest.latency = std::max(slowest.latency, link.latency);
    if (link.bandwidth != 0 &&
        (slowest.bandwidth == 0 || link.bandwidth < slowest.bandwidth))
      slowest.bandwidth = link.bandwidth;
  }
  return slowest;
}

/// Sums the norms of all ranks that take steps by them. The operation names the
/// first stage, whichever rank holds it: it is about all.
void Lowering::sumNorms() {
  std::vector<Id> ranks;
  for (Id rank = 0; rank < states.size(); ++rank)
    if (states[rank].norms != kNone)
      ranks.push_back(rank);
  if (ranks.empty())
    return;
  Link link = slowestOf(ranks);
  auto collective = static_cast<Id>(plan.collectives.size());
  plan.collectives.push_back({kNone, ranks, link.latency, link.bandwidth});
  for (Id rank : ranks) {
    RankState &state = states[rank];
    state.normsSummed = static_cast<uint32_t>(plan.ranks[rank].ops.size());
    beginOp(rank, Op::AllReduceNorms, 0, kNone, addStream(rank, "norms"))
        .channel = collective;
    if (state.normed != kNone)
      waitFor(rank, state.normed);
    addOperand(rank, state.norms, Access::Update);
  }
}

void Lowering::addStep(Id stage, const StateBuffers &state) {
  const RankState &rank = states[state.rank];
  beginOp(state.rank, Op::OptimizerStep, stage, kNone, kComputeStream);
  takeGradients(stage, state);
  if (rank.normsSummed != kNone)
    waitFor(state.rank, rank.normsSummed);
  addOperand(state.rank, state.parameters, Access::Update);
  addOperand(state.rank, state.gradients, Access::Read);
  addOperand(state.rank, state.optimizer, Access::Update);
  if (rank.norms != kNone)
    addOperand(state.rank, rank.norms, Access::Read);
  addTiedOperand(stage, state);
}

} // namespace sluice
