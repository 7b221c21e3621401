//===- tools/sluice/CsvTrial.h - A row of a schedule CSV, changed on trial ===//
#ifndef SLUICE_TOOLS_SLUICE_CSVTRIAL_H
#define SLUICE_TOOLS_SLUICE_CSVTRIAL_H

#include "tools/sluice/CsvSchedule.h"

#include <variant>
#include <vector>

namespace sluice {

/// The cells of one row, which can be changed. Positions are those of cells,
/// members of a group one each.
class CsvTrial {
public:
  CsvTrial(const Actions &of, Id row);

  /// Position of the row's action or aside `number`.
  size_t cellOf(size_t action) const { return cellOfAction[action]; }
  size_t cellOfAside(size_t aside) const { return cellOfWait[aside]; }

  /// Adds a message before the cell at `position`, or behind it; outside of
  /// groups.
  void insert(size_t position, bool behind, const OpRef &message);
  /// Moves the cell at `from` there, out of its group.
  void move(size_t from, size_t position, bool behind);
  /// Moves the cell at `from` there, within the group that both are of.
  void shift(size_t from, size_t position, bool behind);
  /// Lets two actions change places.
  void swap(size_t one, size_t other);

  /// All rows then.
  Actions actions() const;

private:
  using Cell = std::variant<Action, Aside>;
  size_t placeAt(size_t position, bool behind) const;
  void rotate(size_t from, size_t to);
  Id groupAt(size_t position) const;

  const Actions &all;
  Id rank;
  std::vector<Cell> cells;
  std::vector<size_t> cellOfAction, cellOfWait;
};

/// What is found in the file `csv` with other actions; none if they cannot be
/// made a plan. No remedies are looked for.
std::optional<verify::Result> proveActions(const CsvSchedule &csv,
                                           const Actions &actions);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_CSVTRIAL_H
