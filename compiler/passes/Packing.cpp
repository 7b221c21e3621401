#include "compiler/passes/Packing.h"

#include "llvm/ADT/DenseMap.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace sluice {

namespace {

uint32_t stepsOf(llvm::ArrayRef<Lifetime> lifetimes) {
  uint32_t steps = 0;
  for (const Lifetime &each : lifetimes)
    steps = std::max(steps, each.lateStep() + 1);
  return steps;
}

/// Numbers of lifetimes in order of when they begin, or end.
class ByMoment {
public:
  ByMoment(llvm::ArrayRef<Lifetime> lifetimes, uint32_t steps,
           uint32_t Lifetime::*moment)
      : first(2 * size_t(steps) + 1, 0), numbers(lifetimes.size()) {
    for (const Lifetime &each : lifetimes)
      ++first[each.*moment];
    std::partial_sum(first.begin(), first.end(), first.begin());
    for (auto number = static_cast<uint32_t>(lifetimes.size()); number-- > 0;)
      numbers[--first[lifetimes[number].*moment]] = number;
  }
  /// Those of the moments from `begin` to before `end`.
  llvm::MutableArrayRef<uint32_t> between(size_t begin, size_t end) {
    return llvm::MutableArrayRef(numbers).slice(first[begin],
                                                first[end] - first[begin]);
  }

private:
  std::vector<uint32_t> first, numbers;
};
} // namespace

//===----------------------------------------------------------------------===//
// Places for each size
//===----------------------------------------------------------------------===//

/// Each size has places of its own, of which the one that is free for longest
/// is taken: nobody waits for it.
static Packing bySize(llvm::ArrayRef<Lifetime> lifetimes) {
  struct Places {
    std::vector<uint32_t> users; ///< that ended, the oldest first from `head`
    size_t head = 0;
  };
  std::vector<Places> places;
  llvm::DenseMap<Bytes, uint32_t> numbers;
  std::vector<uint32_t> placesOf;
  placesOf.reserve(lifetimes.size());
  for (const Lifetime &each : lifetimes) {
    auto [found, isNew] = numbers.try_emplace(each.bytes, places.size());
    if (isNew)
      places.emplace_back();
    placesOf.push_back(found->second);
  }
  Packing packing;
  packing.offsets.resize(lifetimes.size());
  packing.takeovers.reserve(lifetimes.size());
  auto take = [&](uint32_t number) {
    Places &mine = places[placesOf[number]];
    if (mine.head == mine.users.size()) {
      packing.offsets[number] = packing.bytes;
      packing.bytes += lifetimes[number].bytes;
      return;
    }
    uint32_t before = mine.users[mine.head++];
    packing.offsets[number] = packing.offsets[before];
    packing.takeovers.emplace_back(before, number);
  };
  uint32_t steps = stepsOf(lifetimes);
  ByMoment beginning(lifetimes, steps, &Lifetime::begin);
  ByMoment ending(lifetimes, steps, &Lifetime::end);
  for (uint32_t step = 0; step < steps; ++step) {
    for (uint32_t number : beginning.between(2 * step, 2 * step + 2))
      take(number);
    for (uint32_t number : ending.between(2 * step, 2 * step + 2))
      places[placesOf[number]].users.push_back(number);
  }
  return packing;
}

namespace {
//===----------------------------------------------------------------------===//
// Best fit, step by step
//===----------------------------------------------------------------------===//

/// The arena is a row of segments: buffers in use, and free bytes between them.
class BestFit {
public:
  explicit BestFit(llvm::ArrayRef<Lifetime> of)
      : lifetimes(of), segmentOf(of.size()) {
    packing.offsets.resize(of.size());
  }
  Packing run();

private:
  static constexpr uint32_t kNoSegment = ~0u;
  struct Segment {
    Bytes offset, bytes;
    uint32_t before, behind; ///< neighbours in the arena
    uint32_t since = 0;      ///< free: after this moment
    bool free = false;
  };
  /// Free segments in order, so that the smallest that is large enough is
  /// found, of these the one that is free for longest: nobody waits for it.
  struct Free {
    Bytes bytes;
    uint32_t since;
    Bytes offset;
    uint32_t segment;
    bool operator<(const Free &other) const {
      return std::tie(bytes, since, offset) <
             std::tie(other.bytes, other.since, other.offset);
    }
  };

  Free keyOf(uint32_t number) const {
    const Segment &of = segments[number];
    return {of.bytes, of.since, of.offset, number};
  }
  uint32_t addSegment(const Segment &segment);
  void join(uint32_t number, uint32_t behind);
  void take(uint32_t lifetime);
  uint32_t takeFree(uint32_t number, Bytes bytes);
  uint32_t extend(Bytes bytes);
  void release(uint32_t lifetime);

  llvm::ArrayRef<Lifetime> lifetimes;
  Packing packing;
  std::vector<uint32_t> segmentOf; ///< per lifetime in use
  std::vector<Segment> segments;
  std::vector<uint32_t> spare;
  std::set<Free> free;
  uint32_t last = kNoSegment; ///< of the row
};
} // namespace

