#include "compiler/passes/BufferLayout.h"
#include "compiler/simulate/Report.h"

#include <algorithm>
#include <map>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kContributors = 5;

/// First and last position of the list that uses a buffer.
struct Life {
  uint32_t first = kNone;
  uint32_t last = 0;
};

std::vector<Life> livesOf(const RankPlan &rank) {
  std::vector<Life> lives(rank.buffers.size());
  for (uint32_t i = 0; i < rank.ops.size(); ++i)
    for (Operand used : rank.operandsOf(i)) {
      Life &life = lives[used.buffer];
      life.first = std::min(life.first, i);
      life.last = i;
    }
  return lives;
}

bool isLive(const Buffer &buffer, const Life &life, uint32_t position) {
  if (info(buffer.kind).persistent)
    return true;
  return life.first <= position && position <= life.last;
}

using Size = Bytes (*)(Bytes);
Bytes exactSize(Bytes bytes) { return bytes; }

/// Bytes of what lives for the whole run.
Bytes persistentBytes(const RankPlan &rank, Size size = exactSize) {
  Bytes bytes = 0;
  for (const Buffer &buffer : rank.buffers)
    bytes += info(buffer.kind).persistent ? size(buffer.bytes) : 0;
  return bytes;
}

std::vector<Bytes> liveBytesOf(const RankPlan &rank,
                               const std::vector<Life> &lives,
                               Size size = exactSize) {
  size_t count = rank.ops.size();
  std::vector<Bytes> live(count), gone(count);
  for (size_t i = 0; i < lives.size(); ++i) {
    if (info(rank.buffers[i].kind).persistent || lives[i].first == kNone)
      continue;
    live[lives[i].first] += size(rank.buffers[i].bytes);
    gone[lives[i].last] += size(rank.buffers[i].bytes);
  }
  Bytes now = persistentBytes(rank, size);
  for (size_t i = 0; i < count; ++i) {
    now += live[i];
    live[i] = now;
    now -= gone[i];
  }
  return live;
}

Bytes mostAligned(const RankPlan &rank, const std::vector<Life> &lives) {
  std::vector<Bytes> live = liveBytesOf(rank, lives, alignedSize);
  auto most = std::max_element(live.begin(), live.end());
  return most == live.end() ? persistentBytes(rank, alignedSize) : *most;
}

/// The position at which most bytes are live, the first of several; kNone if
/// nothing lives for a part of the run only.
uint32_t peakPosition(const RankPlan &rank, const std::vector<Life> &lives) {
  std::vector<Bytes> live = liveBytesOf(rank, lives);
  auto most = std::max_element(live.begin(), live.end());
  return most == live.end() || *most == persistentBytes(rank)
             ? kNone
             : static_cast<uint32_t>(most - live.begin());
}

} // namespace

std::vector<Bytes> liveBytes(const RankPlan &rank) {
  return liveBytesOf(rank, livesOf(rank));
}

MemoryPeak findMemoryPeak(const RankPlan &rank) {
  std::vector<Life> lives = livesOf(rank);
  MemoryPeak peak;
  peak.position = peakPosition(rank, lives);
  peak.aligned = mostAligned(rank, lives);
  std::array<Bytes, kBufferKindCount> byKind{};
  std::map<std::pair<BufferKind, Id>, MemoryContributor> groups;
  for (size_t i = 0; i < lives.size(); ++i) {
    const Buffer &buffer = rank.buffers[i];
    if (!isLive(buffer, lives[i], peak.position))
      continue;
    peak.bytes += buffer.bytes;
    byKind[static_cast<unsigned>(buffer.kind)] += buffer.bytes;
    auto [entry, isNew] =
        groups.try_emplace({buffer.kind, buffer.stage},
                           MemoryContributor{buffer.kind, buffer.stage, 0, 0});
    ++entry->second.buffers;
    entry->second.bytes += buffer.bytes;
  }
  for (unsigned kind = 0; kind < kBufferKindCount; ++kind)
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
