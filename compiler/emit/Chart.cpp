#include "compiler/emit/Chart.h"

#include <algorithm>
#include <cmath>

namespace sluice {

std::vector<std::string> barChart(llvm::ArrayRef<Bytes> values, Bytes top,
                                  unsigned lines) {
  static constexpr const char *kBars[] = {" ", "▁", "▂", "▃", "▄",
                                          "▅", "▆", "▇", "█"};
  std::vector<std::string> chart(lines);
  for (Bytes value : values) {
    double share = static_cast<double>(value) / static_cast<double>(top);
    auto eighths = std::lround(share * 8 * lines);
    for (unsigned line = 0; line < lines; ++line) {
      long below = 8L * (lines - 1 - line);
      chart[line] += kBars[std::clamp(eighths - below, 0L, 8L)];
    }
  }
  return chart;
}

} // namespace sluice
