//===- compiler/emit/Table.h - Tables and numbers for people -------------===//
#ifndef SLUICE_COMPILER_EMIT_TABLE_H
#define SLUICE_COMPILER_EMIT_TABLE_H

#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

/// Rows of cells, the first a heading, each column as wide as its widest cell
/// and all to the right. What stands behind a row is in no column.
class Table {
public:
  explicit Table(std::vector<std::string> heading) { add(std::move(heading)); }
  void add(std::vector<std::string> cells, std::string behind = "") {
    rows.push_back({std::move(cells), std::move(behind)});
  }
  void print(llvm::raw_ostream &out) const;

private:
  struct Row {
    std::vector<std::string> cells;
    std::string behind;
  };
  std::vector<Row> rows;
};

/// "27.3 %".
std::string percent(double part, double whole);

/// With at most two decimals.
std::string shortNumber(double value);

} // namespace sluice

#endif // SLUICE_COMPILER_EMIT_TABLE_H
