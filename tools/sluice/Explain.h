//===- tools/sluice/Explain.h - Why a plan holds --------------------------===//
#ifndef SLUICE_TOOLS_SLUICE_EXPLAIN_H
#define SLUICE_TOOLS_SLUICE_EXPLAIN_H

#include "ir/Plan.h"
#include "ir/verify/Verify.h"

#include "llvm/Support/raw_ostream.h"

namespace sluice {

/// Says for people why `plan`, which was proved right under `options`, holds:
/// its channels, each rank's messages in their order, and how its memory fills.
void explainPlan(const Plan &plan, const verify::Options &options,
                 const verify::Result &result, llvm::raw_ostream &out);

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_EXPLAIN_H
