//===- tools/sluice/CsvSchedule.h - A schedule CSV as an input ------------===//
#ifndef SLUICE_TOOLS_SLUICE_CSVSCHEDULE_H
#define SLUICE_TOOLS_SLUICE_CSVSCHEDULE_H

#include "compiler/Compilation.h"
#include "ir/text/Actions.h"
#include "ir/text/ActionsPlan.h"
#include "ir/verify/Verify.h"
#include "tools/sluice/Files.h"

#include <optional>
#include <vector>

namespace sluice {

/// A CSV whose cells are actions.
struct CsvSchedule {
  std::vector<ActionLine> lines;
  Actions actions;

  /// Where the operation at a place of its plan stands in the file.
  SourceLocation locate(verify::OpPlace place) const;
};

/// Reads `input`, which must outlive what is read, and makes the plan of
/// `compilation`: its own, or of what computes alone where the file has no
/// messages. Faults go to the diagnostics.
std::optional<CsvSchedule> readCsv(const Input &input, const ActionCosts &costs,
                                   Compilation &compilation);

/// Proves that plan. Where the file has no messages and its order is right,
/// they are added, and what is proved is the plan with them.
verify::Result verifyCsv(const CsvSchedule &csv, const verify::Options &options,
                         Compilation &compilation);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_CSVSCHEDULE_H
