#include "compiler/schedules/DualPipes.h"

namespace sluice {

static constexpr Step kForward0{Op::Forward, 0}, kForward1{Op::Forward, 1},
    kBackward0{Op::Backward, 0}, kBackward1{Op::Backward, 1},
    kInput0{Op::BackwardInput, 0}, kInput1{Op::BackwardInput, 1},
    kWeight{Op::BackwardWeight, kOldestLane};

static Step joined(Step step) {
  step.joined = true;
  return step;
}

RankProgram dualPhases(uint32_t h, uint32_t half, uint32_t microbatches) {
  uint32_t before = half - 1 - h, after = h + 1;
  uint32_t main = microbatches - 2 * half + h + 1;
  Step overlap0 = joined(kForward0), overlap1 = joined(kForward1);
  RankProgram program{{2 * before, {kForward0}},
                      {after, {kForward0, kForward1}},
                      {before, {kInput1, kWeight, kForward1}}};
  // On the innermost rank the first pair is one microbatch that turns round.
  if (before == 0)
    program.push_back({1, {kForward0, kBackward1, overlap1, kBackward0}});
  program.push_back({before == 0 ? main - 1 : main,
                     {overlap0, kBackward1, overlap1, kBackward0}});
  program.push_back({before, {kBackward1, overlap1, kBackward0}});
  // The second half of the last backwards is split, to pass gradients on early.
  uint32_t whole = after / 2;
  program.push_back({whole, {kBackward1, kBackward0}});
  if (h % 2 == 0)
    program.push_back({1, {kBackward1, kInput0}});
  program.push_back({after - whole - (h % 2 == 0 ? 1 : 0), {kInput1, kInput0}});
  program.push_back({before, {kWeight, kInput0}});
  program.push_back({after, {kWeight}});
  return program;
}

} // namespace sluice
