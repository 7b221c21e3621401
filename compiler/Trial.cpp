#include "compiler/Trial.h"

#include "compiler/MemoryLimit.h"
#include "compiler/passes/PassManager.h"
#include "compiler/schedules/Choice.h"

namespace sluice {

std::optional<Needs> needsOf(const Spec &spec) {
  Diagnostics ignored;
  Compilation trial(ignored);
  trial.spec = spec;
  if (!runPipeline(pipelineBefore("verify-plan"), trial))
    return std::nullopt;
  return Needs{neediestRank(*trial.plan).second, trial.timing->makespan};
}

bool scheduleIsLegal(const Spec &spec) {
  Diagnostics ignored;
  return chooseSchedule(spec, ignored).has_value();
}

void setSchedule(PipelineSpec &pipeline, std::string_view name) {
  pipeline.schedule.value = std::string(name);
  pipeline.ownOrders = false;
  pipeline.scheduleCsv = {};
  pipeline.scheduleOrders.clear();
}

uint32_t largestThatFits(uint32_t low, uint32_t high,
                         llvm::function_ref<bool(uint32_t)> legal,
                         llvm::function_ref<bool(uint32_t)> fits) {
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2, tried = middle;
    while (tried > low && !legal(tried))
      --tried;
    if (tried == low) // nothing up to the middle
      for (tried = middle + 1; tried < high && !legal(tried);)
        ++tried;
    if (tried == high)
      break;
    (fits(tried) ? low : high) = tried;
  }
  return low;
}

} // namespace sluice
