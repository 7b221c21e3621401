#include "compiler/emit/Table.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

namespace sluice {

void Table::print(llvm::raw_ostream &out) const {
  std::vector<size_t> widths(rows.front().cells.size());
  for (const Row &row : rows)
    for (size_t i = 0; i < row.cells.size(); ++i)
      widths[i] = std::max(widths[i], row.cells[i].size());
  for (const Row &row : rows) {
    for (size_t i = 0; i < row.cells.size(); ++i)
      out.indent(widths[i] - row.cells[i].size() + (i == 0 ? 2 : 3))
          << row.cells[i];
    out << row.behind << '\n';
  }
}

std::string percent(double part, double whole) {
  return llvm::formatv("{0:F1} %", whole > 0 ? 100 * part / whole : 0.0);
}

std::string shortNumber(double value) {
  std::string text = llvm::formatv("{0:F2}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.')
    text.pop_back();
  return text;
}

} // namespace sluice
