#include "ir/Stage.h"

#include <algorithm>

namespace sluice {

Ticks Stage::duration(Op op) const {
  return costOf<Ticks>(op, {.forward = forward,
                            .backwardInput = backwardInput,
                            .backwardWeight = backwardWeight,
                            .recompute = recompute});
}

Ticks pairDuration(Ticks one, Ticks other, const Stage &ofOne,
                   const Stage &ofOther) {
  Ticks saving = std::min(ofOne.overlapSaving, ofOther.overlapSaving);
  return std::max({one, other, one + other - saving});
}

} // namespace sluice
