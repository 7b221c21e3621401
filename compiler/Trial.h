//===- compiler/Trial.h - What a changed spec would need -----------------===//
//
// Questions that are answered by compiling: advice on a memory limit and the
// comparison of schedules ask them.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_TRIAL_H
#define SLUICE_COMPILER_TRIAL_H

#include "compiler/spec/Spec.h"
#include "ir/Units.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <optional>
#include <string_view>

namespace sluice {

/// What a spec comes to.
struct Needs {
  Bytes largestRank; ///< with the device's allowance
  Ticks makespan;    ///< with what copies to host memory add to it
};

/// What `spec` needs if it is compiled; none if it cannot be. One compilation,
/// without the proof of its plan.
std::optional<Needs> needsOf(const Spec &spec);

/// Whether `spec` asks for a schedule that the schedule allows. Linear in
/// stages.
bool scheduleIsLegal(const Spec &spec);

/// Makes the schedule of this name the spec's, whatever it was before.
void setSchedule(PipelineSpec &pipeline, std::string_view name);

/// The largest count in [low, high) for which `fits` holds, if it holds for
/// `low`, not for `high`, and for nothing above a count for which it does not.
/// Counts that are not `legal` are passed over. Logarithmic in calls of `fits`,
/// linear in calls of `legal`.
uint32_t largestThatFits(uint32_t low, uint32_t high,
                         llvm::function_ref<bool(uint32_t)> legal,
                         llvm::function_ref<bool(uint32_t)> fits);

/// The largest of a count of the spec with which the plan fits.
struct Largest {
  uint32_t count = 0;    ///< 0: it fits with none
  bool bySearch = false; ///< the search ended there: memory may allow more
};

/// The largest count up to `ceiling` with which `spec` needs at most `limit`
/// bytes a rank. Its own count is legal. Logarithmic in compilations.
Largest largestWithin(const Spec &spec, Bytes limit,
                      Located<uint32_t> PipelineSpec::*counted,
                      uint32_t ceiling);

} // namespace sluice

#endif // SLUICE_COMPILER_TRIAL_H
