//===- ir/verify/Cells.h - What of each stage and microbatch is there ----===//
//
// A cell is a stage and a microbatch: one forward and, if the stage is trained,
// one backward, whole or in two parts, and, if it recomputes, one recompute,
// all on one rank.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_VERIFY_CELLS_H
#define SLUICE_IR_VERIFY_CELLS_H

#include "ir/verify/Internal.h"

#include <functional>

namespace sluice::verify {

/// Whether so many of `cells` must be empty that no table of them is worth its
/// memory: then only that much is missing is told.
inline bool areMostlyEmpty(uint64_t cells, uint64_t operations) {
  constexpr uint64_t kAlwaysCounted = uint64_t(1) << 20;
  return cells > kAlwaysCounted && cells > operations;
}

/// Counts computations, rank after rank, and tells what is wrong with them.
class Cells {
public:
  Cells(std::span<const Stage> of, uint32_t microbatchCount, Report &to)
      : stages(of), microbatches(microbatchCount), report(to),
        holdersOf(of.size()) {}

  /// Makes the tables, unless so many cells must be empty that this is told
  /// instead; `operations` is how many there are at most.
  bool open(uint64_t operations);

  /// Takes a computation. Those of a rank follow each other.
  void add(const OpRef &op, OpPlace place) {
    Seen bit = bitOf(op.op);
    Seen &cell = seen[size_t(op.stage) * microbatches + op.microbatch];
    if (Holders &of = holdersOf[op.stage]; of.last != place.rank)
      of = {place.rank, of.count + 1};
    if ((cell >> kRankShift) == 0)
      cell |= (place.rank + 1) << kRankShift;
    if ((cell >> kRankShift) != place.rank + 1 || (cell & clashesOf(bit)) ||
        !isComputed(bit, stages[op.stage]))
      explain(op, place, cell);
    cell |= bit;
  }

  /// The operation at position `at` of the list of a rank; none behind its end.
  using OpOfRank = std::function<std::optional<OpRef>(Id rank, uint32_t at)>;
  /// Tells what is missing.
  void finish(const OpOfRank &opOfRank);

  /// On how many ranks something of `stage` is computed.
  Id holders(Id stage) const { return holdersOf[stage].count; }

private:
  /// A bit per kind of computation in the low bits, above them the rank of the
  /// cell plus one.
  using Seen = uint32_t;
  static constexpr unsigned kRankShift = 5;
  static constexpr Seen kForward = 1, kBackward = 2, kInput = 4, kWeight = 8,
                        kRecompute = 16;

  static constexpr Seen bitOf(Op op) {
    switch (op) {
    case Op::Forward:
      return kForward;
    case Op::Backward:
      return kBackward;
    case Op::BackwardInput:
      return kInput;
    case Op::BackwardWeight:
      return kWeight;
    case Op::Recompute:
      return kRecompute;
    case Op::SendForward:
    case Op::RecvForward:
    case Op::SendBackward:
    case Op::RecvBackward:
    case Op::OptimizerStep:
    case Op::SendGradients:
    case Op::RecvGradients:
    case Op::AddGradients:
    case Op::SendTied:
    case Op::RecvTied:
    case Op::AllReduceGradients:
    case Op::ReduceScatterGradients:
    case Op::ReduceScatterMicrobatch:
    case Op::AllGatherParameters:
    case Op::NormGradients:
    case Op::AllReduceNorms:
    case Op::Offload:
    case Op::Reload:
      return 0;
    }
    return 0;
  }

  /// What a cell may not have yet where `bit` comes: a backward is whole or
  /// split, not both.
  static constexpr Seen clashesOf(Seen bit) {
    return bit | (bit == kBackward             ? kInput | kWeight
                  : (bit & (kInput | kWeight)) ? kBackward
                                               : 0);
  }

  /// Whether a stage has what `bit` stands for.
  static bool isComputed(Seen bit, const Stage &stage) {
    return bit == kForward ||
           (stage.backward && (bit != kRecompute ||
                               stage.recomputePolicy != RecomputePolicy::None));
  }

  struct Holders {
    Id last = kNone;
    Id count = 0;
  };

  void explain(const OpRef &op, OpPlace place, Seen cell);
  void checkCell(Id stage, Id microbatch, const OpOfRank &opOfRank);
  static OpPlace nearest(Id rank, Id stage, Id microbatch,
                         const OpOfRank &opOfRank);
  void tell(FindingKind kind, std::optional<OpPlace> place,
            std::string message) {
    if (report.admits(kind))
      report.error(kind, place, std::move(message));
  }

  std::span<const Stage> stages;
  uint32_t microbatches;
  Report &report;
  std::vector<Seen> seen; ///< stage by stage
  std::vector<Holders> holdersOf;
};

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_CELLS_H
