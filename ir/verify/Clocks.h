//===- ir/verify/Clocks.h - Happens-before within one rank ----------------===//
#ifndef SLUICE_IR_VERIFY_CLOCKS_H
#define SLUICE_IR_VERIFY_CLOCKS_H

#include "ir/PlanStructure.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace sluice::verify {

/// Vector clocks of a rank's operations: of each stream, one past the position
/// of its last operation that has surely ended. Units are started and ended in
/// list order. `Width` is width(), or 0 where it is not known when this is
/// compiled.
class Clocks {
public:
  void reset(const ListView &of) {
    list = of;
    uint8_t most = 0;
    for (uint32_t at = 0; at < list.opCount; ++at)
      most = std::max(most, list.ops[at].stream);
    entries = (size_t(most) + kLanes) / kLanes * kLanes;
    // Every row but the first is written before it is read.
    rows.resize((list.opCount + 1) * entries);
    std::fill_n(rows.begin(), entries, 0);
    last.assign(entries, 0);
  }

  /// Entries of a clock: a multiple of four, so that the compiler can take as
  /// many at a time.
  size_t width() const { return entries; }

  /// Entry of `stream` for the unit at hand when it starts.
  uint32_t operator[](uint32_t stream) const { return clock[stream]; }

  /// A unit starts after what was last on its streams and what it waits for.
  template <size_t Width> void startUnit(uint32_t first, uint32_t end) {
    clock = row<Width>(first + size_t(1));
    copy<Width>(row<Width>(last[list.ops[first].stream]), clock);
    joinWaits<Width>(first, first);
    for (uint32_t at = first + 1; at < end; ++at) {
      join<Width>(row<Width>(last[list.ops[at].stream]));
      joinWaits<Width>(at, first);
    }
  }

  template <size_t Width> void endUnit(uint32_t first, uint32_t end) {
    for (uint32_t at = first; at < end; ++at) {
      uint8_t stream = list.ops[at].stream;
      last[stream] = at + 1;
      clock[stream] = at + 1;
    }
    for (uint32_t at = first + 1; at < end; ++at)
      copy<Width>(clock, row<Width>(at + size_t(1)));
  }

private:
  static constexpr size_t kLanes = 4;

  template <size_t Width> size_t count() const {
    return Width == 0 ? entries : Width;
  }
  template <size_t Width> uint32_t *row(size_t which) {
    return rows.data() + which * count<Width>();
  }

  template <size_t Width>
  void copy(const uint32_t *__restrict from, uint32_t *__restrict to) const {
    for (size_t s = 0; s < count<Width>(); ++s)
      to[s] = from[s];
  }

  /// Some entries at a time, through arrays that the compiler holds in a
  /// register; operations are few enough for signed comparison, which every
  /// processor has for several entries.
  template <size_t Width> void join(const uint32_t *other) {
    for (size_t s = 0; s < count<Width>(); s += kLanes) {
      int32_t mine[kLanes], theirs[kLanes];
      std::memcpy(mine, clock + s, sizeof mine);
      std::memcpy(theirs, other + s, sizeof theirs);
      for (size_t lane = 0; lane < kLanes; ++lane)
        mine[lane] = mine[lane] > theirs[lane] ? mine[lane] : theirs[lane];
      std::memcpy(clock + s, mine, sizeof mine);
    }
  }

  /// Joins what operation `at` of the unit from `first` waits for. A wait
  /// inside the unit is a deadlock, told elsewhere.
  template <size_t Width> void joinWaits(uint32_t at, uint32_t first) {
    for (uint32_t wait : list.waitsAt(at))
      if (wait < first)
        join<Width>(row<Width>(wait + size_t(1)));
  }

  ListView list;
  size_t entries = kLanes;
  /// Per operation its clock: while its unit is at hand, when the unit starts;
  /// later, at its end. The first row is that of the beginning.
  std::vector<uint32_t> rows;
  uint32_t *clock = nullptr;  ///< the unit at hand: row of its first
  std::vector<uint32_t> last; ///< per stream: row of its last operation
};

} // namespace sluice::verify

#endif // SLUICE_IR_VERIFY_CLOCKS_H
