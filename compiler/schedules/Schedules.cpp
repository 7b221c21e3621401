#include "compiler/schedules/Schedules.h"

#include <algorithm>

namespace sluice {

std::string_view placementName(PlacementKind kind) {
  switch (kind) {
  case PlacementKind::Linear:
    return "linear";
  }
  return "";
}

namespace {
namespace warmups {
constexpr uint32_t (*none)(const ScheduleProblem &, Id) = nullptr;

uint32_t allForwards(const ScheduleProblem &problem, Id) {
  return problem.microbatches;
}

/// PipeDream-flush: the first backward of rank r can only come back after the
/// p-1-r ranks behind it have had their forward.
uint32_t oneFOneB(const ScheduleProblem &problem, Id rank) {
  return std::min(problem.microbatches, problem.ranks - 1 - rank);
}
} // namespace warmups

constexpr ScheduleInfo kSchedules[] = {
#define SLUICE_SCHEDULE(Name, Text, Placement, Warmup, Adjustable)             \
  {Text, PlacementKind::Placement, warmups::Warmup, Adjustable,                \
   schedules::Name},
#include "compiler/schedules/Schedules.def"
};
} // namespace

llvm::ArrayRef<ScheduleInfo> allSchedules() { return kSchedules; }

const ScheduleInfo *findSchedule(std::string_view text) {
  for (const ScheduleInfo &schedule : kSchedules)
    if (schedule.text == text)
      return &schedule;
  return nullptr;
}

RankProgram pairedProgram(uint32_t microbatches, uint32_t warmup) {
  return {{warmup, {Op::Forward}},
          {microbatches - warmup, {Op::Forward, Op::Backward}},
          {warmup, {Op::Backward}}};
}

} // namespace sluice
