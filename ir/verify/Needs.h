//===- ir/verify/Needs.h - What must come before what ---------------------===//
//
// The dependences of the model by names alone, for what names no buffers.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_VERIFY_NEEDS_H
#define SLUICE_IR_VERIFY_NEEDS_H

#include "ir/Ops.h"

namespace sluice::verify {

/// What an operation needs that is computed of the same microbatch.
struct Needs {
  bool forward = false;     ///< F of its stage
  bool recompute = false;   ///< R of its stage, where it recomputes
  bool input = false;       ///< B or I of its stage
  bool weight = false;      ///< B or W of its stage
  bool activations = false; ///< F of every stage that an edge leads from
  bool gradients = false; ///< B or I of every one that an edge leads to, where
                          ///< both are trained
};

constexpr Needs needsOf(Op op) {
  switch (op) {
  case Op::Forward:
    return {.activations = true};
  case Op::Backward:
  case Op::BackwardInput:
    return {.forward = true, .recompute = true, .gradients = true};
  case Op::BackwardWeight:
  case Op::SendBackward:
    return {.input = true};
  case Op::Recompute:
  case Op::SendForward:
    return {.forward = true};
  case Op::ReduceScatterMicrobatch:
    return {.weight = true};
  case Op::RecvForward:
  case Op::RecvBackward:
  case Op::OptimizerStep:
  case Op::SendGradients:
  case Op::RecvGradients:
  case Op::AddGradients:
  case Op::SendTied:
  case Op::RecvTied:
  case Op::AllReduceGradients:
  case Op::ReduceScatterGradients:
  case Op::AllGatherParameters:
  case Op::NormGradients:
  case Op::AllReduceNorms:
  case Op::Offload:
  case Op::Reload:
    return {};
  }
  return {};
}

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_NEEDS_H
