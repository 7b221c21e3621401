//===- tools/sluice/CsvSchedule.h - A schedule CSV as an input ------------===//
#ifndef SLUICE_TOOLS_SLUICE_CSVSCHEDULE_H
#define SLUICE_TOOLS_SLUICE_CSVSCHEDULE_H

#include "compiler/Compilation.h"
#include "ir/text/Actions.h"
#include "ir/text/ActionsPlan.h"
#include "ir/verify/Verify.h"
#include "tools/sluice/Files.h"

#include <optional>
#include <string>
#include <vector>

namespace sluice {

/// A CSV whose cells are actions. Findings name its cells by OpPlace: a rank's
/// actions in order, then its asides, and what is past these is its row.
struct CsvSchedule {
  std::vector<ActionLine> lines;
  Actions actions;
  /// Of a file with messages whose messages make a deadlock: whether the order
  /// of its computations alone is right.
  bool orderHolds = false;
  verify::Options proved; ///< how its own plan was proved
  /// How many of the errors are of that plan: the first ones. The others are of
  /// what stands beside its operations.
  size_t ofPlan = 0;

  /// Where a cell stands in the file.
  SourceLocation locate(verify::OpPlace place) const;
  /// "0F0", "1REDUCE_GRAD"; empty for a row.
  std::string nameAt(verify::OpPlace place) const;
  /// The place of aside `number` of `rank`.
  verify::OpPlace placeOfAside(Id rank, size_t number) const {
    return {rank, static_cast<uint32_t>(actions.rank(rank).size() + number)};
  }
};

/// Reads `input`, which must outlive what is read, and makes the plan of
/// `compilation`: its own, or of what computes alone where the file has no
/// messages. Faults go to the diagnostics.
std::optional<CsvSchedule> readCsv(const Input &input, const ActionCosts &costs,
                                   Compilation &compilation);

/// Proves that plan. Where the file has no messages and its order is right,
/// they are added, and what is proved is the plan with them.
verify::Result verifyCsv(CsvSchedule &csv, const verify::Options &options,
                         Compilation &compilation);

/// Holds the operations of the file of `schedule: {csv: …}` to what `check`
/// holds them to, messages and what stands beside left out; false after telling
/// every fault. True also where it cannot be opened, which the compiler tells.
bool checkScheduleCsv(const Spec &spec, Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_CSVSCHEDULE_H