/// Puts a segment into the row, between its neighbours.
uint32_t BestFit::addSegment(const Segment &segment) {
  auto number = static_cast<uint32_t>(segments.size());
  if (spare.empty()) {
    segments.push_back(segment);
  } else {
    number = spare.back();
    spare.pop_back();
    segments[number] = segment;
  }
  if (segment.before != kNoSegment)
    segments[segment.before].behind = number;
  (segment.behind == kNoSegment ? last : segments[segment.behind].before) =
      number;
  return number;
}

/// Adds the free segment `behind` to the one before it; neither is in order.
void BestFit::join(uint32_t number, uint32_t behind) {
  Segment &one = segments[number];
  const Segment &gone = segments[behind];
  one.bytes += gone.bytes;
  one.since = std::max(one.since, gone.since);
  one.behind = gone.behind;
  (gone.behind == kNoSegment ? last : segments[gone.behind].before) = number;
  spare.push_back(behind);
}

/// Takes the low end of a free segment that is large enough.
uint32_t BestFit::takeFree(uint32_t number, Bytes bytes) {
  Segment rest = segments[number];
  segments[number].bytes = bytes;
  segments[number].free = false;
  if (rest.bytes > bytes) {
    rest.offset += bytes;
    rest.bytes -= bytes;
    rest.before = number;
    free.insert(keyOf(addSegment(rest)));
  }
  return number;
}

/// Takes bytes at the end of the arena, and what is free before them.
uint32_t BestFit::extend(Bytes bytes) {
  Bytes offset = packing.bytes;
  if (last != kNoSegment && segments[last].free) {
    free.erase(keyOf(last));
    segments[last].bytes = bytes;
    segments[last].free = false;
    packing.bytes = segments[last].offset + bytes;
    return last;
  }
  packing.bytes += bytes;
  return addSegment({offset, bytes, last, kNoSegment});
}

void BestFit::take(uint32_t lifetime) {
  Bytes bytes = lifetimes[lifetime].bytes;
  auto found = free.lower_bound({bytes, 0, 0, 0});
  uint32_t number;
  if (found == free.end()) {
    number = extend(bytes);
  } else {
    uint32_t segment = found->segment;
    free.erase(found);
    number = takeFree(segment, bytes);
  }
  segmentOf[lifetime] = number;
  packing.offsets[lifetime] = segments[number].offset;
}

/// Frees the bytes of a lifetime and puts them together with free neighbours.
void BestFit::release(uint32_t lifetime) {
  uint32_t number = segmentOf[lifetime];
  segments[number].free = true;
  segments[number].since = lifetimes[lifetime].end;
  uint32_t behind = segments[number].behind, before = segments[number].before;
  if (behind != kNoSegment && segments[behind].free) {
    free.erase(keyOf(behind));
    join(number, behind);
  }
  if (before != kNoSegment && segments[before].free) {
    free.erase(keyOf(before));
    join(before, number);
    number = before;
  }
  free.insert(keyOf(number));
}

Packing BestFit::run() {
  uint32_t steps = stepsOf(lifetimes);
  ByMoment beginning(lifetimes, steps, &Lifetime::begin);
  ByMoment ending(lifetimes, steps, &Lifetime::end);
  for (uint32_t step = 0; step < steps; ++step) {
    // Large ones first, of equal ones what computes, then what ends first.
    auto now = beginning.between(2 * step, 2 * step + 2);
    std::sort(now.begin(), now.end(), [&](uint32_t a, uint32_t b) {
      const Lifetime &one = lifetimes[a], &other = lifetimes[b];
      return std::tie(other.bytes, one.begin, one.end, a) <
             std::tie(one.bytes, other.begin, other.end, b);
    });
    for (uint32_t lifetime : now)
      take(lifetime);
    // Those whose lateStep() this is.
    for (uint32_t lifetime :
         ending.between(step == 0 ? 0 : 2 * step - 1, 2 * step + 1))
      release(lifetime);
  }
  return std::move(packing);
}

/// The same from the last step to the first.
static Packing bestFitBackwards(llvm::ArrayRef<Lifetime> lifetimes) {
  uint32_t last = 2 * stepsOf(lifetimes);
  std::vector<Lifetime> mirrored;
  mirrored.reserve(lifetimes.size());
  for (const Lifetime &each : lifetimes)
    mirrored.push_back({last - each.end, last - each.begin, each.bytes});
  return BestFit(mirrored).run();
}

//===----------------------------------------------------------------------===//
// Largest first
//===----------------------------------------------------------------------===//

/// Lifetimes that are placed one after the other take a square of their number.
constexpr size_t kMostLargestFirst = 2048;

