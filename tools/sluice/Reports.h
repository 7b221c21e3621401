//===- tools/sluice/Reports.h - The report of a compilation --------------===//
#ifndef SLUICE_TOOLS_SLUICE_REPORTS_H
#define SLUICE_TOOLS_SLUICE_REPORTS_H

#include "compiler/Compilation.h"
#include "compiler/simulate/Report.h"

namespace sluice {

/// The report of a compilation that has a graph, a schedule and its timing;
/// with bytes if it has a plan. Warnings are those of its diagnostics.
Report reportOf(const Compilation &compilation);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_REPORTS_H
