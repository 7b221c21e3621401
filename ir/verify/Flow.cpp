#include "ir/verify/Flow.h"
#include "ir/verify/Rights.h"

#include <algorithm>
#include <cstring>

namespace sluice::verify {
namespace {

/// A value that a mismatch has made unknown: no second finding follows from it.
constexpr Id kAny = kNone - 1;

constexpr bool isState(BufferKind kind) {
  return kind == BufferKind::Parameters || kind == BufferKind::Gradients ||
         kind == BufferKind::Optimizer;
}

/// Bytes of persistent `kind` that `stage` needs.
Bytes stateBytes(const Stage &stage, BufferKind kind) {
  switch (kind) {
  case BufferKind::Parameters:
    return stage.bytes.parameters;
  case BufferKind::Gradients:
    return stage.bytes.gradients;
  case BufferKind::Optimizer:
    return stage.bytes.optimizer;
  case BufferKind::Workspace:
    return stage.bytes.workspace;
  case BufferKind::Saved:
  case BufferKind::Kept:
  case BufferKind::Activation:
  case BufferKind::Gradient:
    return 0;
  }
  return 0;
}

constexpr std::string_view verb(Access access) {
  switch (access) {
  case Access::Read:
    return "reads";
  case Access::Write:
    return "writes";
  case Access::Update:
    return "updates";
  }
  return "uses";
}

} // namespace

RankFlow::RankFlow(const PlanIndex &of, Report &to) : index(of), report(to) {
  stateOf.assign(of.plan.stages.size() * 3, {kNone, kNone});
  for (const Stage &stage : of.plan.stages) {
    unsigned needed = 0;
    for (unsigned kind = 0; kind < kBufferKindCount; ++kind)
      if (stateBytes(stage, static_cast<BufferKind>(kind)) != 0)
        needed |= 1u << kind;
    stateNeeded.push_back(static_cast<uint8_t>(needed));
  }
}

void RankFlow::check(Id which) {
  rank = which;
  list = &index.plan.ranks[which];
  prepare();
  checkPersistent();
  Id begin = index.firstOp[rank];
  for (Id unit = index.firstUnit[rank]; unit < index.firstUnit[rank + 1];
       ++unit) {
    auto [first, end] = index.members(unit);
    startUnit(first - begin, end - begin);
    for (Id op = first; op < end; ++op)
      checkOp(op - begin);
    endUnit(first - begin, end - begin);
  }
}

void RankFlow::prepare() {
  uint8_t most = 0;
  for (const PlanOp &op : list->ops)
    most = std::max(most, op.stream);
  streams = (size_t(most) + kLanes) / kLanes * kLanes;
  clock.assign(streams, 0);
  nothing.assign(streams, 0);
  last.assign(streams, kNone);
  onStream.assign(streams, 0);
  ends.resize(list->ops.size() * streams);
  position.resize(list->ops.size());
  content.assign(list->buffers.size(), {kNone, kNone, kNone, false});
  touched.assign(list->buffers.size() * streams, 0);
  bytes.reset(list->buffers);
}

/// What lives for the whole run shares its bytes with nothing, and a stage has
/// one buffer of each kind of state.
void RankFlow::checkPersistent() {
  for (Id b = 0; b < list->buffers.size(); ++b) {
    const Buffer &buffer = list->buffers[b];
    if (!info(buffer.kind).persistent)
      continue;
    bytes.write(b, [&](Id other) {
      if (report.admits(FindingKind::Lifetime))
        report.error(FindingKind::Lifetime, {},
                     "on rank " + std::to_string(rank) + " " + bufferName(b) +
                         " overlaps " + bufferName(other) +
                         ", both live for the whole run");
    });
    content[b].alive = true;
    if (!isState(buffer.kind) || buffer.stage >= index.plan.stages.size())
      continue;
    auto &[owner, known] =
        stateOf[size_t(buffer.stage) * 3 + static_cast<unsigned>(buffer.kind)];
    if (owner == rank && report.admits(FindingKind::Malformed))
      report.error(FindingKind::Malformed, {},
                   "rank " + std::to_string(rank) + " has both " +
                       bufferName(known) + " and " + bufferName(b) +
                       " for stage " + std::to_string(buffer.stage));
    owner = rank;
    known = b;
  }
}

//===----------------------------------------------------------------------===//
// Happens-before
//===----------------------------------------------------------------------===//

/// Clocks have a multiple of kLanes entries, so that the compiler can take
/// several at a time; operations are few enough for signed comparison, which
/// every processor has for vectors.
void RankFlow::joinClock(const uint32_t *other) {
  for (size_t s = 0; s < streams; s += kLanes) {
    int32_t mine[kLanes], theirs[kLanes];
    std::memcpy(mine, clock.data() + s, sizeof mine);
    std::memcpy(theirs, other + s, sizeof theirs);
    for (size_t lane = 0; lane < kLanes; ++lane)
      mine[lane] = mine[lane] > theirs[lane] ? mine[lane] : theirs[lane];
    std::memcpy(clock.data() + s, mine, sizeof mine);
  }
}

/// A unit starts after what was last on its streams and what it waits for.
void RankFlow::startUnit(uint32_t first, uint32_t end) {
  bool isFirst = true;
  for (uint32_t at = first; at < end; ++at) {
    uint8_t stream = list->ops[at].stream;
    position[at] = onStream[stream]++;
    const uint32_t *before =
        last[stream] == kNone ? nothing.data() : &ends[last[stream] * streams];
    if (isFirst)
      std::copy(before, before + streams, clock.data());
    else
      joinClock(before);
    isFirst = false;
    for (uint32_t wait : waitsAt(*list, at))
      if (wait < first) // a wait inside the group is a deadlock, told elsewhere
        joinClock(&ends[wait * streams]);
  }
}

void RankFlow::endUnit(uint32_t first, uint32_t end) {
  for (uint32_t at = first; at < end; ++at) {
    uint8_t stream = list->ops[at].stream;
    last[stream] = at;
    clock[stream] = onStream[stream];
  }
  for (uint32_t at = first; at < end; ++at) {
    uint32_t *mine = &ends[at * streams];
    for (size_t s = 0; s < streams; s += kLanes)
      for (size_t lane = s; lane < s + kLanes; ++lane)
        mine[lane] = clock[lane];
  }
}

/// Whether all uses of `buffer` so far have ended when the unit starts.
bool RankFlow::allEnded(Id buffer) const {
  const uint32_t *lastUse = &touched[size_t(buffer) * streams];
  for (size_t s = 0; s < streams; s += kLanes) {
    int32_t used[kLanes], ended[kLanes];
    std::memcpy(used, lastUse + s, sizeof used);
    std::memcpy(ended, clock.data() + s, sizeof ended);
    int32_t late = 0; // negative if any was used after what has ended
    for (size_t lane = 0; lane < kLanes; ++lane)
      late |= ended[lane] - used[lane];
    if (late < 0)
      return false;
  }
  return true;
}

/// The operation that allEnded() found; for messages only.
uint32_t RankFlow::notEnded(Id buffer) const {
  const uint32_t *lastUse = &touched[size_t(buffer) * streams];
  for (size_t s = 0; s < streams; ++s) {
    if (lastUse[s] <= clock[s])
      continue;
    uint32_t seen = 0;
    for (uint32_t at = 0; at < list->ops.size(); ++at)
      if (list->ops[at].stream == s && ++seen == lastUse[s])
        return at;
  }
  return 0;
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

void RankFlow::checkOp(uint32_t at) {
  uses = {};
  for (Operand operand : operandsAt(*list, at))
    use(at, operand);
  if (!isMessage(list->ops[at].op))
    checkUses(at);
}

void RankFlow::use(uint32_t at, Operand operand) {
  const PlanOp &op = list->ops[at];
  Id buffer = operand.buffer;
  BufferKind kind = list->buffers[buffer].kind;
  unsigned allowed = rights(op.op).accesses[static_cast<unsigned>(kind)];
  auto access = static_cast<Access>(operand.access);
  if (!(allowed & bit(access)))
    return tell(FindingKind::Malformed, at, [&] {
      return nameOf(op) + " " + std::string(verb(access)) + " " +
             bufferName(buffer) + ", which its kind of operation may not";
    });
  if (info(kind).persistent)
    useState(at, buffer, access);
  else if (access == Access::Write)
    writeValue(at, buffer);
  else
    readValue(at, buffer, access);
}

void RankFlow::useState(uint32_t at, Id buffer, Access access) {
  const PlanOp &op = list->ops[at];
  const Buffer &used = list->buffers[buffer];
  if (isState(used.kind) && used.stage != op.stage)
    tell(FindingKind::Order, at, [&] {
      return nameOf(op) + " " + std::string(verb(access)) + " " +
             bufferName(buffer) + " of stage " + std::to_string(used.stage);
    });
  Bytes needed = stateBytes(index.plan.stages[op.stage], used.kind);
  if (used.bytes < needed)
    tell(FindingKind::Malformed, at, [&] {
      return nameOf(op) + " needs " + std::to_string(needed) + " bytes of " +
             std::string(info(used.kind).text) + ", " + bufferName(buffer) +
             " has " + std::to_string(used.bytes);
    });
  Content &state = content[buffer];
  bool ordered = access == Access::Read
                     ? state.writer == kNone || hasEnded(state.writer)
                     : allEnded(buffer);
  if (!ordered) {
    uint32_t other = access == Access::Read ? state.writer : notEnded(buffer);
    tell(FindingKind::Lifetime, at, [&] {
      return nameOf(op) + " " + std::string(verb(access)) + " " +
             bufferName(buffer) + " while " + nameOf(list->ops[other]) +
             " may still use it: nothing makes it wait";
    });
  }
  uses.state |= bit(used.kind);
  touch(at, buffer);
  if (access != Access::Read)
    state.writer = at;
}

Id RankFlow::expected(uint32_t at, BufferKind kind, bool isRead) {
  const PlanOp &op = list->ops[at];
  if (kind == BufferKind::Saved || kind == BufferKind::Kept)
    return op.stage;
  if (isMessage(op.op)) {
    Id edge = index.edge[index.firstOp[rank] + at];
    return edge == kNone ? kAny : edge;
  }
  bool forward = kind == BufferKind::Activation;
  const EdgeLists &lists = isRead
                               ? (forward ? index.incoming : index.gradientIn)
                               : (forward ? index.outgoing : index.gradientOut);
  std::span<const Id> edges = lists.of(op.stage);
  unsigned k = static_cast<unsigned>(kind);
  Id nth = (isRead ? uses.read[k] : uses.written[k]) - 1;
  return nth < edges.size() ? edges[nth] : kNone;
}

void RankFlow::readValue(uint32_t at, Id buffer, Access access) {
  const PlanOp &op = list->ops[at];
  const Buffer &used = list->buffers[buffer];
  Content &value = content[buffer];
  ++uses.read[static_cast<unsigned>(used.kind)];
  if (used.kind == BufferKind::Saved || used.kind == BufferKind::Kept)
    uses.stored += used.bytes;
  Id what = expected(at, used.kind, true);
  if (what == kNone)
    return; // one too many: counted at the end
  if (!value.alive)
    tell(FindingKind::Lifetime, at,
         [&] { return lostBytes(at, buffer, verb(access)); });
  else if (what != kAny && value.what != kAny &&
           (value.what != what || value.microbatch != op.microbatch))
    tell(FindingKind::Order, at, [&] {
      return nameOf(op) + " needs " +
             valueName(used.kind, what, op.microbatch) + ", " +
             bufferName(buffer) + " holds " +
             valueName(used.kind, value.what, value.microbatch);
    });
  else if (!hasEnded(value.writer))
    tell(FindingKind::Order, at, [&] {
      return nameOf(op) + " " + std::string(verb(access)) + " " +
             bufferName(buffer) + " while " + nameOf(list->ops[value.writer]) +
             " may still write it: nothing makes it wait";
    });
  else if (op.op == Op::BackwardWeight && used.kind == BufferKind::Kept &&
           list->ops[value.writer].op != Op::BackwardInput)
    tell(FindingKind::Order, at, [&] {
      return nameOf(op) + " stands before " +
             opName(Op::BackwardInput, op.stage, op.microbatch);
    });
  else if (access == Access::Update && !allEnded(buffer))
    tell(FindingKind::Lifetime, at, [&] {
      return nameOf(op) + " updates " + bufferName(buffer) + " while " +
             nameOf(list->ops[notEnded(buffer)]) +
             " may still use it: nothing makes it wait";
    });
  touch(at, buffer);
  if (access == Access::Update)
    value.writer = at;
}

void RankFlow::writeValue(uint32_t at, Id buffer) {
  const PlanOp &op = list->ops[at];
  const Buffer &used = list->buffers[buffer];
  Content &value = content[buffer];
  ++uses.written[static_cast<unsigned>(used.kind)];
  Id what = expected(at, used.kind, false);
  bool isStored =
      used.kind == BufferKind::Saved || used.kind == BufferKind::Kept;
  if (isStored)
    uses.stored += used.bytes;
  else if (what < index.plan.edges.size() &&
           used.bytes < index.plan.edges[what].bytes)
    tell(FindingKind::Malformed, at, [&] {
      return nameOf(op) + " writes " +
             std::to_string(index.plan.edges[what].bytes) + " bytes to " +
             bufferName(buffer) + ", which has " + std::to_string(used.bytes);
    });
  auto busy = [&](Id other) {
    if (allEnded(other))
      return;
    tell(FindingKind::Lifetime, at, [&] {
      return nameOf(op) + " writes " + bufferName(buffer) +
             (other == buffer ? "" : " over " + bufferName(other)) + " while " +
             nameOf(list->ops[notEnded(other)]) +
             " may still use it: nothing makes it wait";
    });
  };
  busy(buffer);
  if (!value.alive)
    bytes.write(buffer, [&](Id other) {
      if (!content[other].alive)
        return;
      if (info(list->buffers[other].kind).persistent)
        return tell(FindingKind::Lifetime, at, [&] {
          return nameOf(op) + " writes " + bufferName(buffer) + " over " +
                 bufferName(other) + ", which lives for the whole run";
        });
      busy(other);
      content[other].alive = false;
      content[other].writer = at; // who took its bytes
    });
  value = {what, op.microbatch, at, true};
  touch(at, buffer);
}

//===----------------------------------------------------------------------===//
// Whole operations
//===----------------------------------------------------------------------===//

void RankFlow::checkUses(uint32_t at) {
  const PlanOp &op = list->ops[at];
  unsigned missing = rights(op.op).state & stateNeeded[op.stage] & ~uses.state;
  for (unsigned kind = 0; missing != 0; ++kind, missing >>= 1)
    if (missing & 1)
      tell(FindingKind::Malformed, at, [&] {
        return nameOf(op) + " has no " + std::string(kBufferKinds[kind].text) +
               " operand, stage " + std::to_string(op.stage) + " has " +
               std::to_string(stateBytes(index.plan.stages[op.stage],
                                         static_cast<BufferKind>(kind))) +
               " bytes of it";
      });
  if (op.op != Op::OptimizerStep)
    checkLists(at);
}

/// An operation reads and writes one buffer per edge, in order of the edges,
/// and finds or leaves all that its stage saves.
void RankFlow::checkLists(uint32_t at) {
  const PlanOp &op = list->ops[at];
  const Stage &stage = index.plan.stages[op.stage];
  auto count = [&](BufferKind kind, bool isRead, size_t wanted) {
    unsigned k = static_cast<unsigned>(kind);
    size_t found = isRead ? uses.read[k] : uses.written[k];
    if (found != wanted)
      tell(FindingKind::Order, at, [&] {
        return nameOf(op) + (isRead ? " reads " : " writes ") +
               std::to_string(found) + " of kind " +
               std::string(info(kind).text) + ", not " + std::to_string(wanted);
      });
  };
  auto store = [&](Bytes wanted) {
    if (uses.stored < wanted)
      tell(FindingKind::Malformed, at, [&] {
        return nameOf(op) + " has " + std::to_string(uses.stored) +
               " bytes of what stage " + std::to_string(op.stage) +
               " saves, not " + std::to_string(wanted);
      });
  };
  switch (op.op) {
  case Op::Forward:
    count(BufferKind::Activation, true, index.incoming.of(op.stage).size());
    count(BufferKind::Activation, false, index.outgoing.of(op.stage).size());
    if (stage.backward) {
      count(BufferKind::Saved, false, 1);
      store(stage.bytes.activation);
    }
    return;
  case Op::Backward:
  case Op::BackwardInput:
    count(BufferKind::Gradient, true, index.gradientIn.of(op.stage).size());
    count(BufferKind::Gradient, false, index.gradientOut.of(op.stage).size());
    count(BufferKind::Saved, true, 1);
    if (op.op == Op::BackwardInput)
      count(BufferKind::Kept, true, 1);
    return store(stage.bytes.activation);
  case Op::BackwardWeight:
    count(BufferKind::Kept, true, 1);
    return store(stage.bytes.keptForWeight);
  case Op::Recompute:
  case Op::SendForward:
  case Op::RecvForward:
  case Op::SendBackward:
  case Op::RecvBackward:
  case Op::OptimizerStep:
    return;
  }
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

std::string RankFlow::bufferName(Id buffer) const {
  return "buffer " + std::to_string(buffer) + " (" +
         std::string(info(list->buffers[buffer].kind).text) + ")";
}

std::string RankFlow::valueName(BufferKind kind, Id what, Id microbatch) const {
  std::string name(info(kind).text);
  if (what >= kAny)
    return "no " + name + " of the model";
  if (kind == BufferKind::Saved || kind == BufferKind::Kept)
    return "what " + opName(Op::Forward, what, microbatch) + " saved";
  const StageEdge &edge = index.plan.edges[what];
  bool forward = kind == BufferKind::Activation;
  return "the " + name + " of microbatch " + std::to_string(microbatch) +
         " from stage " + std::to_string(forward ? edge.from : edge.to) +
         " to stage " + std::to_string(forward ? edge.to : edge.from);
}

std::string RankFlow::lostBytes(uint32_t at, Id buffer,
                                std::string_view does) const {
  uint32_t taker = content[buffer].writer;
  std::string text = nameOf(list->ops[at]) + " " + std::string(does) + " " +
                     bufferName(buffer);
  if (taker == kNone)
    return text + " before anything is written to it";
  return text + " after " + nameOf(list->ops[taker]) + " wrote over its bytes";
}

void checkFlow(const PlanIndex &index, Report &report) {
  RankFlow flow(index, report);
  for (Id r = 0; r < index.plan.ranks.size(); ++r)
    flow.check(r);
}

} // namespace sluice::verify
