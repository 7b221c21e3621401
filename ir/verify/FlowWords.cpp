#include "ir/verify/Flow.h"

namespace sluice::verify {
namespace {

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

void RankFlow::explainRights(uint32_t at, Operand operand) {
  const PlanOp &op = list.ops[at];
  tell(FindingKind::Malformed, at, [&] {
    return nameOf(op) + " " +
           std::string(verb(static_cast<Access>(operand.access))) + " " +
           bufferName(operand.buffer) + ", which its kind of operation may not";
  });
}

void RankFlow::explainTwice(uint32_t at, Id buffer) {
  tell(FindingKind::Malformed, at, [&] {
    return nameOf(list.ops[at]) + " names " + bufferName(buffer) + " twice";
  });
}

void RankFlow::explainState(uint32_t at, Id buffer, Access access) {
  const PlanOp &op = list.ops[at];
  const Buffer &used = list.buffers[buffer];
  const Content &state = content[buffer];
  bool isTied = isTiedPart(op, used, access);
  if (!isTied && !isOwnState(op.stage, used))
    tell(FindingKind::Order, at, [&] {
      std::string text = nameOf(op) + " " + std::string(verb(access)) + " " +
                         bufferName(buffer) + " of ";
      return used.stage == kNone
                 ? text + "no stage, but its own has " +
                       bufferName(stateBuffer(op.stage, used.kind))
                 : text + "stage " + std::to_string(used.stage);
    });
  const Stage &stage = index.plan.stages[op.stage];
  Bytes needed = isTied ? stage.bytes.tied : stateBytes(stage, used.kind);
  if (used.bytes < needed)
    tell(FindingKind::Malformed, at, [&] {
      return nameOf(op) + " needs " + std::to_string(needed) + " bytes of " +
             std::string(info(used.kind).text) + ", " + bufferName(buffer) +
             " has " + std::to_string(used.bytes);
    });
  bool isRead = access == Access::Read;
  if (allEnded(state) ||
      (isRead && (state.writer == kNone || hasEnded(state.writer))))
    return;
  uint32_t other = isRead ? state.writer : notEnded(state);
  tell(FindingKind::Lifetime, at, [&] {
    return nameOf(op) + " " + std::string(verb(access)) + " " +
           bufferName(buffer) + " while " + nameOf(list.ops[other]) +
           " may still use it: nothing makes it wait";
  });
}

/// A read that is not as simple as most; it may be right all the same.
void RankFlow::explainRead(uint32_t at, Id buffer, Access access, Id what) {
  const PlanOp &op = list.ops[at];
  const Buffer &used = list.buffers[buffer];
  const Content &value = content[buffer];
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
             bufferName(buffer) + " while " + nameOf(list.ops[value.writer]) +
             " may still write it: nothing makes it wait";
    });
  else if (op.op == Op::BackwardWeight && used.kind == BufferKind::Kept &&
           list.ops[value.writer].op != Op::BackwardInput)
    tell(FindingKind::Order, at, [&] {
      return nameOf(op) + " stands before " +
             opName(Op::BackwardInput, op.stage, op.microbatch);
    });
  else if (access == Access::Update && !allEnded(value))
    tell(FindingKind::Lifetime, at, [&] {
      return nameOf(op) + " updates " + bufferName(buffer) + " while " +
             nameOf(list.ops[notEnded(value)]) +
             " may still use it: nothing makes it wait";
    });
}

void RankFlow::explainBusy(uint32_t at, Id buffer, Id other) {
  tell(FindingKind::Lifetime, at, [&] {
    std::string text = nameOf(list.ops[at]) + " writes " + bufferName(buffer) +
                       (other == buffer ? "" : " over " + bufferName(other));
    uint32_t user = notEnded(content[other]);
    if (user == at)
      return text + (other == buffer ? " twice" : ", which it uses itself");
    return text + " while " + nameOf(list.ops[user]) +
           " may still use it: nothing makes it wait";
  });
}

void RankFlow::explainMissing(uint32_t at, unsigned missing) {
  const PlanOp &op = list.ops[at];
  for (unsigned kind = 0; missing != 0; ++kind, missing >>= 1)
    if (missing & 1)
      tell(FindingKind::Malformed, at, [&] {
        return nameOf(op) + " has no " + std::string(kBufferKinds[kind].text) +
               " operand, stage " + std::to_string(op.stage) + " has " +
               std::to_string(stateBytes(index.plan.stages[op.stage],
                                         static_cast<BufferKind>(kind))) +
               " bytes of it";
      });
}

void RankFlow::explainSmall(uint32_t at, Id buffer, Bytes wanted) {
  tell(FindingKind::Malformed, at, [&] {
    return nameOf(list.ops[at]) + " writes " + std::to_string(wanted) +
           " bytes to " + bufferName(buffer) + ", which has " +
           std::to_string(list.buffers[buffer].bytes);
  });
}

