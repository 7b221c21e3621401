//===- compiler/model/Profile.h - Times that were measured ----------------===//
#ifndef SLUICE_COMPILER_MODEL_PROFILE_H
#define SLUICE_COMPILER_MODEL_PROFILE_H

#include "compiler/model/Work.h"
#include "compiler/spec/Spec.h"

namespace sluice {

/// What the profile of `model` says of a kind of layer; null if there is none.
const LayerTimes *measuredTimes(const ModelSpec &model, std::string_view layer);

/// The time of one pass, given or not.
const Located<Ticks> &timeOf(const LayerTimes &times, CostPass pass);

/// Warns of sizes that the times were measured with and the spec does not have.
void checkProfile(const Spec &spec, Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_PROFILE_H
