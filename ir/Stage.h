//===- ir/Stage.h - A stage: a run of layers with its costs and bytes ----===//
#ifndef SLUICE_IR_STAGE_H
#define SLUICE_IR_STAGE_H

#include "ir/Diagnostics.h"
#include "ir/Ops.h"
#include "ir/Units.h"

#include <span>
#include <string>
#include <string_view>

namespace sluice {

/// What a stage's forward leaves for its backward, and what R makes again
/// directly before it.
enum class RecomputePolicy : uint8_t {
  None,      ///< F leaves all; there is no R
  Selective, ///< F leaves what W needs too; of it R makes what only I needs
  Full       ///< F leaves a checkpoint; of it R makes all
};
/// By number; the words of specs and text forms.
inline constexpr std::string_view kRecomputePolicies[] = {"none", "selective",
                                                          "full"};

/// "full".
constexpr std::string_view recomputePolicyName(RecomputePolicy policy) {
  return kRecomputePolicies[static_cast<unsigned>(policy)];
}

/// Bytes of one stage. State is held for the whole run, the rest per
/// microbatch in flight or per running operation.
struct StageBytes {
  Bytes parameters = 0;
  Bytes gradients = 0;
  Bytes optimizer = 0;
  Bytes activation = 0;    ///< what its backward needs, per microbatch
  Bytes keptForWeight = 0; ///< of activation, what W still needs after I
  Bytes workspace = 0;     ///< scratch of one running operation
  /// Where a step clips gradients by their norm: of the whole model, for each
  /// tensor the sum of the squares of its gradients (64-bit floats).
  Bytes norms = 0;
  /// Of gradients, the first ones: those of a table of parameters that
  /// Stage::tiedTo holds too.
  Bytes tied = 0;
  Bytes checkpoint = 0; ///< what F leaves for R, if it leaves nothing else
};

/// A run of consecutive layers that is computed as a whole on one rank.
struct Stage {
  uint32_t firstLayer = 0; ///< of the model's layers
  uint32_t layers = 0;     ///< may be 0; embedding and head are not counted
  bool backward = true;    ///< false: nothing of it is trained
  RecomputePolicy recomputePolicy = RecomputePolicy::None;
  bool offload = false; ///< what its forward leaves may be in host memory
  Ticks forward = 0;    ///< per microbatch, as the next three
  Ticks backwardInput = 0;
  Ticks backwardWeight = 0;
  Ticks recompute = 0; ///< of R, where there is one
  /// What its forward saves by running together with a backward, and its
  /// backward with a forward.
  Ticks overlapSaving = 0;
  uint64_t parameterCount = 0;       ///< numbers, not bytes
  uint64_t activeParameterCount = 0; ///< used per token; fewer with experts
  StageBytes bytes;
  /// The stage that holds a copy of the same table of parameters (an embedding
  /// that is the output matrix too), and is tied to this one; kNone without.
  /// Each sums its own part of the table's gradients over the microbatches, and
  /// its step takes the sum of both parts.
  Id tiedTo = kNone;
  /// Of how many equal parts of the parameters one rank keeps the optimizer's
  /// state and takes the step; the others of its collective take the other
  /// parts, and all gather the parameters (ZeRO 1: Rajbhandari et al., arXiv
  /// 1910.02054). Parameters have as many equal parts.
  uint32_t optimizerParts = 1;
  /// As optimizerParts where the rank has the sum of its part of the gradients
  /// alone when it takes the step; 1 where it has that of all.
  uint32_t gradientParts = 1;
  /// Whether a rank keeps its part of the gradients alone between microbatches
  /// (ZeRO 2): each microbatch has its own in a buffer for all parts, which
  /// lives until they are summed over the ranks of the collective into the
  /// parts.
  bool gradientsPartitioned = false;
  SourceLocation location; ///< in the spec: the source map of its operations
  std::string description; ///< for the stage module (ModuleKeys.h)

  /// Whether each of its microbatches has an R.
  bool recomputes() const {
    return backward && recomputePolicy != RecomputePolicy::None;
  }
  /// Which of F and R makes what only I needs (activation less keptForWeight),
  /// and which what W needs too.
  Op savedBy() const { return recomputes() ? Op::Recompute : Op::Forward; }
  Op keptBy() const { return hasCheckpoint() ? Op::Recompute : Op::Forward; }
  /// Whether F leaves a checkpoint, for R.
  bool hasCheckpoint() const {
    return backward && recomputePolicy == RecomputePolicy::Full;
  }

  /// Bytes of gradients that a rank keeps for the whole run.
  Bytes gradientsKept() const {
    return gradientsPartitioned && gradientParts != 0
               ? bytes.gradients / gradientParts
               : bytes.gradients;
  }

  /// Bytes that F leaves for R, or for the backward.
  Bytes leftBytes() const;

  /// Time of `op` for one microbatch; 0 for what is not compute.
  Ticks duration(Op op) const;
};

/// Time of a unit of two operations that take so long by themselves, of two
/// stages: both in sequence less what either stage saves, at least the longer.
Ticks pairDuration(Ticks one, Ticks other, const Stage &ofOne,
                   const Stage &ofOther);

/// What is wrong with how `stage` recomputes ("recomputes, but …") or is
/// offloaded; empty if nothing is.
std::string recomputeFault(const Stage &stage);

/// What is wrong with the tie of `stages[stage]` ("is tied to …"); empty if
/// nothing is.
std::string tieFault(std::span<const Stage> stages, Id stage);

/// What is wrong with the parts of `stage` ("has its optimizer in …"); empty if
/// nothing is.
std::string partsFault(const Stage &stage);

/// Forward data between two stages; where both have a backward, a gradient of
/// as many bytes flows the other way.
struct StageEdge {
  Id from;
  Id to;
  Bytes bytes; ///< per microbatch
};

} // namespace sluice

#endif // SLUICE_IR_STAGE_H
