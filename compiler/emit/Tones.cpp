#include "compiler/emit/Tones.h"

#include <algorithm>
#include <utility>

namespace sluice {

Tones::Tones(const Timeline &timeline) {
  for (const TimelineSpan &span : timeline.spans) {
    if (!isCompute(span.op))
      continue;
    std::pair<Id, Id> here(span.microbatch, span.rank);
    auto [found, added] = first.try_emplace(span.stage, here);
    if (!added)
      found->second = std::min(found->second, here);
  }
  for (const TimelineSpan &span : timeline.spans)
    if (isCompute(span.op))
      places.push_back(placeOf(span));
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  size_t ofRank = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    bool sameRank =
        i > 0 && std::get<0>(places[i]) == std::get<0>(places[i - 1]);
    ofRank = sameRank ? ofRank + 1 : 1;
    most = std::max(most, std::min(ofRank, kMost));
    copies |= std::get<1>(places[i]);
  }
}

Tones::Place Tones::placeOf(const TimelineSpan &span) const {
  auto found = first.find(span.stage);
  bool second = found != first.end() && found->second.second != span.rank;
  return {span.rank, second, span.stage};
}

uint8_t Tones::of(const TimelineSpan &span) const {
  auto begin = std::lower_bound(places.begin(), places.end(),
                                Place(span.rank, false, 0));
  auto it = std::lower_bound(begin, places.end(), placeOf(span));
  return static_cast<uint8_t>(std::min<size_t>(it - begin, kMost - 1));
}

Rgb Tones::color(Op op, uint8_t tone) const {
  // A quarter lighter each, or less where the last would fade away.
  size_t steps = std::max<size_t>(4, (most - 1) * 3 / 2);
  Rgb rgb = rgbOf(op);
  auto lighten = [&](unsigned &part) {
    part += static_cast<unsigned>((255 - part) * tone / steps);
  };
  lighten(rgb.red);
  lighten(rgb.green);
  lighten(rgb.blue);
  return rgb;
}

} // namespace sluice
