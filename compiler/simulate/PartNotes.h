//===- compiler/simulate/PartNotes.h - What ZeRO keeps off a rank ---------===//
#ifndef SLUICE_COMPILER_SIMULATE_PARTNOTES_H
#define SLUICE_COMPILER_SIMULATE_PARTNOTES_H

#include "ir/Plan.h"

#include <string>
#include <vector>

namespace sluice {

/// Sentences about the state that a plan has in parts: what the rank that saves
/// most holds of the optimizer, and what the one that has most gradients holds
/// of these, with what they would take whole. None where all is whole. Linear.
std::vector<std::string> partNotes(const Plan &plan);

} // namespace sluice

#endif // SLUICE_COMPILER_SIMULATE_PARTNOTES_H
