//===- compiler/emit/Chart.h - Bars in a terminal ------------------------===//
#ifndef SLUICE_COMPILER_EMIT_CHART_H
#define SLUICE_COMPILER_EMIT_CHART_H

#include "ir/Units.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace sluice {

/// Columns of a chart.
inline constexpr size_t kChartWidth = 60;

/// `values` as bars of block characters, one a value, in so many lines, the
/// upper first. A bar of `top`, which is not 0, fills all lines; heights are
/// rounded to an eighth of a line.
std::vector<std::string> barChart(llvm::ArrayRef<Bytes> values, Bytes top,
                                  unsigned lines);

} // namespace sluice

#endif // SLUICE_COMPILER_EMIT_CHART_H
