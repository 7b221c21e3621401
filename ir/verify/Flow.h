//===- ir/verify/Flow.h - Values and bytes of one rank --------------------===//
//
// Walks a rank's list once, in list order. Happens-before within the rank is
// kept as vector clocks: of each operation, how many operations of each stream
// have surely ended when it starts. Whatever happens before an operation stands
// before it in the list, so one walk sees every value made before it is used.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_VERIFY_FLOW_H
#define SLUICE_IR_VERIFY_FLOW_H

#include "ir/verify/Internal.h"
#include "ir/verify/Occupancy.h"

namespace sluice::verify {

/// One walk per rank; keeps its memory between them.
class RankFlow {
public:
  RankFlow(const PlanIndex &of, Report &to);
  /// O(operations * streams + waits * streams + operands * streams).
  void check(Id rank);

private:
  /// What a buffer holds now. For what a message carries or a stage passes on,
  /// `what` is an edge, for the rest a stage.
  struct Content {
    Id what;
    Id microbatch;
    uint32_t writer; ///< position of the operation, kNone before any
    bool alive;      ///< written, and all bytes still its own
  };
  /// What the operation at hand has used so far.
  struct Uses {
    Id read[kBufferKindCount];
    Id written[kBufferKindCount];
    Bytes stored;   ///< bytes of Saved and Kept
    unsigned state; ///< bit per kind
  };

  void prepare();
  void joinClock(const uint32_t *other);
  void startUnit(uint32_t first, uint32_t end);
  void endUnit(uint32_t first, uint32_t end);
  bool hasEnded(uint32_t op) const {
    return position[op] < clock[list->ops[op].stream];
  }
  bool allEnded(Id buffer) const;
  uint32_t notEnded(Id buffer) const;

  void checkOp(uint32_t at);
  void use(uint32_t at, Operand operand);
  void useState(uint32_t at, Id buffer, Access access);
  void readValue(uint32_t at, Id buffer, Access access);
  void writeValue(uint32_t at, Id buffer);
  void touch(uint32_t at, Id buffer) {
    touched[size_t(buffer) * streams + list->ops[at].stream] = position[at] + 1;
  }
  /// The value that the next read or write of `kind` is about; kNone if the
  /// operation has none left, kAny if it may be any.
  Id expected(uint32_t at, BufferKind kind, bool isRead);
  void checkUses(uint32_t at);
  void checkLists(uint32_t at);
  void checkPersistent();

  std::string bufferName(Id buffer) const;
  std::string valueName(BufferKind kind, Id what, Id microbatch) const;
  std::string lostBytes(uint32_t at, Id buffer, std::string_view does) const;
  /// Tells a finding about operation `at`; `text` is called only if wanted.
  /// Out of line, so that the making of texts does not burden the walk.
  template <typename Text> void tell(FindingKind kind, uint32_t at, Text text) {
    if (report.admits(kind))
      report.error(kind, OpPlace{rank, at}, text());
  }

  static constexpr size_t kLanes = 4;

  const PlanIndex &index;
  Report &report;
  Id rank = 0;
  const RankPlan *list = nullptr;
  size_t streams = kLanes;        ///< entries of a clock, a multiple of kLanes
  std::vector<uint32_t> clock;    ///< when the unit at hand starts
  std::vector<uint32_t> nothing;  ///< the clock of the beginning
  std::vector<uint32_t> ends;     ///< per operation and stream: at its end
  std::vector<uint32_t> last;     ///< per stream: its last operation
  std::vector<uint32_t> position; ///< per operation: place on its stream
  std::vector<uint32_t> onStream; ///< per stream: operations so far
  std::vector<Content> content;   ///< per buffer
  std::vector<uint32_t> touched;  ///< per buffer and stream: last use + 1
  std::vector<std::pair<Id, Id>>
      stateOf;                      ///< per stage and kind: (rank, buffer)
  std::vector<uint8_t> stateNeeded; ///< per stage: bit per kind of not 0 bytes
  Occupancy bytes;
  Uses uses{};
};

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_FLOW_H
