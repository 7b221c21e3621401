//===- ir/Groups.h - What a group of a list is and may hold --------------===//
#ifndef SLUICE_IR_GROUPS_H
#define SLUICE_IR_GROUPS_H

#include "ir/Ops.h"

#include <cstddef>
#include <utility>

namespace sluice {

/// Positions [first, second) of a list of `size` entries that are of the group
/// of entry `at`; only itself if `groupOf(at)` is kNone.
template <typename GroupOf>
std::pair<size_t, size_t> groupExtent(size_t at, size_t size, GroupOf groupOf) {
  Id group = at < size ? groupOf(at) : kNone;
  size_t first = at, end = at + 1;
  while (group != kNone && first > 0 && groupOf(first - 1) == group)
    --first;
  while (group != kNone && end < size && groupOf(end) == group)
    ++end;
  return {first, end};
}

/// Whether two computations may run together: a forward and a backward, or a
/// part of one, of different microbatches. Those of one would wait for each
/// other, as the backward needs what the forward makes.
inline bool runTogether(const OpRef &one, const OpRef &other) {
  bool forward = one.op == Op::Forward;
  Op back = forward ? other.op : one.op;
  return forward != (other.op == Op::Forward) && back != Op::Recompute &&
         isCompute(back) && one.microbatch != other.microbatch;
}

} // namespace sluice

#endif // SLUICE_IR_GROUPS_H
