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

std::vector<Bytes> liveBytes(const RankPlan &rank, SizeOf size) {
  std::vector<Bytes> live(rank.ops.size()), gone(rank.ops.size());
  Bytes now = 0;
  for (const Buffer &buffer : rank.buffers)
    now += info(buffer.kind).persistent ? size(buffer.bytes) : 0;
  for (const Life &life : livesOf(rank)) {
    live[life.first] += size(rank.buffers[life.buffer].bytes);
    gone[life.last] += size(rank.buffers[life.buffer].bytes);
  }
  for (size_t at = 0; at < live.size(); ++at) {
    now += live[at];
    live[at] = now;
    now -= gone[at];
  }
  return live;
}

} // namespace sluice
