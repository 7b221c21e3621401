//===- tools/sluice/CsvTrial.h - A row of a schedule CSV, changed on trial ===//
#ifndef SLUICE_TOOLS_SLUICE_CSVTRIAL_H
#define SLUICE_TOOLS_SLUICE_CSVTRIAL_H

#include "tools/sluice/CsvSchedule.h"

#include <variant>
#include <vector>

namespace sluice {

/// The cells of one row, which can be changed, and the proof of the file with
/// it. Positions are those of cells, members of a group one each.
class CsvTrial {
public:
  CsvTrial(const CsvSchedule &of, Id row);

  /// Position of the row's action or aside `number`.
  size_t cellOf(size_t action) const { return cellOfAction[action]; }
  size_t cellOfAside(size_t aside) const { return cellOfWait[aside]; }

  /// Adds a message before the cell at `position`, or behind it; outside of
  /// groups.
  void insert(size_t position, bool behind, const OpRef &message);
  /// Moves the cell at `from` there, out of its group.
  void move(size_t from, size_t position, bool behind);
  /// Lets two actions change places.
  void swap(size_t one, size_t other);

  /// What is found in the file then; none if it cannot be made a plan.
  std::optional<verify::Result> prove() const;

private:
  using Cell = std::variant<Action, Aside>;
  size_t placeAt(size_t position, bool behind) const;
  Id groupAt(size_t position) const;

  const CsvSchedule &csv;
  Id rank;
  std::vector<Cell> cells;
  std::vector<size_t> cellOfAction, cellOfWait;
};

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_CSVTRIAL_H
