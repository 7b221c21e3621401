#include "ir/Stage.h"

#include <algorithm>
#include <iterator>

namespace sluice {

Ticks Stage::duration(Op op) const {
  return costOf<Ticks>(op, {.forward = forward,
                            .backwardInput = backwardInput,
                            .backwardWeight = backwardWeight,
                            .recompute = recompute});
}

Bytes Stage::leftBytes() const {
  if (!backward)
    return 0;
  Bytes kept = bytes.keptForWeight;
  return (savedBy() == Op::Forward ? bytes.activation - kept : 0) +
         (keptBy() == Op::Forward ? kept : 0) +
         (hasCheckpoint() ? bytes.checkpoint : 0);
}

Ticks pairDuration(Ticks one, Ticks other, const Stage &ofOne,
                   const Stage &ofOther) {
  Ticks saving = std::min(ofOne.overlapSaving, ofOther.overlapSaving);
  return std::max({one, other, one + other - saving});
}

std::string recomputeFault(const Stage &stage) {
  auto policy = static_cast<unsigned>(stage.recomputePolicy);
  if (policy >= std::size(kRecomputePolicies))
    return "has an unknown recompute policy " + std::to_string(policy);
  if (stage.recomputePolicy != RecomputePolicy::None && !stage.backward)
    return "has recompute policy " +
           std::string(recomputePolicyName(stage.recomputePolicy)) +
           ", but no backward";
  return stage.offload && !stage.backward ? "is offloaded, but has no backward"
                                          : "";
}

std::string partsFault(const Stage &stage) {
  const uint64_t parts = stage.optimizerParts;
  const std::string has =
      "has its optimizer in " + std::to_string(parts) + " parts, but ";
  if (parts == 0 || (stage.gradientParts != 1 && stage.gradientParts != parts))
    return "has " + std::to_string(parts) + " parts of its optimizer and " +
           std::to_string(stage.gradientParts) + " of its gradients";
  if (parts > 1 && !stage.backward)
    return has + "no backward";
  if (stage.bytes.parameters % parts != 0)
    return has + std::to_string(stage.bytes.parameters) +
           " bytes of parameters";
  if (stage.gradientParts == 1)
    return stage.gradientsPartitioned
               ? "keeps a part of its gradients, but needs them whole"
               : "";
  constexpr uint64_t kSummed = bytesOf(Element::Float32);
  if (stage.bytes.gradients % (kSummed * parts) != 0)
    return has + std::to_string(stage.bytes.gradients) +
           " bytes of gradients, of " + std::to_string(kSummed) + " each";
  if (stage.tiedTo != kNone)
    return has + "its gradients are needed whole by stage " +
           std::to_string(stage.tiedTo) + ", which it is tied to";
  return stage.bytes.norms == 0 ? ""
                                : has + "their norms are computed of whole "
                                        "gradients";
}

std::string tieFault(std::span<const Stage> stages, Id stage) {
  const Stage &one = stages[stage];
  auto tiedTo = [&] {
    return "is tied to stage " + std::to_string(one.tiedTo);
  };
  if (one.tiedTo == kNone)
    return one.bytes.tied == 0 ? ""
                               : "has " + std::to_string(one.bytes.tied) +
                                     " tied bytes, but is tied to no stage";
  if (one.tiedTo >= stages.size())
    return tiedTo() + ", but there are " + std::to_string(stages.size());
  const Stage &other = stages[one.tiedTo];
  if (other.tiedTo != stage || one.tiedTo == stage)
    return tiedTo() + ", which is not tied to it";
  if (one.bytes.tied != other.bytes.tied)
    return tiedTo() + " by " + std::to_string(one.bytes.tied) +
           " bytes, which is tied to it by " + std::to_string(other.bytes.tied);
  if (one.bytes.tied > one.bytes.gradients)
    return tiedTo() + " by " + std::to_string(one.bytes.tied) + " of " +
           std::to_string(one.bytes.gradients) + " bytes of gradients";
  if (!one.backward || !other.backward)
    return tiedTo() + ", and one of the two has no backward";
  return {};
}

} // namespace sluice
