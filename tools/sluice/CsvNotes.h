//===- tools/sluice/CsvNotes.h - What would mend a schedule CSV -----------===//
#ifndef SLUICE_TOOLS_SLUICE_CSVNOTES_H
#define SLUICE_TOOLS_SLUICE_CSVNOTES_H

#include "tools/sluice/CsvSchedule.h"

namespace sluice {

/// A sentence that belongs to a finding, with the cell it is about.
struct CsvNote {
  std::string message;
  SourceLocation where; ///< line 0: none
};

/// What a message meets, and the changes that mend a mismatch.
struct CsvMends {
  std::vector<CsvNote> here, changes;
};

/// What is told beside the findings of a file.
class CsvAdvice {
public:
  /// `plan` is the one that was proved, null if it was the schedule; all must
  /// outlive this.
  CsvAdvice(const CsvSchedule &csv, const Plan *plan,
            const verify::Result &result);

  /// The story of a deadlock, a step a note, then the other end of a message
  /// and what would mend the fault. `finding` is one of the result's.
  std::vector<CsvNote> on(const verify::Finding &finding);
  /// What else would mend the deadlocks, all of them; empty if nothing is
  /// known, or there are none.
  std::string onDeadlocks() const;
  /// Whether what was told so far mends deadlocks by the place of a WAIT_SEND,
  /// which `verify` knows nothing of.
  bool movesWaits() const { return isMoveTold; }

private:
  bool waitsForSends() const;

  const CsvSchedule &csv;
  const Plan *plan;
  const verify::Result &result;
  std::optional<std::vector<CsvMends>> mends; ///< of the mismatches, in order
  bool isMoveTold = false;                    ///< of a WAIT_SEND
};

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_CSVNOTES_H
