#include "ir/LiveBytes.h"

#include <algorithm>

namespace sluice {

std::vector<Life> livesOf(const RankPlan &rank) {
  std::vector<Life> lives;
  std::vector<Id> current(rank.buffers.size(), kNone); // life in each buffer
  for (uint32_t at = 0; at < rank.ops.size(); ++at)
    for (Operand used : rank.operandsOf(at)) {
      if (info(rank.buffers[used.buffer].kind).persistent)
        continue;
      Id &life = current[used.buffer];
      if (life == kNone ||
          used.access == static_cast<uint32_t>(Access::Write)) {
        life = static_cast<Id>(lives.size());
        lives.push_back({used.buffer, at, at});
      }
      lives[life].last = at;
    }
  return lives;
}

namespace {
/// What is in use, from when things begin and end.
class Level {
public:
  explicit Level(const RankPlan &of)
      : rank(of), live(of.ops.size()), gone(of.ops.size()) {}

  /// From operation `first` to `last`, both included.
  void add(Bytes bytes, uint32_t first, uint32_t last) {
    live[first] += bytes;
    gone[last] += bytes;
  }
  void addLives(SizeOf size, bool onHost) {
    for (const Life &life : livesOf(rank))
      if (const Buffer &buffer = rank.buffers[life.buffer];
          isOnHost(buffer.kind) == onHost)
        add(size(buffer.bytes), life.first, life.last);
  }
  /// Bytes at each operation.
  std::vector<Bytes> from(Bytes now) {
    for (size_t at = 0; at < live.size(); ++at) {
      now += live[at];
      live[at] = now;
      now -= gone[at];
    }
    return std::move(live);
  }
  std::vector<Bytes> fromPersistent(SizeOf size) {
    Bytes now = 0;
    for (const Buffer &buffer : rank.buffers)
      now += info(buffer.kind).persistent ? size(buffer.bytes) : 0;
    return from(now);
  }

private:
  const RankPlan &rank;
  std::vector<Bytes> live, gone;
};
} // namespace

std::vector<Bytes> liveBytes(const RankPlan &rank, SizeOf size) {
  Level level(rank);
  level.addLives(size, /*onHost=*/false);
  return level.fromPersistent(size);
}

std::vector<Bytes> liveBytesUnmoved(const RankPlan &rank) {
  Level level(rank);
  level.addLives(exactSize, /*onHost=*/false);
  for (const Life &life : livesOf(rank))
    if (const Buffer &buffer = rank.buffers[life.buffer];
        isOnHost(buffer.kind) && life.last > life.first + 1)
      level.add(buffer.bytes, life.first + 1, life.last - 1);
  return level.fromPersistent(exactSize);
}

std::vector<Bytes> liveHostBytes(const RankPlan &rank) {
  Level level(rank);
  level.addLives(exactSize, /*onHost=*/true);
  return level.from(0);
}

} // namespace sluice
