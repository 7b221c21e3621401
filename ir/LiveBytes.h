//===- ir/LiveBytes.h - Which buffers are in use when ---------------------===//
#ifndef SLUICE_IR_LIVEBYTES_H
#define SLUICE_IR_LIVEBYTES_H

#include "ir/Plan.h"

#include <vector>

namespace sluice {

/// How long a value of one microbatch is in its buffer: from the operation that
/// writes it to the last one that uses it before the next is written.
struct Life {
  Id buffer;
  uint32_t first; ///< positions in the rank's list
  uint32_t last;
};

/// All lives in buffers that do not live for the whole run, those in host
/// memory too, in order of their beginning. O(operands).
std::vector<Life> livesOf(const RankPlan &rank);

/// What a buffer of so many bytes counts as.
using SizeOf = Bytes (*)(Bytes);
inline Bytes exactSize(Bytes bytes) { return bytes; }

/// Bytes of the buffers that are in use at each operation of a rank's list,
/// those that live for the whole run included, without those in host memory.
/// O(operands).
std::vector<Bytes> liveBytes(const RankPlan &rank, SizeOf size = exactSize);

/// The same as if nothing were moved to host memory and back: what is there
/// counts as in use.
std::vector<Bytes> liveBytesUnmoved(const RankPlan &rank);

/// Bytes of host memory that are in use at each operation. O(operands).
std::vector<Bytes> liveHostBytes(const RankPlan &rank);

} // namespace sluice

#endif // SLUICE_IR_LIVEBYTES_H
