//===- ir/verify/Flow.h - Values and bytes of one rank --------------------===//
//
// Walks a rank's list once, in list order. Happens-before within the rank is
// kept as vector clocks (Clocks.h). Whatever happens before an operation stands
// before it in the list, so one walk sees every value made before it is used.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_VERIFY_FLOW_H
#define SLUICE_IR_VERIFY_FLOW_H

#include "ir/verify/Clocks.h"
#include "ir/verify/Internal.h"
#include "ir/verify/Occupancy.h"
#include "ir/verify/Rights.h"

#include <array>
#include <cstring>

namespace sluice::verify {

/// A value that a mismatch has made unknown: no second finding follows from it.
inline constexpr Id kAny = kNone - 1;

/// Bytes of persistent `kind` that `stage` needs.
inline Bytes stateBytes(const Stage &stage, BufferKind kind) {
  switch (kind) {
  case BufferKind::Parameters:
    return stage.bytes.parameters;
  case BufferKind::Gradients:
    return stage.gradientsKept();
  case BufferKind::Optimizer:
    return stage.bytes.optimizer;
  case BufferKind::Workspace:
    return stage.bytes.workspace;
  case BufferKind::Norms:
    return stage.bytes.norms;
  case BufferKind::Saved:
  case BufferKind::Kept:
  case BufferKind::Checkpoint:
  case BufferKind::Activation:
  case BufferKind::Gradient:
  case BufferKind::CopyGradients:
  case BufferKind::TiedGradients:
  case BufferKind::WholeGradients:
  case BufferKind::Offloaded:
    return 0;
  }
  return 0;
}

/// One walk per rank; keeps its memory between them.
class RankFlow {
public:
  RankFlow(const PlanIndex &of, Report &to);
  /// O(operations * streams + waits * streams + operands), and * streams for
  /// the operands on buffers that several streams use at once.
  void check(Id rank);

private:
  /// What a buffer holds now, and who used it last. For what a message carries
  /// or a stage passes on, `what` is an edge, for the rest a stage.
  ///
  /// The last use stands for all before it, as long as they had surely ended
  /// when it started or are on its stream: that is so of nearly every buffer
  /// (the epochs of Flanagan and Freund, FastTrack, PLDI 2009). Where it is
  /// not, the buffer gets a row of `shared`: the last use on each stream.
  struct Content {
    Id what = kNone;
    Id microbatch = kNone;
    uint32_t writer = kNone; ///< position of the operation, kNone before any
    uint32_t lastUse = 0;    ///< position + 1, 0 before any; or the row
    /// Of the last use. No byte: one may alias whatever the walk holds.
    uint16_t useStream = 0;
    bool alive = false;    ///< written, and all bytes still its own
    bool leftKept = false; ///< of Saved: who left it has left a Kept too
    bool isShared = false; ///< lastUse is a row of `shared`
  };
  /// Kinds of buffers that hold values stand behind those that hold state.
  static constexpr unsigned kFirstValue = kindsBefore(BufferClass::Value);
  static constexpr unsigned kValueKinds = kBufferKindCount - kFirstValue;
  static constexpr bool isPersistent(BufferKind kind) {
    return static_cast<unsigned>(kind) < kFirstValue;
  }
  static constexpr unsigned valueKind(BufferKind kind) {
    return static_cast<unsigned>(kind) - kFirstValue;
  }

  /// An operation at hand, what it has to use and has used so far.
  struct Uses {
    const PlanOp &op;
    uint32_t at;
    const Rights &rights;
    std::span<const Id> incoming, outgoing; ///< edges to read and to write
    uint32_t read[kValueKinds];
    uint32_t written[kValueKinds];
    Bytes stored = 0;   ///< bytes of Saved and Kept
    Id saved = kNone;   ///< the buffer of kind Saved
    Id host = kNone;    ///< the buffer of kind Offloaded
    uint32_t tied = 0;  ///< gradients of the stage that its own is tied to
    unsigned state = 0; ///< bit per kind

    Uses(const PlanOp &of, uint32_t position, const Rights &allowed,
         std::span<const Id> edgesIn, std::span<const Id> edgesOut)
        : op(of), at(position), rights(allowed), incoming(edgesIn),
          outgoing(edgesOut) {
      std::memset(read, 0, sizeof read);
      std::memset(written, 0, sizeof written);
    }
  };

  void prepare();
  void checkPersistent();

  template <size_t Width> void walk();
  bool hasEnded(uint32_t op) const { return op < clocks[list.ops[op].stream]; }
  /// Whether all uses of a buffer so far have ended when the unit starts.
  bool allEnded(const Content &of) const {
    return of.isShared ? sharedEnded(of) : of.lastUse <= clocks[of.useStream];
  }
  bool sharedEnded(const Content &of) const;
  uint32_t notEnded(const Content &of) const;
  void touch(uint32_t at, Content &of) {
    uint8_t stream = list.ops[at].stream;
    if (of.isShared ||
        (of.useStream != stream && of.lastUse > clocks[of.useStream]))
      return share(at, of);
    of.lastUse = at + 1;
    of.useStream = stream;
  }
  void share(uint32_t at, Content &of);

