#include "compiler/schedules/Schedules.h"

namespace sluice {

namespace {
constexpr ScheduleInfo kSchedules[] = {
#define SLUICE_SCHEDULE(Name, Text, Placement, LaneRule, Backward, Chunks,     \
                        Warmup, Adjustable, Check)                             \
  {Text,                                                                       \
   PlacementKind::Placement,                                                   \
   Lanes::LaneRule,                                                            \
   BackwardRule::Backward,                                                     \
   Chunks,                                                                     \
   schedules::Warmup,                                                          \
   Adjustable,                                                                 \
   schedules::Check,                                                           \
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

std::vector<RankProgram>
eachRank(const ScheduleProblem &problem,
         llvm::function_ref<RankProgram(Id rank)> program) {
  std::vector<RankProgram> programs;
  for (Id rank = 0; rank < problem.ranks; ++rank)
    programs.push_back(program(rank));
  return programs;
}

RankProgram pairedProgram(uint32_t forwards, uint32_t warmup) {
  return {{warmup, {{Op::Forward}}},
          {forwards - warmup, {{Op::Forward}, {Op::Backward}}},
          {warmup, {{Op::Backward}}}};
}

} // namespace sluice
