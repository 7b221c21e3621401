//===- compiler/spec/RunSection.h - `run`, which a plan carries too ------===//
#ifndef SLUICE_COMPILER_SPEC_RUNSECTION_H
#define SLUICE_COMPILER_SPEC_RUNSECTION_H

#include "compiler/spec/Parser.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

/// The section as a plan carries it, in order of the keys; without those that
/// have no value. A data file stays as it is written: whoever runs the plan
/// looks for it.
std::vector<std::pair<std::string, std::string>> runEntries(const RunSpec &run);

/// Reads overrides of keys `run.KEY` by the rules of a spec, reporting all
/// faults; none if there is one.
std::optional<RunSpec> parseRunOverrides(const std::vector<Override> &overrides,
                                         Diagnostics &diagnostics);

/// Warns of keys that are given but have no effect on training with `spec`.
/// `module` is what is run if that is known to differ from the spec's, else
/// empty; `shipped` are the modules that are named without a path.
void warnOfIdleKeys(const Spec &spec, std::string_view module,
                    const std::vector<std::string_view> &shipped,
                    Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_COMPILER_SPEC_RUNSECTION_H
