//===- compiler/schedules/ForwardOnly.cpp - Inference: no backward at all -===//
#include "compiler/schedules/Schedules.h"

namespace sluice {

std::vector<RankProgram> schedules::forwardOnly(const ScheduleProblem &problem,
                                                llvm::ArrayRef<uint32_t>) {
  return eachRank(problem, [&](Id) {
    return RankProgram{{problem.microbatches, {{Op::Forward}}}};
  });
}

} // namespace sluice
