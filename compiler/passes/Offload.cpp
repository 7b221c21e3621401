//===- compiler/passes/Offload.cpp - Saved values to host memory and back -===//
//
// Needs a plan in which every value has a buffer of its own, as lower makes it,
// and its stages' word on whether they are offloaded. Promises the same
// computations and messages in the same order; of every stage-microbatch of
// such a stage with at least kApart computations of its rank between F and what
// first needs what F leaves (R, B or I), an OFFLOAD and a RELOAD on streams of
// their own. OFFLOAD stands behind the computation after F, so that it has the
// time of that one before its bytes are taken over; RELOAD stands before the
// computation before the one that needs it, and starts when that can start.
// Linear.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/PassManager.h"
#include "ir/PlanStructure.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>

namespace sluice {

namespace {
/// Computations between F and who needs what it leaves, for a move to be of
/// use: one while it goes, one while it comes back, and one between.
constexpr uint32_t kApart = 3;

class Offloading {
public:
  Offloading(const Plan &ofPlan, RankPlan &list)
      : plan(ofPlan), old(list), unitOf(list.ops.size(), kNone) {}
  void run();

private:
  /// What a forward leaves on its way.
  struct Move {
    uint32_t forward; ///< positions in the old list
    uint32_t needed = kNone;
    uint32_t offloaded = 0, reloaded = 0; ///< positions in the new one
    llvm::SmallVector<Id, 2> left;        ///< its buffers
    llvm::SmallVector<Id, 2> back;        ///< and those it comes back to
    Id host = kNone;
  };
  /// What runs together.
  struct Unit {
    uint32_t first, end;  ///< positions in the old list
    Id goes = kNone;      ///< the move that goes while it runs
    Id comesBack = kNone; ///< the one that comes back
  };

  void findUnits();
  void findMoves();
  bool leaves(uint32_t op, Move &move) const;
  uint8_t addStream(const char *name);
  void begin(Op op, const PlanOp &of, uint8_t stream);
  Id addBuffer(BufferKind kind, Id stage, Bytes bytes);
  void keep(uint32_t op);
  void offload(Move &move);
  void reload(Move &move, const Unit &during);
  void use(Id buffer, Access access) {
    made.operands.push_back(operand(buffer, access));
  }

