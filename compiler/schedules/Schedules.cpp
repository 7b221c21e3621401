#include "compiler/schedules/Schedules.h"

#include "llvm/ADT/STLExtras.h"

namespace sluice {

namespace {
constexpr ScheduleInfo kSchedules[] = {
#define SLUICE_SCHEDULE(Program, Text, Placement, LaneRule, Backward, Chunks,  \
                        Warmup, Adjustable, Check)                             \
  {Text,                                                                       \
   PlacementKind::Placement,                                                   \
   Lanes::LaneRule,                                                            \
   BackwardRule::Backward,                                                     \
   Chunks,                                                                     \
   schedules::Warmup,                                                          \
   Adjustable,                                                                 \
   schedules::Check,                                                           \
   schedules::Program},
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

RankProgram programInSlots(std::vector<std::pair<uint64_t, Step>> slots) {
  llvm::sort(slots, llvm::less_first());
  Phase all{1, {}};
  for (const auto &[slot, step] : slots)
    all.steps.push_back(step);
  return {std::move(all)};
}

void schedules::evenRanks(std::string_view schedule,
                          const ScheduleProblem &problem, RuleSink sink) {
  uint32_t p = problem.ranks;
  if (p % 2 != 0)
    sink(true, RuleKey::Ranks,
         "schedule " + std::string(schedule) +
             " needs an even number of ranks, not " + number(p) +
             ": rank r mirrors rank p-1-r",
         "set pipeline.ranks to " + (p > 1 ? number(p - 1) + " or " : "") +
             number(p + 1));
}

void schedules::shortGroup(const ScheduleProblem &problem,
                           std::string_view group, uint32_t rest,
                           std::string_view cost, RuleSink sink) {
  uint32_t p = problem.ranks, m = problem.microbatches;
  sink(false, RuleKey::Microbatches,
       number(m) + (m == 1 ? " microbatch leaves" : " microbatches leave") +
           " a last " + std::string(group) + " of " + number(rest) +
           ", fewer than the " + number(p) + " ranks: " + std::string(cost),
       "without that cost: " + (m > rest ? number(m - rest) + " or " : "") +
           number(m - rest + p) + " microbatches");
}

} // namespace sluice