  void checkMessage(uint32_t at);
  void checkCompute(uint32_t at);
  /// Whether operation `at` has used a buffer before.
  bool isUsedBy(uint32_t at, const Content &of) const {
    uint32_t use =
        of.isShared
            ? shared[size_t(of.lastUse) * clocks.width() + list.ops[at].stream]
            : of.lastUse;
    return use == at + 1;
  }
  void use(Uses &uses, Operand operand);
  void useState(Uses &uses, Id buffer, Access access);
  /// Whether it takes the gradients of a tied stage's table from both.
  static bool takesTied(Op op) {
    return op == Op::OptimizerStep || op == Op::NormGradients;
  }
  bool isTiedPart(const PlanOp &op, const Buffer &used, Access access) const {
    return takesTied(op.op) && access == Access::Read &&
           used.kind == BufferKind::Gradients && used.stage != kNone &&
           used.stage == index.plan.stages[op.stage].tiedTo;
  }
  /// The buffer of persistent `kind` that `stage` has on the rank, kNone
  /// without one; of no stage (number of stages), that of all others.
  Id stateBuffer(size_t stage, BufferKind kind) const {
    auto [owner, buffer] =
        stateOf[stage * kFirstValue + static_cast<unsigned>(kind)];
    return owner == rank ? buffer : kNone;
  }
  /// Whether state or workspace is what an operation of `stage` works on.
  bool isOwnState(Id stage, const Buffer &used) const {
    return used.stage == stage ||
           (used.stage == kNone && stateBuffer(stage, used.kind) == kNone);
  }
  void useOtherState(Uses &uses, Id buffer, Access access);
  void useValue(Uses &uses, Id buffer, Access access);
  void readValue(uint32_t at, Id buffer, Access access, Id what);
  void writeValue(uint32_t at, Id buffer, Id what);
  void takeBytes(uint32_t at, Id buffer);
  Bytes wantedBytes(BufferKind kind, Id what) const;
  uint32_t lastGradient(Id stage);
  void checkUses(const Uses &uses);
  void checkLists(const Uses &uses);
  void checkCount(const Uses &uses, BufferKind kind, bool isRead,
                  size_t wanted);
  void checkStored(const Uses &uses, Bytes wanted);
  void checkPassedOn(const Uses &uses, BufferKind kind);
  void checkLeft(const Uses &uses);
  void checkFound(const Uses &uses);
  void checkMoved(const Uses &uses);
  void checkWhole(const Uses &uses);
  bool isPartitioned(Id stage) const {
    return index.plan.stages[stage].gradientsPartitioned;
  }
  void checkBroughtBack(const Uses &uses);

  // What the walk found wrong, in words (FlowWords.cpp): out of its way, so
  // that the making of texts does not burden it.
  void explainRights(uint32_t at, Operand operand);
  void explainTwice(uint32_t at, Id buffer);
  void explainState(uint32_t at, Id buffer, Access access);
  void explainRead(uint32_t at, Id buffer, Access access, Id what);
  void explainSmall(uint32_t at, Id buffer, Bytes wanted);
  void explainBusy(uint32_t at, Id buffer, Id other);
  void explainOverwrite(uint32_t at, Id buffer, Id other);
  void explainMissing(uint32_t at, unsigned missing);
  void explainCount(uint32_t at, BufferKind kind, bool isRead, size_t found,
                    size_t wanted);
  void explainUnsummed(uint32_t at, Id stage);
  void explainStored(uint32_t at, Bytes found, Bytes wanted);
  void explainChanged(uint32_t at, Id buffer);
  void explainPieces(uint32_t at, uint32_t moved);
  std::string bufferName(Id buffer) const;
  std::string valueName(BufferKind kind, Id what, Id microbatch) const;
  std::string lostBytes(uint32_t at, Id buffer, std::string_view does) const;
  /// Tells a finding about operation `at`; `text` is called only if wanted.
  template <typename Text> void tell(FindingKind kind, uint32_t at, Text text) {
    if (report.admits(kind))
      report.error(kind, OpPlace{rank, at}, text());
  }

  const PlanIndex &index;
  Report &report;
  Id rank = 0;
  ListView list;
  const Match *matches = nullptr; ///< of the rank's operations
  Clocks clocks;
  std::vector<Content> content; ///< per buffer
  std::vector<uint32_t> shared; ///< rows of last uses + 1, one per stream
  std::vector<std::pair<Id, Id>>
      stateOf; ///< per stage, and of none, and kind: (rank, buffer)
  std::vector<std::array<Bytes, kFirstValue>>
      stateNeeded;                 ///< per stage and kind: bytes
  std::vector<uint8_t> stateKinds; ///< per stage: bit per kind of not 0 bytes
  /// Per stage the position of the last operation of the rank that updates its
  /// gradients; empty until asked for.
  std::vector<uint32_t> lastGradients;
  Occupancy bytes;
};

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_FLOW_H