  const Plan &plan;
  RankPlan &old;
  RankPlan made;
  std::vector<uint32_t> unitOf; ///< per op; kNone of what computes nothing
  std::vector<Unit> units;
  std::vector<Move> moves;
  /// By stage and microbatch.
  llvm::DenseMap<std::pair<Id, Id>, Id> moveOf;
  std::vector<uint32_t> newAt; ///< per op
  uint8_t out = 0, in = 0;     ///< streams
};
} // namespace

void Offloading::findUnits() {
  for (uint32_t at = 0; at < old.ops.size(); ++at) {
    const PlanOp &op = old.ops[at];
    if (!isCompute(op.op))
      continue;
    bool joins =
        at > 0 && op.group != kNone && op.group == old.ops[at - 1].group;
    if (!joins)
      units.push_back({at, at});
    units.back().end = at + 1;
    unitOf[at] = static_cast<uint32_t>(units.size() - 1);
  }
}

/// Whether `op` leaves something for later; notes it in `move`.
bool Offloading::leaves(uint32_t op, Move &move) const {
  const PlanOp &of = old.ops[op];
  if (of.op != Op::Forward || !plan.stages[of.stage].offload)
    return false;
  Bytes bytes = 0;
  for (Operand used : old.operandsOf(op)) {
    const Buffer &buffer = old.buffers[used.buffer];
    if (buffer.kind != BufferKind::Saved && buffer.kind != BufferKind::Kept &&
        buffer.kind != BufferKind::Checkpoint)
      continue;
    move.left.push_back(used.buffer);
    bytes += buffer.bytes;
  }
  return bytes != 0;
}

void Offloading::findMoves() {
  for (uint32_t at = 0; at < old.ops.size(); ++at) {
    const PlanOp &op = old.ops[at];
    if (!isCompute(op.op))
      continue;
    std::pair cell(op.stage, op.microbatch);
    Move found{at, kNone, 0, 0, {}, {}, kNone};
    if (leaves(at, found)) {
      moveOf[cell] = static_cast<Id>(moves.size());
      moves.push_back(std::move(found));
    } else if (auto known = moveOf.find(cell);
               known != moveOf.end() && moves[known->second].needed == kNone) {
      moves[known->second].needed = at;
    }
  }
  for (auto [number, move] : llvm::enumerate(moves)) {
    uint32_t from = unitOf[move.forward];
    bool isApart = move.needed != kNone && unitOf[move.needed] - from > kApart;
    if (!isApart) {
      moveOf.erase(
          {old.ops[move.forward].stage, old.ops[move.forward].microbatch});
      continue;
    }
    units[from + 1].goes = static_cast<Id>(number);
    units[unitOf[move.needed] - 1].comesBack = static_cast<Id>(number);
  }
}

/// Should the rank have too many already, the last one.
uint8_t Offloading::addStream(const char *name) {
  if (made.streams.size() < kMaxStreams)
    made.streams.emplace_back(name);
  return static_cast<uint8_t>(made.streams.size() - 1);
}

void Offloading::begin(Op op, const PlanOp &of, uint8_t stream) {
  made.ops.push_back({of.stage, of.microbatch, kNone, kNone,
                      static_cast<uint32_t>(made.waits.size()),
                      static_cast<uint32_t>(made.operands.size()), op, stream});
}

Id Offloading::addBuffer(BufferKind kind, Id stage, Bytes bytes) {
  made.buffers.push_back({0, bytes, stage, kind});
  return static_cast<Id>(made.buffers.size() - 1);
}

void Offloading::offload(Move &move) {
  const PlanOp &forward = old.ops[move.forward];
  move.offloaded = static_cast<uint32_t>(made.ops.size());
  begin(Op::Offload, forward, out);
  made.waits.push_back(newAt[move.forward]);
  Bytes bytes = 0;
  for (Id buffer : move.left) {
    use(buffer, Access::Read);
    bytes += made.buffers[buffer].bytes;
  }
  move.host = addBuffer(BufferKind::Offloaded, forward.stage, bytes);
  use(move.host, Access::Write);
}

/// Starts when the computation before `during` has ended.
void Offloading::reload(Move &move, const Unit &during) {
  move.reloaded = static_cast<uint32_t>(made.ops.size());
  begin(Op::Reload, old.ops[move.forward], in);
  made.waits.push_back(move.offloaded);
  made.waits.push_back(newAt[(&during - 1)->end - 1]);
  use(move.host, Access::Read);
  for (Id buffer : move.left) {
    const Buffer left = made.buffers[buffer];
    move.back.push_back(addBuffer(left.kind, left.stage, left.bytes));
    use(move.back.back(), Access::Write);
  }
}

/// Takes over an operation; what has come back it finds where that is now.
void Offloading::keep(uint32_t op) {
  const PlanOp &of = old.ops[op];
  newAt[op] = static_cast<uint32_t>(made.ops.size());
  PlanOp &now = made.ops.emplace_back(of);
  now.firstWait = static_cast<uint32_t>(made.waits.size());
  now.firstOperand = static_cast<uint32_t>(made.operands.size());
  for (uint32_t wait : old.waitsOf(op))
    made.waits.push_back(newAt[wait]);
  const Move *move = nullptr;
  if (isCompute(of.op) && of.op != Op::Forward)
    if (auto known = moveOf.find({of.stage, of.microbatch});
        known != moveOf.end())
      move = &moves[known->second];
  if (move && move->needed == op)
    made.waits.push_back(move->reloaded);
  for (Operand used : old.operandsOf(op)) {
    const Id *left = move ? llvm::find(move->left, used.buffer) : nullptr;
    if (move && left != move->left.end())
      used.buffer = move->back[left - move->left.begin()];
    made.operands.push_back(used);
  }
}

void Offloading::run() {
  findUnits();
  findMoves();
  if (moveOf.empty())
    return;
  made.buffers = old.buffers;
  made.streams = old.streams;
  out = addStream("offload");
  in = addStream("reload");
  newAt.resize(old.ops.size());
  for (uint32_t at = 0; at < old.ops.size(); ++at) {
    const Unit *unit = unitOf[at] == kNone ? nullptr : &units[unitOf[at]];
    if (unit && unit->first == at && unit->comesBack != kNone)
      reload(moves[unit->comesBack], *unit);
    keep(at);
    if (unit && unit->end == at + 1 && unit->goes != kNone)
      offload(moves[unit->goes]);
  }
  placeApart(made);
  old = std::move(made);
}

bool passes::OffloadValues(Compilation &c) {
  Plan &plan = *c.plan;
  if (llvm::none_of(plan.stages, [](const Stage &of) { return of.offload; }))
    return true;
  if (c.spec) {
    Link link = c.network().host;
    plan.hostLink = {link.latency, link.bandwidth};
  }
  for (RankPlan &rank : plan.ranks)
    if (rank.hostArenaBytes == 0) // else it has been done, as `opt` can ask
      Offloading(plan, rank).run();
  return true;
}

} // namespace sluice