/// Places the largest first, each at the lowest offset that is free all its
/// life: the small then fill what the large leave, in space and time. Of equal
/// ones the longest go first, or the earliest.
static Packing largestFirst(llvm::ArrayRef<Lifetime> lifetimes,
                            bool longestFirst) {
  std::vector<uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Lifetime &one = lifetimes[a], &other = lifetimes[b];
    uint32_t length = longestFirst ? one.end - one.begin : 0;
    uint32_t otherLength = longestFirst ? other.end - other.begin : 0;
    return std::tie(other.bytes, otherLength, one.begin, one.end, a) <
           std::tie(one.bytes, length, other.begin, other.end, b);
  });
  Packing packing;
  packing.offsets.resize(lifetimes.size());
  std::vector<uint32_t> placed; ///< by offset
  for (uint32_t number : order) {
    const Lifetime &mine = lifetimes[number];
    Bytes at = 0;
    for (uint32_t other : placed) {
      const Lifetime &theirs = lifetimes[other];
      Bytes offset = packing.offsets[other];
      if (offset >= at + mine.bytes)
        break;
      if (theirs.firstStep() <= mine.lateStep() &&
          mine.firstStep() <= theirs.lateStep())
        at = std::max(at, offset + theirs.bytes);
    }
    packing.offsets[number] = at;
    packing.bytes = std::max(packing.bytes, at + mine.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                   [&](Bytes offset, uint32_t other) {
                                     return offset < packing.offsets[other];
                                   }),
                  number);
  }
  return packing;
}

//===----------------------------------------------------------------------===//
// All together
//===----------------------------------------------------------------------===//

/// The best of all ways, with takeovers only of bySize().
static Packing best(llvm::ArrayRef<Lifetime> lifetimes) {
  Bytes enough = nearTo(mostLive(lifetimes));
  Packing best = bySize(lifetimes);
  auto attempt = [&](auto way) {
    if (best.bytes <= enough)
      return;
    Packing other = way();
    if (other.bytes < best.bytes)
      best = std::move(other);
  };
  attempt([&] { return BestFit(lifetimes).run(); });
  attempt([&] { return bestFitBackwards(lifetimes); });
  if (lifetimes.size() <= kMostLargestFirst)
    for (bool longestFirst : {false, true})
      attempt([&] { return largestFirst(lifetimes, longestFirst); });
  return best;
}

namespace {
/// Who used which bytes last.
class LastUsers {
public:
  explicit LastUsers(Packing &of) : packing(of) {}

  /// Gives the bytes of a lifetime to it, and notes whose they were.
  void use(uint32_t number, Bytes bytes) {
    Bytes begin = packing.offsets[number], end = begin + bytes;
    auto at = pieces.upper_bound(begin);
    if (at != pieces.begin() && std::prev(at)->second.end > begin)
      at = cut(std::prev(at), begin);
    if (at != pieces.end() && at->first == begin && at->second.end == end) {
      packing.takeovers.emplace_back(at->second.user, number);
      at->second.user = number;
      return;
    }
    while (at != pieces.end() && at->first < end) {
      if (at->second.end > end)
        cut(at, end);
      packing.takeovers.emplace_back(at->second.user, number);
      at = pieces.erase(at);
    }
    pieces.emplace_hint(at, begin, Piece{end, number});
  }

private:
  struct Piece {
    Bytes end;
    uint32_t user;
  };
  using Pieces = std::map<Bytes, Piece>; ///< by offset

  /// The piece that begins at `offset`, cut from the one around it.
  Pieces::iterator cut(Pieces::iterator around, Bytes offset) {
    if (around->first == offset)
      return around;
    Piece behind = around->second;
    around->second.end = offset;
    return pieces.emplace_hint(std::next(around), offset, behind);
  }

  Packing &packing;
  Pieces pieces;
};
} // namespace

Packing pack(llvm::ArrayRef<Lifetime> lifetimes) {
  Packing packing = best(lifetimes);
  if (!packing.takeovers.empty())
    return packing;
  LastUsers users(packing);
  uint32_t steps = stepsOf(lifetimes);
  ByMoment beginning(lifetimes, steps, &Lifetime::begin);
  for (uint32_t number : beginning.between(0, 2 * size_t(steps)))
    users.use(number, lifetimes[number].bytes);
  return packing;
}

Bytes packedBytes(llvm::ArrayRef<Lifetime> lifetimes) {
  return best(lifetimes).bytes;
}

Bytes mostLive(llvm::ArrayRef<Lifetime> lifetimes) {
  std::vector<Bytes> begun(stepsOf(lifetimes) + 1, 0), ended(begun);
  for (const Lifetime &each : lifetimes) {
    begun[each.firstStep()] += each.bytes;
    ended[each.lateStep() + 1] += each.bytes;
  }
  Bytes live = 0, most = 0;
  for (size_t step = 0; step < begun.size(); ++step) {
    live += begun[step];
    live -= ended[step];
    most = std::max(most, live);
  }
  return most;
}

Bytes bytesBySize(llvm::ArrayRef<Lifetime> lifetimes) {
  return bySize(lifetimes).bytes;
}

} // namespace sluice
