#include "compiler/emit/Color.h"
#include "compiler/emit/Emit.h"

#include "llvm/Support/JSON.h"

#include <algorithm>
#include <set>
#include <utility>

namespace sluice {
namespace {

/// Names that Chrome's viewer reserves for colours, with what it paints.
struct TraceColor {
  const char *name;
  int red, green, blue;
};
constexpr TraceColor kTraceColors[] = {
    {"thread_state_uninterruptible", 182, 125, 143},
    {"thread_state_running", 126, 200, 148},
    {"thread_state_runnable", 133, 160, 210},
    {"thread_state_unknown", 199, 155, 125},
    {"rail_response", 67, 135, 253},
    {"rail_animation", 244, 74, 63},
    {"rail_idle", 238, 142, 0},
    {"rail_load", 13, 168, 97},
    {"cq_build_running", 255, 255, 119},
};

/// The reserved name next to the operation's own colour.
const char *traceColor(Op op) {
  Rgb own = rgbOf(op);
  int red = static_cast<int>(own.red), green = static_cast<int>(own.green),
      blue = static_cast<int>(own.blue);
  const char *best = "";
  int bestDistance = 3 * 256 * 256;
  for (const TraceColor &known : kTraceColors) {
    int r = known.red - red, g = known.green - green, b = known.blue - blue;
    int distance = r * r + g * g + b * b;
    if (distance < bestDistance) {
      bestDistance = distance;
      best = known.name;
    }
  }
  return best;
}

/// In microseconds of real time, or in abstract units: a million ticks either
/// way.
void timeAttribute(llvm::json::OStream &json, const char *key, Ticks ticks) {
  static_assert(ticksPer(TimeUnit::Seconds) ==
                1'000'000 * ticksPer(TimeUnit::Unit));
  json.attributeBegin(key);
  json.rawValue(formatDecimal(ticks, TimeUnit::Unit));
  json.attributeEnd();
}

void metadata(llvm::json::OStream &json, const char *what, Id rank, int stream,
              llvm::StringRef key, const llvm::json::Value &value) {
  json.object([&] {
    json.attribute("name", what);
    json.attribute("ph", "M");
    json.attribute("pid", rank);
    if (stream >= 0)
      json.attribute("tid", stream);
    json.attributeObject("args", [&] { json.attribute(key, value); });
  });
}

void nameRanksAndStreams(llvm::json::OStream &json, const Timeline &timeline) {
  std::set<std::pair<Id, uint8_t>> streams;
  for (const TimelineSpan &span : timeline.spans)
    streams.insert({span.rank, span.stream});
  for (Id rank = 0; rank < timeline.ranks; ++rank) {
    metadata(json, "process_name", rank, -1, "name",
             "rank " + std::to_string(rank));
    metadata(json, "process_sort_index", rank, -1, "sort_index", rank);
  }
  for (auto [rank, stream] : streams) {
    std::string name =
        stream == 0 ? "compute" : "messages " + std::to_string(stream);
    metadata(json, "thread_name", rank, stream, "name", name);
    metadata(json, "thread_sort_index", rank, stream, "sort_index", stream);
  }
}

void event(llvm::json::OStream &json, const TimelineSpan &span, Ticks first) {
  json.object([&] {
    json.attribute("name", opName(span.op, span.stage, span.microbatch));
    json.attribute("cat", llvm::StringRef(info(span.op).name));
    json.attribute("ph", "X");
    timeAttribute(json, "ts", span.start - first);
    timeAttribute(json, "dur", span.end - span.start);
    json.attribute("pid", span.rank);
    json.attribute("tid", span.stream);
    json.attribute("cname", traceColor(span.op));
    json.attributeObject("args", [&] {
      json.attribute("stage", span.stage);
      if (span.microbatch != kNone)
        json.attribute("microbatch", span.microbatch);
      if (span.step != kNone)
        json.attribute("step", span.step);
      if (span.open)
        json.attribute("ended", false);
    });
  });
}

} // namespace

void emitChromeTrace(const Timeline &timeline, llvm::raw_ostream &out) {
  Ticks first = kMaxTicks;
  for (const TimelineSpan &span : timeline.spans)
    first = std::min(first, span.start);
  llvm::json::OStream json(out);
  json.object([&] {
    json.attribute("displayTimeUnit", "ms");
    json.attributeObject("otherData", [&] {
      json.attribute("title", escaped(timeline.title));
      json.attribute("time_unit", llvm::StringRef(timeUnitName(timeline.unit)));
    });
    json.attributeArray("traceEvents", [&] {
      nameRanksAndStreams(json, timeline);
      for (const TimelineSpan &span : timeline.spans)
        event(json, span, first);
    });
  });
  out << '\n';
}

} // namespace sluice
