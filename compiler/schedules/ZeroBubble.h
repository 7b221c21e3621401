//===- compiler/schedules/ZeroBubble.h - Weight gradients put off ---------===//
#ifndef SLUICE_COMPILER_SCHEDULES_ZEROBUBBLE_H
#define SLUICE_COMPILER_SCHEDULES_ZEROBUBBLE_H

#include "compiler/schedules/Schedules.h"

#include <algorithm>

namespace sluice {

/// One chunk, backward split: `warmup` forwards, then pairs of F and I of which
/// the first `delayed` have no W behind them, then I and W in turn, then the W
/// that are left.
inline RankProgram delayedWeights(uint32_t microbatches, uint32_t warmup,
                                  uint32_t delayed) {
  uint32_t pairs = microbatches - warmup;
  delayed = std::min(delayed, pairs);
  return {{warmup, {{Op::Forward}}},
          {delayed, {{Op::Forward}, {Op::BackwardInput}}},
          {pairs - delayed,
           {{Op::Forward}, {Op::BackwardInput}, {Op::BackwardWeight}}},
          {warmup, {{Op::BackwardInput}, {Op::BackwardWeight}}},
          {delayed, {{Op::BackwardWeight}}}};
}

} // namespace sluice

#endif // SLUICE_COMPILER_SCHEDULES_ZEROBUBBLE_H
