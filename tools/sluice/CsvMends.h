//===- tools/sluice/CsvMends.h - What would make messages match -----------===//
#ifndef SLUICE_TOOLS_SLUICE_CSVMENDS_H
#define SLUICE_TOOLS_SLUICE_CSVMENDS_H

#include "tools/sluice/CsvNotes.h"

namespace sluice {

/// Of each mismatch of `result`, in order, the changes that mend it. They were
/// tried all together, in the order of the places of the mismatches: the
/// messages of `csv`, whose plan is `plan`, then match. Best is what passes;
/// then where only a deadlock comes up that can be mended, which the note says.
/// Where nothing of these was found in a bounded number of trials, what matches
/// more messages, with that. Each trial is linear.
std::vector<CsvMends> mendMismatches(const CsvSchedule &csv, const Plan &plan,
                                     const verify::Result &result);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_CSVMENDS_H
