#include "ir/verify/Cells.h"

#include <algorithm>

namespace sluice::verify {

bool Cells::open(uint64_t operations) {
  uint64_t cells = uint64_t(stages.size()) * microbatches;
  if (areMostlyEmpty(cells, operations)) {
    tell(FindingKind::Missing, {},
         std::to_string(cells) + " forwards are needed, there are " +
             std::to_string(operations) + " operations");
    return false;
  }
  seen.assign(cells, 0);
  return true;
}

/// Tells what may be wrong with one more computation of `cell`.
void Cells::explain(const OpRef &op, OpPlace place, Seen cell) {
  Seen bit = bitOf(op.op);
  if ((cell >> kRankShift) != place.rank + 1)
    tell(FindingKind::Order, place,
         nameOf(op) + " is on rank " + std::to_string(place.rank) +
             ", the rest of stage " + std::to_string(op.stage) +
             ", microbatch " + std::to_string(op.microbatch) + " on rank " +
             std::to_string((cell >> kRankShift) - 1));
  auto beside = [&](Op other) {
    tell(FindingKind::Duplicate, place,
         nameOf(op) + " stands beside " +
             opName(other, op.stage, op.microbatch) +
             ": a backward is whole or split, not both");
  };
  if (cell & bit)
    tell(FindingKind::Duplicate, place, nameOf(op) + " stands twice");
  else if (!stages[op.stage].backward && bit != kForward)
    tell(FindingKind::Malformed, place,
         nameOf(op) + " is computed, but stage " + std::to_string(op.stage) +
             " has no backward");
  else if (!isComputed(bit, stages[op.stage]))
    tell(FindingKind::Malformed, place,
         nameOf(op) + " is computed, but stage " + std::to_string(op.stage) +
             " has recompute policy none");
  else if (bit == kBackward && (cell & (kInput | kWeight)))
    beside(cell & kInput ? Op::BackwardInput : Op::BackwardWeight);
  else if ((bit & (kInput | kWeight)) && (cell & kBackward) &&
           !(cell & (kInput | kWeight))) // of two parts one is told
    beside(Op::Backward);
}

void Cells::finish(const OpOfRank &opOfRank) {
  for (Id s = 0; s < stages.size(); ++s)
    for (Id k = 0; k < microbatches; ++k)
      checkCell(s, k, opOfRank);
}

/// Where on a rank, which computes something of the stage, to tell that a stage
/// and microbatch lack something: at its first computation of both, else at the
/// end of its list.
OpPlace Cells::nearest(Id rank, Id stage, Id microbatch,
                       const OpOfRank &opOfRank) {
  uint32_t at = 0;
  for (; std::optional<OpRef> op = opOfRank(rank, at); ++at)
    if (isCompute(op->op) && op->stage == stage && op->microbatch == microbatch)
      return {rank, at};
  return {rank, at - 1};
}

void Cells::checkCell(Id stage, Id microbatch, const OpOfRank &opOfRank) {
  auto missing = [&](Op op) {
    if (!report.admits(FindingKind::Missing))
      return;
    const Seen *first = &seen[size_t(stage) * microbatches];
    const Seen *known = first + microbatch;
    if ((*known >> kRankShift) == 0)
      known = std::find_if(first, first + microbatches,
                           [](Seen of) { return of >> kRankShift != 0; });
    std::optional<OpPlace> place;
    if (known != first + microbatches)
      place = nearest((*known >> kRankShift) - 1, stage, microbatch, opOfRank);
    report.error(FindingKind::Missing, place,
                 opName(op, stage, microbatch) + " is missing");
  };
  Seen cell = seen[size_t(stage) * microbatches + microbatch];
  Seen backward = cell & (kBackward | kInput | kWeight);
  if (!(cell & kForward))
    missing(Op::Forward);
  if (!stages[stage].backward)
    return;
  if (isComputed(kRecompute, stages[stage]) && !(cell & kRecompute))
    missing(Op::Recompute);
  if ((backward & kBackward) || backward == (kInput | kWeight))
    return;
  missing(backward == 0        ? Op::Backward
          : backward == kInput ? Op::BackwardWeight
                               : Op::BackwardInput);
}

} // namespace sluice::verify
