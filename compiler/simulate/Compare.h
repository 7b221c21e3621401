//===- compiler/simulate/Compare.h - Schedules side by side --------------===//
#ifndef SLUICE_COMPILER_SIMULATE_COMPARE_H
#define SLUICE_COMPILER_SIMULATE_COMPARE_H

#include "compiler/Trial.h"
#include "compiler/spec/Spec.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct Compilation;

/// One schedule of a comparison.
struct ComparedSchedule {
  std::string name;
  bool own = false; ///< the spec's
  /// Keys of the spec's pipeline section that hold for it, of those that a
  /// schedule may refuse.
  std::vector<std::string> keys;
  std::string reason;   ///< why there is no plan, or none that fits; else empty
  bool trains = true;   ///< false: it has no backward, and is never the best
  bool planned = false; ///< there is a plan: what follows has a meaning
  /// Both with what copies to host memory add to them.
  Ticks makespan = 0;
  Ticks span = 0;
  Ticks copies = 0; ///< what that is
  double bubbleFraction = 0;
  double peakActivation = 0; ///< of the rank that has most, in microbatches
  bool hasBytes = false;     ///< false where the spec gives no sizes
  Bytes bytes = 0; ///< of the largest rank, with the device's allowance
  bool bestMakespan = false, bestSpan = false; ///< of those that fit
  /// What fits within the memory limit, the spec else unchanged.
  std::optional<Largest> microbatches;
  std::optional<Largest> microbatchSize;

  bool fits() const { return planned && reason.empty(); }
};

/// The spec's own schedule first, then others, each once.
struct Comparison {
  std::string model;
  uint32_t ranks = 0;
  uint32_t microbatches = 0;
  TimeUnit timeUnit = TimeUnit::Unit;
  Objective objective = Objective::Makespan;
  Bytes memoryLimit = 0; ///< 0: unlimited
  std::vector<ComparedSchedule> schedules;

  /// Whether any has a plan that fits.
  bool anyFits() const;
};

/// Compiles the spec of `own`, which has been through the full pipeline, with
/// the schedules of these names, which must be known. A list of warmup counts
/// is of the spec's own schedule only, `auto` of all that take counts; its
/// virtual stages, placement and split of backwards hold for another schedule
/// unless that refuses them, and so do layers per stage unless it has other
/// stages. With a memory limit, some tens of compilations a schedule, of at
/// most kSearchedOps operations or twice those of the spec.
Comparison compareSchedules(const Compilation &own,
                            llvm::ArrayRef<std::string> names);

inline constexpr uint64_t kSearchedOps = 200'000;

} // namespace sluice

#endif // SLUICE_COMPILER_SIMULATE_COMPARE_H
