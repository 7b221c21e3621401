#include "compiler/Trial.h"

#include "compiler/MemoryLimit.h"
#include "compiler/passes/PassManager.h"
#include "compiler/schedules/Choice.h"
#include "compiler/simulate/Simulate.h"

#include <algorithm>

namespace sluice {

std::optional<Needs> needsOf(const Spec &spec) {
  Diagnostics ignored;
  Compilation trial(ignored);
  trial.spec = spec;
  if (!runPipeline(pipelineBefore("verify-plan"), trial))
    return std::nullopt;
  return Needs{neediestRank(*trial.plan).second,
               trial.timing->makespan + copyTime(*trial.plan)};
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

/// Finds the largest of one count of a spec with which it fits a limit.
namespace {
class Search {
public:
  Search(const Spec &original, Bytes memoryLimit,
         Located<uint32_t> PipelineSpec::*counted)
      : spec(original), limit(memoryLimit), field(counted) {}

  Largest upTo(uint32_t ceiling);

private:
  bool legal(uint32_t count) { return scheduleIsLegal(with(count)); }
  bool fits(uint32_t count) {
    std::optional<Needs> needed = needsOf(with(count));
    return needed && needed->largestRank <= limit;
  }
  const Spec &with(uint32_t count) {
    (spec.pipeline.*field).value = count;
    return spec;
  }

  Spec spec;
  Bytes limit;
  Located<uint32_t> PipelineSpec::*field;
};

} // namespace

/// Doubles the spec's own count, which is legal, as far as it fits; then
/// halves the rest.
Largest Search::upTo(uint32_t ceiling) {
  uint32_t now = (spec.pipeline.*field).value, low = 0, high = now;
  while (fits(high)) {
    low = high;
    if (low >= ceiling)
      return {low, true};
    high = std::min(ceiling, low * 2);
    while (high > low && !legal(high))
      --high;
    if (high == low)
      return {low, true};
  }
  return {largestThatFits(
              low, high, [&](uint32_t count) { return legal(count); },
              [&](uint32_t count) { return fits(count); }),
          false};
}

Largest largestWithin(const Spec &spec, Bytes limit,
                      Located<uint32_t> PipelineSpec::*counted,
                      uint32_t ceiling) {
  return Search(spec, limit, counted).upTo(ceiling);
}

} // namespace sluice
