//===- ir/text/ActionsCheck.h - Whether the cells of a CSV fit together ---===//
#ifndef SLUICE_IR_TEXT_ACTIONSCHECK_H
#define SLUICE_IR_TEXT_ACTIONSCHECK_H

#include "ir/text/Actions.h"
#include "ir/text/Faults.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice {

inline std::string nameOf(const Action &action) {
  return opName(action.op, action.stage, action.microbatch);
}

/// A CSV's actions with their lines, and where what is wrong with them is told.
struct ActionFaults {
  const Actions &actions;
  std::span<const ActionLine> lines;
  Faults faults;

  /// Where a cell stands, an action or an aside.
  template <typename Cell> SourceLocation at(Id rank, const Cell &cell) const {
    SourceLocation where = lines[rank].where;
    where.column = cell.column;
    return where;
  }
  /// Tells what is wrong with a cell, behind its name; false if enough was
  /// told.
  template <typename Cell>
  bool fail(Id rank, const Cell &cell, const std::string &message) {
    SourceLocation where = at(rank, cell);
    bool isTold = faults.admits(where);
    if (isTold)
      faults.tell(where, nameOf(cell) + message);
    return isTold;
  }
  template <typename Visit> void each(Visit visit) const {
    for (Id rank = 0; rank < actions.ranks(); ++rank)
      for (const Action &action : actions.rank(rank))
        visit(rank, action);
  }
};

/// What a CSV is about: its stages are a chain.
struct ActionStages {
  uint32_t stages = 0, microbatches = 0;
  bool trains = false;
  std::vector<Id> rankOfStage;

  /// The stage at the other end of a message; kNone if there is none.
  Id peerOf(Op message, Id stage) const {
    bool up = isWithLater(message);
    if (up ? stage + 1 == stages : stage == 0)
      return kNone;
    return up ? stage + 1 : stage - 1;
  }
};

/// Counts stages and microbatches and finds where each stage is; none after
/// telling what is refused (ActionsPlan.h), but for waits for sends.
/// O(actions), times the logarithm of the REDUCE_GRADs.
std::optional<ActionStages> stagesOfActions(const Actions &actions,
                                            std::span<const ActionLine> lines,
                                            Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_IR_TEXT_ACTIONSCHECK_H
