//===- ir/Timeline.h - When each operation ran, predicted or measured ----===//
#ifndef SLUICE_IR_TIMELINE_H
#define SLUICE_IR_TIMELINE_H

#include "ir/Ops.h"
#include "ir/Units.h"

#include <string>
#include <vector>

namespace sluice {

/// One operation on one rank, from start to end.
struct TimelineSpan {
  Ticks start;
  Ticks end;
  Id rank;
  Id stage;
  Id microbatch; ///< kNone where the operation has none
  Op op;
  uint8_t stream;    ///< 0 computes
  Id step = kNone;   ///< kNone: of the only step there is
  bool open = false; ///< had not ended at `end`, the last moment there is
};

/// What traces and pictures are drawn from, whether the times were simulated
/// or taken from a real run.
struct Timeline {
  std::string title;
  TimeUnit unit = TimeUnit::Unit;
  uint32_t ranks = 0;
  std::vector<TimelineSpan> spans; ///< per rank in order of start
};

/// End of the last span; times count from the start of the first.
Ticks makespanOf(const Timeline &timeline);

} // namespace sluice

#endif // SLUICE_IR_TIMELINE_H
