//===- ir/PlanSections.h - A plan to and from the sections of its file ----===//
#ifndef SLUICE_IR_PLANSECTIONS_H
#define SLUICE_IR_PLANSECTIONS_H

#include "ir/Plan.h"

#include <span>

namespace flatbuffers {
class FlatBufferBuilder;
}

namespace sluice::planfile {

/// FlatBuffers reach 2 GiB; a section stays clear of that.
inline constexpr uint64_t kMaxSectionBytes = (uint64_t(1) << 31) - (1 << 20);

/// What a section will take at most, before any of it is made.
uint64_t headerBound(const Plan &plan);
uint64_t rankBound(const RankPlan &rank);

/// Makes a section in the (cleared) builder, the same bytes for the same plan.
/// The bound above must be within kMaxSectionBytes. The size is a multiple
/// of 8.
void encodeHeader(const Plan &plan, flatbuffers::FlatBufferBuilder &builder);
void encodeRank(const RankPlan &rank, flatbuffers::FlatBufferBuilder &builder);

/// Reads a section (8-byte aligned, at most kMaxSectionBytes) that may hold
/// anything. False if it is not one; what it holds may still be out of range
/// (PlanStructure.h). Takes no more memory than a small multiple of the
/// section. decodeHeader leaves `plan.ranks` alone.
[[nodiscard]] bool decodeHeader(std::span<const uint8_t> section, Plan &plan);
[[nodiscard]] bool decodeRank(std::span<const uint8_t> section, RankPlan &rank);

} // namespace sluice::planfile

#endif // SLUICE_IR_PLANSECTIONS_H
