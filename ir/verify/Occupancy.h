//===- ir/verify/Occupancy.h - Which buffer holds which bytes -------------===//
#ifndef SLUICE_IR_VERIFY_OCCUPANCY_H
#define SLUICE_IR_VERIFY_OCCUPANCY_H

#include "ir/Plan.h"

#include <span>
#include <utility>
#include <vector>

namespace sluice::verify {

/// A set of numbers below a bound that finds the one before in O(log64 bound).
class BitTree {
public:
  void reset(Id bound);
  void insert(Id number);
  void erase(Id number);
  /// Greatest member <= number; kNone without one.
  Id floor(Id number) const;

private:
  std::vector<std::vector<uint64_t>> levels; ///< bits; words not 0; ...
};

/// The bytes of an arena, cut at every begin and end of a buffer, in runs that
/// one buffer was last written to. A write replaces runs or cuts them, so that
/// all writes together cost O(writes) steps, whatever the overlaps.
class Occupancy {
public:
  /// Nothing is occupied. O(B + D log D) for B buffers of D distinct ranges;
  /// keeps its memory from one arena to the next.
  void reset(std::span<const Buffer> buffers);

  /// Gives the bytes of `buffer` to it; calls `evict` with every other buffer
  /// that loses bytes (perhaps more than once).
  template <typename Evict> void write(Id buffer, Evict evict) {
    auto [begin, end] = ranges[rangeOf[buffer]];
    if (begin == end)
      return;
    if (runEnd[begin] != end) {
      split(begin);
      split(end);
    }
    for (Id at = begin; at < end;) {
      if (occupant[at] != kNone && occupant[at] != buffer)
        evict(occupant[at]);
      Id next = runEnd[at];
      if (at != begin) {
        runs.erase(at);
        runEnd[at] = 0;
      }
      at = next;
    }
    occupant[begin] = buffer;
    runEnd[begin] = end;
  }

private:
  void collectRanges(std::span<const Buffer> buffers);
  void split(Id cut) {
    if (runEnd[cut] != 0)
      return;
    Id run = runs.floor(cut);
    occupant[cut] = occupant[run];
    runEnd[cut] = runEnd[run];
    runEnd[run] = cut;
    runs.insert(cut);
  }

  std::vector<Bytes> cuts;                       ///< sorted, distinct
  std::vector<std::pair<Bytes, Bytes>> distinct; ///< offset and end
  std::vector<std::pair<Id, Id>> ranges; ///< the same as places among cuts
  std::vector<Id> rangeOf;               ///< per buffer
  std::vector<Id> table;                 ///< of distinct, by hash
  BitTree runs;                          ///< cuts where a run begins
  std::vector<Id> occupant;              ///< of the run that begins at a cut
  std::vector<Id> runEnd;                ///< of the same; 0 at other cuts
};

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_OCCUPANCY_H
