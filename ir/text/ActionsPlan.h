//===- ir/text/ActionsPlan.h - The plan that a schedule CSV stands for ----===//
#ifndef SLUICE_IR_TEXT_ACTIONSPLAN_H
#define SLUICE_IR_TEXT_ACTIONSPLAN_H

#include "ir/Diagnostics.h"
#include "ir/Plan.h"
#include "ir/text/Actions.h"

#include <optional>
#include <span>

namespace sluice {

/// What a microbatch takes on each rank, its stages together, and a message.
struct ActionCosts {
  OpCosts<Ticks> rank = {.forward = ticksPer(TimeUnit::Unit),
                         .backwardInput = ticksPer(TimeUnit::Unit),
                         .backwardWeight = ticksPer(TimeUnit::Unit)};
  Ticks message = 0;
  TimeUnit unit = TimeUnit::Unit;
};

/// The stages of a chain on the ranks that compute them, and the actions of
/// `actions` in their order, one operation an action. Compute is one stream;
/// every channel has a communicator and streams of its own, so that progress
/// models alone order messages. A send waits for what computes it, and compute
/// for its receives, where these stand before it; the next of either kind waits
/// for the sends of the WAIT_SENDs before it. No operation names a buffer
/// but messages, which a plan demands it of: verify it without buffers. Without
/// messages the plan is of what computes alone, with the channels that messages
/// would take.
///
/// As a CSV does not say how many stages and microbatches there are, they are
/// counted from 0 up to the first number that is not there. Refused, with
/// their places: numbers after that, a stage on two ranks, messages on another
/// rank than computes their stage or to where nothing goes, and so what moves
/// parameters and gradients; waits for what does not stand before them.
/// O(actions), times the logarithm of the REDUCE_GRADs.
std::optional<Plan> planOfActions(const Actions &actions,
                                  std::span<const ActionLine> lines,
                                  const ActionCosts &costs,
                                  Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_IR_TEXT_ACTIONSPLAN_H
