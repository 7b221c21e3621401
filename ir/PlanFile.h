//===- ir/PlanFile.h - The plan file -------------------------------------===//
//
// A preamble, a table of sections with a hash each, a content hash over both;
// then the header section and one section per rank (PlanFile.fbs). A rank reads
// the header and its own section only. Reading is: bounds-check, compare
// hashes, check the structure (every index in range), then hand over; that the
// plan is *right* is for ir/verify.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_PLANFILE_H
#define SLUICE_IR_PLANFILE_H

#include "ir/Plan.h"
#include "ir/Status.h"

#include <string>
#include <string_view>

namespace sluice {

/// The one version constant. Major: older and newer files are refused. Minor:
/// additions that an older reader may not know; a newer minor is refused.
inline constexpr uint16_t kPlanFileMajor = 9;
inline constexpr uint16_t kPlanFileMinor = 0;

/// True if `bytes` (the start of a file suffices) begin with the plan magic.
bool isPlanFile(std::string_view bytes);

/// Writes `plan` aside, syncs and renames (AsideFile.h), so that no
/// half-written file ever has the name `path`. Sections are made one at a time:
/// peak memory is that of the largest rank. Refuses a section of 2 GiB or more;
/// checks nothing else of `plan`. Linear.
Status writePlanFile(const Plan &plan, const std::string &path);

/// Reads everything; `plan` is as it was if that fails. `path` may not be "-".
/// A file that is altered, truncated, too long, of another version or whose
/// numbers are out of range is refused with the reason. Linear; memory beside
/// the plan is that of the largest section. Messages call the file `shown`,
/// unless that is empty.
Status readPlanFile(const std::string &path, Plan &plan,
                    const std::string &shown = "");

/// Reads the header and the section of one rank; the other entries of
/// `plan.ranks` stay empty.
Status readPlanFileRank(const std::string &path, Id rank, Plan &plan);

/// Reads the header alone: `plan.ranks` has as many entries as there are ranks,
/// all empty.
Status readPlanFileHeader(const std::string &path, Plan &plan);

/// The content hash of a plan file, in hexadecimal digits: two files that have
/// the same hold the same plan. Reads the table of sections only.
Status planFileHash(const std::string &path, std::string &hash);

/// The hash that the file of `plan` would have. Linear; memory is that of the
/// largest section.
Status planHash(const Plan &plan, std::string &hash);

/// Checks what all ranks have in common: stages, edges, channels, collectives,
/// counts, times and sizes in range. Needed before checkStructure.
Status checkHeader(const Plan &plan);

/// Checks that every index of `rank` is in range, so that whoever walks it
/// needs no check of his own: streams, waits (before their op), operands,
/// buffers (inside the arena, aligned), channels (with this rank at the right
/// end, one buffer a message), collectives (with this rank in them), groups,
/// stages, microbatches. Linear.
Status checkStructure(const Plan &plan, Id rank);

} // namespace sluice

#endif // SLUICE_IR_PLANFILE_H
