#include "compiler/schedules/Schedules.h"

namespace sluice {

std::string_view placementName(PlacementKind kind) {
  switch (kind) {
  case PlacementKind::Linear:
    return "linear";
  }
  return "";
}

namespace {
constexpr ScheduleInfo kSchedules[] = {
#define SLUICE_SCHEDULE(Name, Text, Placement, Warmup, Adjustable)             \
  {Text, PlacementKind::Placement, schedules::Warmup, Adjustable,              \
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
