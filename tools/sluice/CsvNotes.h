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

/// The story of a deadlock, a step a note, then the other end of a message and
/// what would mend the fault. `plan` is the one that was proved, null if it was
/// the schedule. `finding` is one of `result`.
std::vector<CsvNote> notesOn(const CsvSchedule &csv, const Plan *plan,
                             const verify::Result &result,
                             const verify::Finding &finding);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_CSVNOTES_H
