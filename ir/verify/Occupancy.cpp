#include "ir/verify/Occupancy.h"

#include <algorithm>
#include <bit>

namespace sluice::verify {

//===----------------------------------------------------------------------===//
// BitTree
//===----------------------------------------------------------------------===//

void BitTree::reset(Id bound) {
  size_t level = 0;
  for (size_t count = bound;; ++level) {
    count = count / 64 + 1;
    if (level == levels.size())
      levels.emplace_back();
    levels[level].assign(count, 0);
    if (count == 1)
      break;
  }
  levels.resize(level + 1);
}

void BitTree::insert(Id number) {
  for (auto &level : levels) {
    uint64_t &word = level[number / 64];
    bool known = word != 0;
    word |= uint64_t(1) << (number % 64);
    if (known)
      return;
    number /= 64;
  }
}

void BitTree::erase(Id number) {
  for (auto &level : levels) {
    uint64_t &word = level[number / 64];
    word &= ~(uint64_t(1) << (number % 64));
    if (word != 0)
      return;
    number /= 64;
  }
}

Id BitTree::floor(Id number) const {
  uint64_t mask = ~uint64_t(0) >> (63 - number % 64); // bits up to number's
  for (size_t level = 0; level < levels.size(); ++level) {
    uint64_t word = levels[level][number / 64] & mask;
    number /= 64;
    if (word != 0) {
      number = number * 64 + static_cast<Id>(std::bit_width(word) - 1);
      while (level-- > 0)
        number = number * 64 +
                 static_cast<Id>(std::bit_width(levels[level][number]) - 1);
      return number;
    }
    mask = (uint64_t(1) << (number % 64)) - 1; // above: only words before
  }
  return kNone;
}

//===----------------------------------------------------------------------===//
// Occupancy
//===----------------------------------------------------------------------===//

/// Where the host's arena stands behind the device's, which ends before.
static constexpr Bytes kHostBase = 2 * kMaxBytes;

/// Numbers the distinct ranges. Values of equal size that take turns at one
/// place are many buffers but one range. A range that is not found within a
/// few probes counts as new, which costs sorting and nothing else.
void Occupancy::collectRanges(std::span<const Buffer> buffers) {
  constexpr size_t kProbes = 16;
  size_t mask = std::bit_ceil(2 * buffers.size() + 1) - 1;
  table.assign(mask + 1, kNone);
  distinct.clear();
  rangeOf.resize(buffers.size());
  for (size_t b = 0; b < buffers.size(); ++b) {
    Bytes begin = buffers[b].offset;
    if (isOnHost(buffers[b].kind))
      begin += kHostBase;
    Bytes end = begin + buffers[b].bytes;
    uint64_t hash = (begin * 0x9e3779b97f4a7c15u) ^ (end * 0xc2b2ae3d27d4eb4fu);
    hash ^= hash >> 32;
    size_t slot = hash & mask, probes = 0;
    auto isOther = [&](Id range) {
      return range != kNone && distinct[range] != std::pair(begin, end);
    };
    while (isOther(table[slot]) && ++probes < kProbes)
      slot = (slot + 1) & mask;
    if (table[slot] == kNone || isOther(table[slot])) {
      table[slot] = static_cast<Id>(distinct.size());
      distinct.emplace_back(begin, end);
    }
    rangeOf[b] = table[slot];
  }
}

void Occupancy::reset(std::span<const Buffer> buffers) {
  collectRanges(buffers);
  cuts.clear();
  for (auto [begin, end] : distinct) {
    cuts.push_back(begin);
    cuts.push_back(end);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  ranges.clear();
  auto place = [this](Bytes cut) {
    return static_cast<Id>(std::lower_bound(cuts.begin(), cuts.end(), cut) -
                           cuts.begin());
  };
  for (auto [begin, end] : distinct)
    ranges.emplace_back(place(begin), place(end));
  occupant.assign(cuts.size() + 1, kNone);
  runs.reset(static_cast<Id>(cuts.size() + 1));
  runs.insert(0);
  runEnd.assign(cuts.size() + 1, 0);
  runEnd[0] = static_cast<Id>(cuts.size());
}

} // namespace sluice::verify
