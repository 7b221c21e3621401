#include "compiler/passes/BufferLayout.h"
#include "compiler/simulate/Report.h"

#include <algorithm>
#include <map>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kContributors = 5;

/// Bytes of what lives for the whole run.
Bytes persistentBytes(const RankPlan &rank, SizeOf size = exactSize) {
  Bytes bytes = 0;
  for (const Buffer &buffer : rank.buffers)
    bytes += info(buffer.kind).persistent ? size(buffer.bytes) : 0;
  return bytes;
}

Bytes mostAligned(const RankPlan &rank) {
  std::vector<Bytes> live = liveBytes(rank, alignedSize);
  auto most = std::max_element(live.begin(), live.end());
  return most == live.end() ? persistentBytes(rank, alignedSize) : *most;
}

/// The position at which most bytes are live, the first of several; kNone if
/// nothing lives for a part of the run only.
uint32_t peakPosition(const RankPlan &rank) {
  std::vector<Bytes> live = liveBytes(rank);
  auto most = std::max_element(live.begin(), live.end());
  return most == live.end() || *most == persistentBytes(rank)
             ? kNone
             : static_cast<uint32_t>(most - live.begin());
}

/// Changes of the bytes in use, by time; of what happens at once the most.
class Steps {
public:
  void add(Ticks time, Bytes bytes) {
    if (!points.empty() && points.back().time == time) {
      bytes = std::max(points.back().bytes, bytes);
      points.pop_back();
    }
    if (points.empty() || points.back().bytes != bytes)
      points.push_back({time, bytes});
  }
  std::vector<MemoryPoint> points;
};

} // namespace

MemoryPeak findMemoryPeak(const RankPlan &rank) {
  MemoryPeak peak;
  peak.position = peakPosition(rank);
  peak.aligned = mostAligned(rank);
  std::array<Bytes, kBufferKindCount> byKind{};
  std::map<std::pair<BufferKind, Id>, MemoryContributor> groups;
  auto count = [&](const Buffer &buffer) {
    peak.bytes += buffer.bytes;
    byKind[static_cast<unsigned>(buffer.kind)] += buffer.bytes;
    auto [entry, isNew] =
        groups.try_emplace({buffer.kind, buffer.stage},
                           MemoryContributor{buffer.kind, buffer.stage, 0, 0});
    ++entry->second.buffers;
    entry->second.bytes += buffer.bytes;
  };
  for (const Buffer &buffer : rank.buffers)
    if (info(buffer.kind).persistent)
      count(buffer);
  for (const Life &life : livesOf(rank))
    if (!isOnHost(rank.buffers[life.buffer].kind) &&
        life.first <= peak.position && peak.position <= life.last)
      count(rank.buffers[life.buffer]);
  for (unsigned kind = 0; kind < kDeviceKinds; ++kind)
    peak.byHeading[headingOf(kind)] += byKind[kind];
  for (const auto &[key, contributor] : groups)
    if (contributor.bytes != 0)
      peak.contributors.push_back(contributor);
  std::stable_sort(peak.contributors.begin(), peak.contributors.end(),
                   [](const MemoryContributor &a, const MemoryContributor &b) {
                     return a.bytes > b.bytes;
                   });
  if (peak.contributors.size() > kContributors)
    peak.contributors.resize(kContributors);
  return peak;
}

std::vector<Bytes> mostPerPart(const std::vector<MemoryPoint> &points,
                               Ticks end, size_t parts) {
  std::vector<Bytes> most(parts, 0);
  // The part that holds a time; the end is in the last.
  auto partOf = [&](Ticks time) {
    auto part = static_cast<unsigned __int128>(time) * parts /
                static_cast<uint64_t>(std::max<Ticks>(end, 1));
    return std::min(static_cast<size_t>(part), parts - 1);
  };
  for (size_t i = 0; i < points.size(); ++i) {
    Ticks until = i + 1 < points.size() ? points[i + 1].time : end;
    size_t last = partOf(std::max(until - 1, points[i].time));
    for (size_t part = partOf(points[i].time); part <= last; ++part)
      most[part] = std::max(most[part], points[i].bytes);
  }
  return most;
}

std::vector<MemoryPoint> memoryTimeline(const RankPlan &rank,
                                        const std::vector<Ticks> &start,
                                        Ticks end) {
  std::vector<Bytes> live = liveBytes(rank);
  Steps steps;
  Ticks now = 0;
  steps.add(now, persistentBytes(rank));
  for (size_t at = 0; at < live.size(); ++at) {
    now = std::max(now, start[at]);
    steps.add(now, live[at]);
  }
  if (steps.points.size() <= kMostMemoryPoints)
    return std::move(steps.points);
  std::vector<Bytes> most = mostPerPart(steps.points, end, kMostMemoryPoints);
  Steps fewer;
  for (size_t part = 0; part < most.size(); ++part) {
    auto time = static_cast<unsigned __int128>(end) * part / most.size();
    fewer.add(static_cast<Ticks>(time), most[part]);
  }
  return std::move(fewer.points);
}

} // namespace sluice
