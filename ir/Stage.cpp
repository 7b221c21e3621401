#include "ir/Stage.h"

namespace sluice {

Ticks Stage::duration(Op op) const {
  switch (op) {
  case Op::Forward:
    return forward;
  case Op::Backward:
    return backwardInput + backwardWeight;
  case Op::BackwardInput:
    return backwardInput;
  case Op::BackwardWeight:
    return backwardWeight;
  case Op::Recompute:
    return recompute;
  case Op::SendForward:
  case Op::RecvForward:
  case Op::SendBackward:
  case Op::RecvBackward:
  case Op::OptimizerStep:
    return 0;
  }
  return 0;
}

} // namespace sluice
