#include "ir/LiveBytes.h"

#include <algorithm>

namespace sluice {

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

std::vector<Bytes> liveBytes(const RankPlan &rank, SizeOf size) {
  std::vector<Life> lives = livesOf(rank);
  std::vector<Bytes> live(rank.ops.size()), gone(rank.ops.size());
  Bytes now = 0;
  for (size_t b = 0; b < lives.size(); ++b) {
    const Buffer &buffer = rank.buffers[b];
    if (info(buffer.kind).persistent) {
      now += size(buffer.bytes);
    } else if (lives[b].first != kNone) {
      live[lives[b].first] += size(buffer.bytes);
      gone[lives[b].last] += size(buffer.bytes);
    }
  }
  for (size_t at = 0; at < live.size(); ++at) {
    now += live[at];
    live[at] = now;
    now -= gone[at];
  }
  return live;
}

} // namespace sluice
