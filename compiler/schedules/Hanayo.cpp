//===- compiler/schedules/Hanayo.cpp - Waves over a V of many turns -------===//
//
// Liu et al., arXiv 2308.15762: v/2 waves, each down the ranks and up again, so
// v is even and a rank holds v stages of a zigzag. The paper gives the order by
// pictures, for one unit of p microbatches. The order here is derived: that of
// ZB-V (ZeroBubbleV.cpp), which needs no more than p microbatches in memory,
// with whole backwards, one wave after the other.
//
// A unit of p microbatches takes the waves in turn, so wave w of microbatch k
// is like a microbatch of its own of a V with two chunks, number (u·v/2 + w)·p
// + k mod p, u = k / p; of the backwards the last wave is the first. In those
// numbers rank r runs (down: even chunks, up: odd ones)
//   2(p-r)-1 × F down;  (v/2-1)·p + r × (F up, F down);  p-r × (F up, B up);
//   then (F down, B down, F up, B up).
// A second wave can only begin on rank 0 when the first has come back to it,
// after p forwards; the next p-1-r forwards of rank r are therefore those with
// which the second unit begins, and the later waves of the first come after.
// Where m is no multiple of p the last unit has gaps.
//
// Bubble, F and B of a stage, m >= p: (2(p-1) + (v-2)·gaps)·max(F, B) with
// equal stages; gaps are the microbatches that the last unit lacks. In flight
// at most p microbatches, m >= p. With v = 2 and B >= F nothing in that memory
// is faster: the last rank begins after (p-1)F, ends (p-1)B before the end, and
// of the (p-1)(F+B) + 2F from its first forward to its first backward 2p
// forwards can fill 2pF.
//
//===----------------------------------------------------------------------===//
#include "compiler/schedules/Schedules.h"

#include <algorithm>
#include <utility>

namespace sluice {

void schedules::hanayoRules(const ScheduleProblem &problem, RuleSink sink) {
  uint32_t v = problem.chunks;
  if (v % 2 != 0)
    return sink(
        true, RuleKey::VirtualStages,
        "schedule hanayo needs an even number of virtual stages per rank (two "
        "a wave), not " +
            number(v),
        "set pipeline.virtual_stages to " +
            (v > 1 ? number(v - 1) + " or " : "") + number(v + 1));
  uint32_t rest = problem.microbatches % problem.ranks;
  if (v > 2 && rest != 0)
    shortGroup(problem, "unit", rest,
               "each of its waves waits for the one before", sink);
}

namespace {

/// Where a rank's operations stand in its order, by their numbers.
class WaveSlots {
public:
  WaveSlots(const ScheduleProblem &problem, Id rank)
      : waves(problem.chunks / 2), p(problem.ranks), last(p - rank),
        first(2 * last - 1), pairs((waves - 1) * p + rank),
        steady(first + 2 * pairs + 2 * last) {}

  uint64_t forward(uint32_t chunk, Id microbatch) const {
    uint64_t n = number(chunk / 2, microbatch);
    return chunk % 2 == 0 ? forwardDown(afterNextUnit(n, chunk, microbatch))
                          : forwardUp(n);
  }
  uint64_t backward(uint32_t chunk, Id microbatch) const {
    uint64_t n = number(waves - 1 - chunk / 2, microbatch);
    if (chunk % 2 == 0)
      return steady + 4 * n + 1;
    return n < last ? first + 2 * (pairs + n) + 1 : steady + 4 * (n - last) + 3;
  }

private:
  uint64_t number(uint64_t wave, Id microbatch) const {
    return (microbatch / p * waves + wave) * p + microbatch % p;
  }
  /// The first p-1-r of the second unit go before the first's later waves.
  uint64_t afterNextUnit(uint64_t n, uint32_t chunk, Id microbatch) const {
    if (microbatch < p)
      return chunk == 0 ? n : n + last - 1;
    bool early = chunk == 0 && microbatch < p + last - 1;
    return early ? microbatch : n;
  }
  uint64_t forwardDown(uint64_t n) const {
    if (n < first)
      return n;
    n -= first;
    return n < pairs ? first + 2 * n + 1 : steady + 4 * (n - pairs);
  }
  uint64_t forwardUp(uint64_t n) const {
    return n < pairs + last ? first + 2 * n
                            : steady + 4 * (n - pairs - last) + 2;
  }

  uint64_t waves, p;
  uint64_t last;   ///< this rank and those behind it: F up, B up
  uint64_t first;  ///< F down
  uint64_t pairs;  ///< F up, F down
  uint64_t steady; ///< the slot from which all four kinds take turns
};

} // namespace

std::vector<RankProgram> schedules::hanayo(const ScheduleProblem &problem,
                                           llvm::ArrayRef<uint32_t>) {
  return eachRank(problem, [&](Id rank) {
    WaveSlots slotOf(problem, rank);
    std::vector<std::pair<uint64_t, Step>> slots;
    for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk)
      for (Id k = 0; k < problem.microbatches; ++k) {
        slots.push_back({slotOf.forward(chunk, k), {Op::Forward, chunk}});
        slots.push_back({slotOf.backward(chunk, k), {Op::Backward, chunk}});
      }
    return programInSlots(std::move(slots));
  });
}

} // namespace sluice
