#include "ir/Timeline.h"

#include <algorithm>

namespace sluice {

Ticks makespanOf(const Timeline &timeline) {
  if (timeline.spans.empty())
    return 0;
  Ticks first = timeline.spans.front().start, last = 0;
  for (const TimelineSpan &span : timeline.spans) {
    first = std::min(first, span.start);
    last = std::max(last, span.end);
  }
  return last - first;
}

} // namespace sluice
