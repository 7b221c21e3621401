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

} // namespace sluice
