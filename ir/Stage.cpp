#include "ir/Stage.h"

namespace sluice {

Ticks Stage::duration(Op op) const {
  return costOf<Ticks>(op, {.forward = forward,
                            .backwardInput = backwardInput,
                            .backwardWeight = backwardWeight,
                            .recompute = recompute});
}

} // namespace sluice
