//===- tools/sluice/Findings.h - What a verification found, for people ----===//
#ifndef SLUICE_TOOLS_SLUICE_FINDINGS_H
#define SLUICE_TOOLS_SLUICE_FINDINGS_H

#include "ir/text/Text.h"
#include "tools/sluice/CommandLine.h"
#include "tools/sluice/CsvSchedule.h"

#include "llvm/Support/raw_ostream.h"

namespace sluice {

/// What was verified: a plan, or a schedule with its graph; and the CSV or the
/// text that they were read from, if they were. Of a CSV or a text that could
/// not be read there is only the file, with its faults.
struct Subject {
  const Plan *plan = nullptr;
  const Graph *graph = nullptr;
  const Schedule *schedule = nullptr;
  const CsvSchedule *csv = nullptr;
  const OpLocations *ops = nullptr;  ///< of a text
  bool rowsAreRanks = false;         ///< of the file
  const Diagnostics *file = nullptr; ///< to show lines of the CSV or text

  uint64_t ranks() const {
    return plan ? plan->ranks.size() : schedule ? schedule->ranks() : 0;
  }
  uint64_t operations() const {
    return plan ? operationCount(*plan) : schedule ? schedule->order.size() : 0;
  }
  /// Name of the operation at a place of a finding; empty if there is none.
  std::string opAt(verify::OpPlace place) const;
  /// Line 0 where it is not known.
  SourceLocation locate(std::optional<verify::OpPlace> place) const;
};

/// Makes diagnostics of `result`, each at its place in the file.
void tellFindings(const Subject &subject, const verify::Result &result,
                  Diagnostics &diagnostics);

/// The contract of `check --json`.
void writeFindingsJson(const Arguments &arguments, const Subject &subject,
                       const verify::Result &result, llvm::raw_ostream &out);

/// Every finding, of a deadlock the story, then the verdict in a line.
void writeFindingsText(const Arguments &arguments, const Subject &subject,
                       const verify::Result &result, llvm::raw_ostream &out);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_FINDINGS_H
