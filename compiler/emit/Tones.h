//===- compiler/emit/Tones.h - What tells a rank's stages apart ----------===//
#ifndef SLUICE_COMPILER_EMIT_TONES_H
#define SLUICE_COMPILER_EMIT_TONES_H

#include "compiler/emit/Color.h"
#include "ir/Timeline.h"

#include <map>
#include <tuple>
#include <vector>

namespace sluice {

/// Every stage of a rank has a tone of its operations' colours: the first the
/// colour itself, later ones lighter. Stages count in order; those of a second
/// copy, which lie on another rank than the stage's first microbatch, after the
/// rank's others.
class Tones {
public:
  explicit Tones(const Timeline &timeline);

  /// The tone of a span of compute, below kMost.
  uint8_t of(const TimelineSpan &span) const;
  /// The colour of `op` in that tone.
  Rgb color(Op op, uint8_t tone) const;
  /// Whether any stage has a second copy.
  bool hasCopies() const { return copies; }

private:
  static constexpr size_t kMost = 8;      ///< later stages share the last
  using Place = std::tuple<Id, bool, Id>; ///< rank, of the second copy, stage

  Place placeOf(const TimelineSpan &span) const;

  /// Per stage the first microbatch and where it is computed.
  std::map<Id, std::pair<Id, Id>> first;
  std::vector<Place> places; ///< sorted
  size_t most = 1;           ///< stages of a rank, at most kMost
  bool copies = false;
};

} // namespace sluice

#endif // SLUICE_COMPILER_EMIT_TONES_H
