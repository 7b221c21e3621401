//===- ir/LiveBytes.h - Which buffers are in use when ---------------------===//
#ifndef SLUICE_IR_LIVEBYTES_H
#define SLUICE_IR_LIVEBYTES_H

#include "ir/Plan.h"

#include <vector>

namespace sluice {

/// First and last position of a rank's list that uses a buffer.
struct Life {
  uint32_t first = kNone; ///< kNone if nothing uses it
  uint32_t last = 0;
};

/// Per buffer; one that lives for the whole run does so whatever this says.
/// O(operands).
std::vector<Life> livesOf(const RankPlan &rank);

/// What a buffer of so many bytes counts as.
using SizeOf = Bytes (*)(Bytes);
inline Bytes exactSize(Bytes bytes) { return bytes; }

/// Bytes of the buffers that are in use at each operation of a rank's list,
/// those that live for the whole run included. O(operands).
std::vector<Bytes> liveBytes(const RankPlan &rank, SizeOf size = exactSize);

} // namespace sluice

#endif // SLUICE_IR_LIVEBYTES_H