void RankFlow::explainOverwrite(uint32_t at, Id buffer, Id other) {
  tell(FindingKind::Lifetime, at, [&] {
    return nameOf(list.ops[at]) + " writes " + bufferName(buffer) + " over " +
           bufferName(other) + ", which lives for the whole run";
  });
}

void RankFlow::explainCount(uint32_t at, BufferKind kind, bool isRead,
                            size_t found, size_t wanted) {
  tell(FindingKind::Order, at, [&] {
    return nameOf(list.ops[at]) + (isRead ? " reads " : " writes ") +
           std::to_string(found) + " of kind " + std::string(info(kind).text) +
           ", not " + std::to_string(wanted);
  });
}

void RankFlow::explainUnsummed(uint32_t at, Id stage) {
  tell(FindingKind::Order, at, [&] {
    uint32_t added = lastGradient(stage);
    std::string reads = nameOf(list.ops[at]) +
                        " reads the gradients of stage " +
                        std::to_string(stage);
    return added == kNone
               ? reads + ", which rank " + std::to_string(rank) +
                     " does not compute"
               : reads + " before " + nameOf(list.ops[added]) + " adds to them";
  });
}

void RankFlow::explainStored(uint32_t at, Bytes found, Bytes wanted) {
  const PlanOp &op = list.ops[at];
  tell(FindingKind::Malformed, at, [&] {
    return nameOf(op) + " has " + std::to_string(found) +
           " bytes of what stage " + std::to_string(op.stage) + " saves, not " +
           std::to_string(wanted);
  });
}

void RankFlow::explainChanged(uint32_t at, Id buffer) {
  tell(FindingKind::Order, at, [&] {
    return nameOf(list.ops[at]) + " reads " + bufferName(buffer) + " after " +
           nameOf(list.ops[content[buffer].writer]) +
           " has written it: it moves what a forward leaves";
  });
}

void RankFlow::explainPieces(uint32_t at, uint32_t moved) {
  auto pieces = [&](uint32_t op) {
    std::string text;
    for (Operand used : list.operandsAt(op))
      if (const Buffer &of = list.buffers[used.buffer]; !isOnHost(of.kind))
        text += (text.empty() ? "" : ", ") + std::string(info(of.kind).text) +
                " " + std::to_string(of.bytes);
    return text.empty() ? "nothing" : text;
  };
  tell(FindingKind::Order, at, [&] {
    return nameOf(list.ops[at]) + " brings back " + pieces(at) + ", but " +
           nameOf(list.ops[moved]) + " has moved " + pieces(moved);
  });
}

std::string RankFlow::bufferName(Id buffer) const {
  return "buffer " + std::to_string(buffer) + " (" +
         std::string(info(list.buffers[buffer].kind).text) + ")";
}

std::string RankFlow::valueName(BufferKind kind, Id what, Id microbatch) const {
  std::string name(info(kind).text);
  if (what >= kAny)
    return "no " + name + " of the model";
  if (kind == BufferKind::CopyGradients)
    return "the gradients of stage " + std::to_string(what) +
           " from its other copy";
  if (kind == BufferKind::WholeGradients)
    return "the gradients of stage " + std::to_string(what) +
           " by microbatch " + std::to_string(microbatch);
  if (kind == BufferKind::TiedGradients)
    return "the gradients of stage " +
           std::to_string(index.plan.stages[what].tiedTo) + ", which stage " +
           std::to_string(what) + " is tied to";
  if (kind == BufferKind::Offloaded)
    return "what " + opName(Op::Offload, what, microbatch) + " has moved";
  if (kind == BufferKind::Checkpoint)
    return "the checkpoint of " + opName(Op::Forward, what, microbatch);
  if (kind == BufferKind::Saved || kind == BufferKind::Kept) {
    RecomputePolicy policy = index.plan.stages[what].recomputePolicy;
    bool recomputed =
        policy == RecomputePolicy::Full ||
        (policy == RecomputePolicy::Selective && kind == BufferKind::Saved);
    return "what " +
           opName(recomputed ? Op::Recompute : Op::Forward, what, microbatch) +
           " saved";
  }
  const StageEdge &edge = index.plan.edges[what];
  bool forward = kind == BufferKind::Activation;
  return "the " + name + " of microbatch " + std::to_string(microbatch) +
         " from stage " + std::to_string(forward ? edge.from : edge.to) +
         " to stage " + std::to_string(forward ? edge.to : edge.from);
}

std::string RankFlow::lostBytes(uint32_t at, Id buffer,
                                std::string_view does) const {
  uint32_t taker = content[buffer].writer;
  std::string text =
      nameOf(list.ops[at]) + " " + std::string(does) + " " + bufferName(buffer);
  if (taker == kNone)
    return text + " before anything is written to it";
  return text + " after " + nameOf(list.ops[taker]) + " wrote over its bytes";
}

} // namespace sluice::verify
