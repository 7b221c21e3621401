#include "ir/verify/Flow.h"

#include <algorithm>
#include <cstring>

namespace sluice::verify {
RankFlow::RankFlow(const PlanIndex &of, Report &to) : index(of), report(to) {
  stateOf.assign((of.plan.stages.size() + 1) * kFirstValue, {kNone, kNone});
  for (const Stage &stage : of.plan.stages) {
    auto &needed = stateNeeded.emplace_back();
    unsigned kinds = 0;
    for (unsigned kind = 0; kind < kFirstValue; ++kind) {
      needed[kind] = stateBytes(stage, static_cast<BufferKind>(kind));
      kinds |= needed[kind] != 0 ? 1u << kind : 0;
    }
    stateKinds.push_back(static_cast<uint8_t>(kinds));
  }
}

void RankFlow::prepare() {
  clocks.reset(list);
  content.assign(list.bufferCount, {});
  lastGradients.clear();
  shared.clear();
  bytes.reset({list.buffers, list.bufferCount});
}

/// What lives for the whole run shares its bytes with nothing. A stage has one
/// buffer of each kind, and all those without a workspace of their own have one
/// together: the runtime finds them by that.
void RankFlow::checkPersistent() {
  for (Id b = 0; b < list.bufferCount; ++b) {
    const Buffer &buffer = list.buffers[b];
    if (!isPersistent(buffer.kind))
      continue;
    bytes.write(b, [&](Id other) {
      if (report.admits(FindingKind::Lifetime))
        report.error(FindingKind::Lifetime, {},
                     "on rank " + std::to_string(rank) + " " + bufferName(b) +
                         " overlaps " + bufferName(other) +
                         ", both live for the whole run");
    });
    content[b].alive = true;
    size_t stages = index.plan.stages.size();
    auto &[owner, known] =
        stateOf[std::min<size_t>(buffer.stage, stages) * kFirstValue +
                static_cast<unsigned>(buffer.kind)];
    if (owner == rank && report.admits(FindingKind::Malformed))
      report.error(FindingKind::Malformed, {},
                   "rank " + std::to_string(rank) + " has both " +
                       bufferName(known) + " and " + bufferName(b) +
                       (buffer.stage < stages
                            ? " for stage " + std::to_string(buffer.stage)
                            : " of no stage"));
    owner = rank;
    known = b;
  }
}

//===----------------------------------------------------------------------===//
// Uses of buffers
//===----------------------------------------------------------------------===//

/// allEnded() of a buffer with a row.
bool RankFlow::sharedEnded(const Content &of) const {
  const uint32_t *lastUse = &shared[size_t(of.lastUse) * clocks.width()];
  for (size_t s = 0; s < clocks.width(); ++s)
    if (lastUse[s] > clocks[s])
      return false;
  return true;
}

/// The operation that allEnded() found; for texts only.
uint32_t RankFlow::notEnded(const Content &of) const {
  if (!of.isShared)
    return of.lastUse - 1;
  const uint32_t *lastUse = &shared[size_t(of.lastUse) * clocks.width()];
  size_t s = 0;
  while (lastUse[s] <= clocks[s])
    ++s;
  return lastUse[s] - 1;
}

/// Notes a use in the buffer's row, which it gets if it has none.
void RankFlow::share(uint32_t at, Content &of) {
  if (!of.isShared) {
    auto row = static_cast<uint32_t>(shared.size() / clocks.width());
    shared.resize(shared.size() + clocks.width(), 0);
    shared[row * clocks.width() + of.useStream] = of.lastUse;
    of.lastUse = row;
    of.isShared = true;
  }
  shared[size_t(of.lastUse) * clocks.width() + list.ops[at].stream] = at + 1;
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

/// Whether a stage passes values of `kind` on to another: what they are is an
/// edge.
static constexpr bool isPassedOn(BufferKind kind) {
  return kind == BufferKind::Activation || kind == BufferKind::Gradient;
}

/// Whether the data of an edge is all that an operation touches. What carries
/// state is held to its rights like what computes.
static bool carriesEdge(Op op) {
  return info(op).payload == Payload::Activation ||
         info(op).payload == Payload::Gradient;
}

/// A message has one operand, of the right kind: its structure was checked.
inline void RankFlow::checkMessage(uint32_t at) {
  const PlanOp &op = list.ops[at];
  Id buffer = list.operands[op.firstOperand].buffer;
  Id edge = matches[at].edge;
  Id what = edge == kNone ? kAny : edge;
  if (isSend(op.op))
    readValue(at, buffer, Access::Read, what);
  else
    writeValue(at, buffer, what);
}

inline void RankFlow::checkCompute(uint32_t at) {
  const PlanOp &op = list.ops[at];
  const Rights &allowed = rights(op.op, isPartitioned(op.stage));
  bool forward =
      allowed.accesses[static_cast<unsigned>(BufferKind::Activation)] != 0;
  Uses uses(op, at, allowed,
            (forward ? index.incoming : index.gradientIn).of(op.stage),
            (forward ? index.outgoing : index.gradientOut).of(op.stage));
  for (Operand operand : list.operandsAt(at))
    use(uses, operand);
  checkUses(uses);
}

inline void RankFlow::use(Uses &uses, Operand operand) {
  Id buffer = operand.buffer;
  BufferKind kind = list.buffers[buffer].kind;
  unsigned allowed = uses.rights.accesses[static_cast<unsigned>(kind)];
  auto access = static_cast<Access>(operand.access);
  if (!(allowed & bit(access)))
    return explainRights(uses.at, operand);
  if (isUsedBy(uses.at, content[buffer]))
    return explainTwice(uses.at, buffer);
  if (isPersistent(kind))
    useState(uses, buffer, access);
  else
    useValue(uses, buffer, access);
}

inline void RankFlow::useState(Uses &uses, Id buffer, Access access) {
  const Buffer &used = list.buffers[buffer];
  Content &state = content[buffer];
  auto kind = static_cast<unsigned>(used.kind);
  bool isRead = access == Access::Read;
  if (!isOwnState(uses.op.stage, used))
    return useOtherState(uses, buffer, access);
  bool ordered = allEnded(state) ||
                 (isRead && (state.writer == kNone || hasEnded(state.writer)));
  if (!ordered || used.bytes < stateNeeded[uses.op.stage][kind])
    explainState(uses.at, buffer, access);
  uses.state |= bit(used.kind);
  touch(uses.at, state);
  if (!isRead)
    state.writer = uses.at;
}

/// The one state of another stage that an operation may use: a step, or what
/// computes norms for it, reads the gradients of the stage that its own is tied
/// to, once they are summed. Anything else is not what the runtime would work
/// on.
void RankFlow::useOtherState(Uses &uses, Id buffer, Access access) {
  const Buffer &used = list.buffers[buffer];
  Content &state = content[buffer];
  bool isTied = isTiedPart(uses.op, used, access);
  if (!isTied || used.bytes < index.plan.stages[used.stage].bytes.tied ||
      (state.writer != kNone && !hasEnded(state.writer)))
    explainState(uses.at, buffer, access);
  else if (uint32_t added = lastGradient(used.stage);
           added == kNone || added > uses.at)
    explainUnsummed(uses.at, used.stage);
  uses.tied += isTied;
  uses.state |= isTied ? 0 : bit(used.kind);
  touch(uses.at, state);
}

/// Position of the last operation of the rank that adds to the gradients of
/// `stage`, kNone if none does. Linear in the list, once a rank.
uint32_t RankFlow::lastGradient(Id stage) {
  if (lastGradients.empty()) {
    lastGradients.assign(index.plan.stages.size(), kNone);
    for (uint32_t at = 0; at < list.opCount; ++at)
      if (list.ops[at].op != Op::OptimizerStep &&
          rights(list.ops[at].op, isPartitioned(list.ops[at].stage))
                  .accesses[static_cast<unsigned>(BufferKind::Gradients)] &
              kU)
        lastGradients[list.ops[at].stage] = at;
  }
  return lastGradients[stage];
}

/// Values are expected in order of their edges; one read too many is counted
/// at the end.
inline void RankFlow::useValue(Uses &uses, Id buffer, Access access) {
  BufferKind kind = list.buffers[buffer].kind;
  bool isWrite = access == Access::Write;
  uint32_t nth = (isWrite ? uses.written : uses.read)[valueKind(kind)]++;
  Id what = uses.op.stage;
  if (kind == BufferKind::Saved || kind == BufferKind::Kept) {
    uses.stored += list.buffers[buffer].bytes;
    if (kind == BufferKind::Saved)
      uses.saved = buffer;
  } else if (kind == BufferKind::Offloaded) {
    uses.host = buffer;
  } else if (isPassedOn(kind)) {
    std::span<const Id> edges = isWrite ? uses.outgoing : uses.incoming;
    what = nth < edges.size() ? edges[nth] : kNone;
  }
  if (isWrite)
    writeValue(uses.at, buffer, what);
  else if (what != kNone)
    readValue(uses.at, buffer, access, what);
}

/// Bytes that a value needs by itself; 0 for what is counted together.
inline Bytes RankFlow::wantedBytes(BufferKind kind, Id what) const {
  if (isPassedOn(kind))
    return what < index.plan.edges.size() ? index.plan.edges[what].bytes : 0;
  if (kind == BufferKind::CopyGradients || kind == BufferKind::WholeGradients)
    return index.plan.stages[what].bytes.gradients;
  if (kind == BufferKind::Checkpoint)
    return index.plan.stages[what].bytes.checkpoint;
  return kind == BufferKind::TiedGradients ? index.plan.stages[what].bytes.tied
                                           : 0;
}

[[gnu::always_inline]] inline void RankFlow::readValue(uint32_t at, Id buffer,
                                                       Access access, Id what) {
  const PlanOp &op = list.ops[at];
  Content &value = content[buffer];
  // If all uses have ended, so has the writing.
  if (!value.alive || value.what != what || value.microbatch != op.microbatch ||
      !allEnded(value) || op.op == Op::BackwardWeight)
    explainRead(at, buffer, access, what);
  touch(at, value);
  if (access == Access::Update)
    value.writer = at;
}

[[gnu::always_inline]] inline void RankFlow::writeValue(uint32_t at, Id buffer,
                                                        Id what) {
  const PlanOp &op = list.ops[at];
  const Buffer &used = list.buffers[buffer];
  Content &value = content[buffer];
  if (Bytes wanted = wantedBytes(used.kind, what); used.bytes < wanted)
    explainSmall(at, buffer, wanted);
  if (!allEnded(value))
    explainBusy(at, buffer, buffer);
  if (!value.alive)
    takeBytes(at, buffer);
  value.what = what;
  value.microbatch = op.microbatch;
  value.writer = at;
  value.alive = true;
  touch(at, value);
}

/// Gives the bytes of `buffer` to what operation `at` writes.
void RankFlow::takeBytes(uint32_t at, Id buffer) {
  bytes.write(buffer, [&](Id other) {
    Content &lost = content[other];
    if (isPersistent(list.buffers[other].kind))
      return explainOverwrite(at, buffer, other);
    if (!lost.alive && lost.writer == at)
      return;
    // One that lost other bytes before may still be in use.
    if (!allEnded(lost))
      explainBusy(at, buffer, other);
    lost.alive = false;
    lost.writer = at; // who took its bytes
  });
}

//===----------------------------------------------------------------------===//
// Whole operations
//===----------------------------------------------------------------------===//

inline void RankFlow::checkUses(const Uses &uses) {
  unsigned missing =
      uses.rights.state & stateKinds[uses.op.stage] & ~uses.state;
  if (missing != 0)
    explainMissing(uses.at, missing);
  checkLists(uses);
}

inline void RankFlow::checkCount(const Uses &uses, BufferKind kind, bool isRead,
                                 size_t wanted) {
  uint32_t found = (isRead ? uses.read : uses.written)[valueKind(kind)];
  if (found != wanted)
    explainCount(uses.at, kind, isRead, found, wanted);
}

inline void RankFlow::checkStored(const Uses &uses, Bytes wanted) {
  if (uses.stored < wanted)
    explainStored(uses.at, uses.stored, wanted);
}

/// An operation reads and writes one buffer per edge, in order of the edges.
inline void RankFlow::checkPassedOn(const Uses &uses, BufferKind kind) {
  checkCount(uses, kind, true, uses.incoming.size());
  checkCount(uses, kind, false, uses.outgoing.size());
}

/// What a forward or a recompute of a trained stage leaves, and what the latter
/// does it from: a forward all, or by the stage's policy what is kept or a
/// checkpoint, of which a recompute makes the rest. All is one buffer, or two:
/// what is needed no longer than by I, and what W needs.
inline void RankFlow::checkLeft(const Uses &uses) {
  const Stage &stage = index.plan.stages[uses.op.stage];
  bool forward = uses.op.op == Op::Forward;
  bool none = stage.recomputePolicy == RecomputePolicy::None;
  bool full = stage.recomputePolicy == RecomputePolicy::Full;
  bool makesSaved = forward == none, makesKept = forward != full;
  uint32_t kept = uses.written[valueKind(BufferKind::Kept)];
  checkCount(uses, BufferKind::Saved, false, makesSaved);
  if (kept > 1 || !makesSaved || !makesKept)
    checkCount(uses, BufferKind::Kept, false, makesKept);
  checkCount(uses, BufferKind::Checkpoint, false, forward && full);
  checkCount(uses, BufferKind::Checkpoint, true, !forward && full);
  checkCount(uses, BufferKind::Kept, true, !forward && !full);
  if (uses.saved != kNone)
    content[uses.saved].leftKept = kept != 0 || !makesKept;
  checkStored(uses, makesSaved  ? stage.bytes.activation
                    : makesKept ? stage.bytes.keptForWeight
                                : 0);
}

/// A backward by inputs finds all that has been left for it.
inline void RankFlow::checkFound(const Uses &uses) {
  checkCount(uses, BufferKind::Saved, true, 1);
  checkCount(uses, BufferKind::Kept, true,
             uses.op.op == Op::BackwardInput ||
                 (uses.saved != kNone && content[uses.saved].leftKept));
  checkStored(uses, index.plan.stages[uses.op.stage].bytes.activation);
}

/// A copy moves all that a forward leaves, untouched, in the same pieces out
/// and back.
inline void RankFlow::checkMoved(const Uses &uses) {
  const Stage &stage = index.plan.stages[uses.op.stage];
  bool out = uses.op.op == Op::Offload;
  bool none = stage.recomputePolicy == RecomputePolicy::None;
  bool full = stage.recomputePolicy == RecomputePolicy::Full;
  uint32_t kept = (out ? uses.read : uses.written)[valueKind(BufferKind::Kept)];
  checkCount(uses, BufferKind::Saved, out, none);
  checkCount(uses, BufferKind::Checkpoint, out, full);
  if (!none)
    checkCount(uses, BufferKind::Kept, out, !full);
  else if (out)
    checkCount(uses, BufferKind::Kept, out,
               uses.saved != kNone && content[uses.saved].leftKept);
  else if (uses.saved != kNone)
    content[uses.saved].leftKept = kept != 0;
  checkCount(uses, BufferKind::Offloaded, !out, 1);
  checkStored(uses, none    ? stage.bytes.activation
                    : !full ? stage.bytes.keptForWeight
                            : 0);
  Bytes moved = 0;
  for (Operand used : list.operandsAt(uses.at)) {
    if (info(list.buffers[used.buffer].kind).bufferClass != BufferClass::Value)
      continue;
    moved += list.buffers[used.buffer].bytes;
    uint32_t writer = content[used.buffer].writer;
    if (out && writer != kNone && content[used.buffer].alive &&
        list.ops[writer].op != Op::Forward)
      explainChanged(uses.at, used.buffer);
  }
  if (uses.host != kNone && list.buffers[uses.host].bytes < moved)
    explainSmall(uses.at, uses.host, moved);
  if (!out)
    checkBroughtBack(uses);
}

/// What comes back is cut as it was when it went.
inline void RankFlow::checkBroughtBack(const Uses &uses) {
  if (uses.host == kNone || !content[uses.host].alive)
    return; // told already
  uint32_t moved = content[uses.host].writer;
  auto pieces = [&](uint32_t at) {
    std::vector<std::pair<BufferKind, Bytes>> found;
    for (Operand used : list.operandsAt(at))
      if (const Buffer &of = list.buffers[used.buffer];
          info(of.kind).bufferClass == BufferClass::Value)
        found.emplace_back(of.kind, of.bytes);
    return found;
  };
  if (pieces(moved) != pieces(uses.at))
    explainPieces(uses.at, moved);
}

/// Of a stage that keeps a part of its gradients: the whole ones of a
/// microbatch, which I begins and W goes on with, or B does all of.
inline void RankFlow::checkWhole(const Uses &uses) {
  const bool needs = isPartitioned(uses.op.stage);
  const bool begins =
      uses.op.op == Op::Backward || uses.op.op == Op::BackwardInput;
  checkCount(uses, BufferKind::WholeGradients, !begins, needs);
}

/// How many buffers of each kind an operation needs, and how many bytes.
inline void RankFlow::checkLists(const Uses &uses) {
  const PlanOp &op = uses.op;
  const Stage &stage = index.plan.stages[op.stage];
  switch (op.op) {
  case Op::Forward:
    checkPassedOn(uses, BufferKind::Activation);
    if (stage.backward)
      checkLeft(uses);
    return;
  case Op::Recompute: // one that is too many is told elsewhere
    if (stage.backward && stage.recomputePolicy != RecomputePolicy::None)
      checkLeft(uses);
    return;
  case Op::Backward:
  case Op::BackwardInput:
    checkPassedOn(uses, BufferKind::Gradient);
    checkWhole(uses);
    return checkFound(uses);
  case Op::ReduceScatterMicrobatch:
    return checkWhole(uses);
  case Op::BackwardWeight:
    checkWhole(uses);
    checkCount(uses, BufferKind::Kept, true, 1);
    return checkStored(uses, stage.bytes.keptForWeight);
  case Op::SendForward:
  case Op::RecvForward:
  case Op::SendBackward:
  case Op::RecvBackward:
  case Op::SendGradients:
  case Op::SendTied:
  case Op::AllReduceGradients:
  case Op::ReduceScatterGradients:
  case Op::AllGatherParameters:
  case Op::AllReduceNorms:
    return;
  case Op::NormGradients:
  case Op::OptimizerStep: {
    uint32_t wanted = stage.tiedTo == kNone ? 0 : 1;
    uint32_t parts =
        uses.tied + uses.read[valueKind(BufferKind::TiedGradients)];
    if (parts != wanted)
      explainCount(uses.at, BufferKind::TiedGradients, true, parts, wanted);
    return;
  }
  case Op::RecvGradients:
    return checkCount(uses, BufferKind::CopyGradients, false, 1);
  case Op::RecvTied:
    return checkCount(uses, BufferKind::TiedGradients, false, 1);
  case Op::Offload:
  case Op::Reload:
    return checkMoved(uses);
  case Op::AddGradients: // of the one other copy
    return checkCount(uses, BufferKind::CopyGradients, true, 1);
  }
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

void RankFlow::check(Id which) {
  rank = which;
  list = ListView(index.plan.ranks[which]);
  prepare();
  checkPersistent();
  matches = index.matches.data() + index.firstOp[rank];
  // The usual widths, whose loops need not count then.
  switch (clocks.width()) {
  case 4:
    return walk<4>();
  case 8:
    return walk<8>();
  default:
    return walk<0>();
  }
}

template <size_t Width> void RankFlow::walk() {
  for (uint32_t first = 0, end = 0; first < list.opCount; first = end) {
    end = list.unitEnd(first);
    clocks.startUnit<Width>(first, end);
    for (uint32_t at = first; at < end; ++at)
      if (carriesEdge(list.ops[at].op))
        checkMessage(at);
      else
        checkCompute(at);
    clocks.endUnit<Width>(first, end);
  }
}

void checkFlow(const PlanIndex &index, Report &report) {
  RankFlow flow(index, report);
  for (Id r = 0; r < index.plan.ranks.size(); ++r)
    flow.check(r);
}

} // namespace sluice::verify
