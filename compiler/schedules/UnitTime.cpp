#include "compiler/schedules/UnitTime.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice {

namespace {

constexpr uint32_t kNever = ~0u;

/// A chain of stages in a V, two on each rank, in slots.
class UnitTime {
public:
  explicit UnitTime(const ScheduleProblem &sizes)
      : problem(sizes), stages(2 * sizes.ranks),
        programs(sizes.ranks, {Phase{1, {}}}),
        forwardEnd(size_t(stages) * sizes.microbatches, kNever),
        backwardEnd(forwardEnd) {}

protected:
  Id stageOf(Id rank, uint32_t lane) const {
    return lane == 0 ? rank : stages - 1 - rank;
  }
  bool forwardReady(Id stage, Id microbatch, uint32_t now) const {
    return stage == 0 || ended(forwardEnd, stage - 1, microbatch, now);
  }
  bool backwardReady(Id stage, Id microbatch, uint32_t now) const {
    return ended(forwardEnd, stage, microbatch, now) &&
           (stage + 1 == stages ||
            ended(backwardEnd, stage + 1, microbatch, now));
  }
  void run(Id rank, Step step, Id microbatch, uint32_t now) {
    programs[rank].front().steps.push_back(step);
    auto &ends = step.op == Op::Forward ? forwardEnd : backwardEnd;
    ends[cell(stageOf(rank, step.lane), microbatch)] = now + 1;
  }
  void runWeight(Id rank) {
    programs[rank].front().steps.push_back({Op::BackwardWeight, kOldestLane});
  }

  const ScheduleProblem &problem;
  uint32_t stages;
  std::vector<RankProgram> programs;

private:
  size_t cell(Id stage, Id microbatch) const {
    return size_t(stage) * problem.microbatches + microbatch;
  }
  bool ended(const std::vector<uint32_t> &ends, Id stage, Id microbatch,
             uint32_t now) const {
    return ends[cell(stage, microbatch)] <= now;
  }

  std::vector<uint32_t> forwardEnd, backwardEnd; ///< per stage and microbatch
};

/// The rule of repeatedPattern.
class RepeatedPattern : UnitTime {
public:
  RepeatedPattern(const ScheduleProblem &sizes, uint32_t limit,
                  std::vector<PatternSlots> slotsOfRanks)
      : UnitTime(sizes), most(limit), slots(std::move(slotsOfRanks)),
        ranks(sizes.ranks) {}

  /// A rank that had nothing to run has nothing until its neighbours ran.
  std::vector<RankProgram> run() {
    std::vector<Id> awake(problem.ranks), next;
    std::iota(awake.begin(), awake.end(), 0);
    std::vector<uint32_t> wakesAt(problem.ranks, 0);
    for (uint32_t now = 0; !awake.empty(); ++now, std::swap(awake, next)) {
      next.clear();
      auto wake = [&](Id rank) {
        if (rank < problem.ranks && wakesAt[rank] != now + 1)
          next.push_back(rank);
        if (rank < problem.ranks)
          wakesAt[rank] = now + 1;
      };
      for (Id rank : awake)
        if (runSlot(rank, now))
          for (Id of : {rank - 1, rank, rank + 1})
            wake(of);
    }
    return std::move(programs);
  }

private:
  /// The four operations of a microbatch that have a slot.
  static constexpr Step kSteps[4] = {{Op::Forward, 0},
                                     {Op::Forward, 1},
                                     {Op::BackwardInput, 1},
                                     {Op::BackwardInput, 0}};
  struct RankState {
    std::array<Id, 4> next{}; ///< microbatch of each step
    uint32_t inFlight = 0, pendingWeights = 0;
  };

  uint64_t slotOf(Id rank, unsigned step) const {
    return slots[rank].first[step] + uint64_t(6) * ranks[rank].next[step];
  }
  bool isDone(Id rank, unsigned step) const {
    return ranks[rank].next[step] == problem.microbatches;
  }

  /// Whether the pattern's order may be left: while the pipeline fills, and
  /// when no forward is left.
  bool isFree(Id rank, uint32_t now) const {
    return now < slots[rank].filled || (isDone(rank, 0) && isDone(rank, 1));
  }

  /// Whether the rank did anything.
  bool runSlot(Id rank, uint32_t now) {
    std::array<unsigned, 4> order = {0, 1, 2, 3};
    std::sort(order.begin(), order.end(), [&](unsigned a, unsigned b) {
      return std::pair(isDone(rank, a), slotOf(rank, a)) <
             std::pair(isDone(rank, b), slotOf(rank, b));
    });
    size_t candidates = isFree(rank, now) ? order.size() : 1;
    for (size_t i = 0; i < candidates && !isDone(rank, order[i]); ++i)
      if (runPlanned(rank, order[i], i > 0, now))
        return true;
    RankState &state = ranks[rank];
    if (state.pendingWeights == 0)
      return false;
    --state.pendingWeights;
    --state.inFlight;
    runWeight(rank);
    return true;
  }

  bool runPlanned(Id rank, unsigned step, bool overtakes, uint32_t now) {
    RankState &state = ranks[rank];
    Id stage = stageOf(rank, kSteps[step].lane), k = state.next[step];
    if (step < 2) {
      if (!forwardReady(stage, k, now) || !hasRoom(rank, step, overtakes))
        return false;
      ++state.inFlight;
    } else {
      if (!backwardReady(stage, k, now))
        return false;
      ++state.pendingWeights;
    }
    UnitTime::run(rank, kSteps[step], k, now);
    ++state.next[step];
    return true;
  }

  /// A forward in its turn waits only for W that are pending; one that
  /// overtakes also leaves room for the forwards that it goes before.
  bool hasRoom(Id rank, unsigned step, bool overtakes) const {
    const RankState &state = ranks[rank];
    if (!overtakes)
      return state.inFlight < most || state.pendingWeights == 0;
    unsigned other = 1 - step;
    uint64_t mine = slotOf(rank, step), first = slotOf(rank, other);
    uint64_t passed =
        isDone(rank, other) || first >= mine
            ? 0
            : std::min<uint64_t>((mine - first + 5) / 6,
                                 problem.microbatches - state.next[other]);
    return state.inFlight + passed < most;
  }

  uint32_t most;
  std::vector<PatternSlots> slots; ///< per rank
  std::vector<RankState> ranks;
};

} // namespace

std::vector<RankProgram>
repeatedPattern(const ScheduleProblem &problem, uint32_t inFlight,
                llvm::function_ref<PatternSlots(Id rank)> slots) {
  std::vector<PatternSlots> ofRanks;
  for (Id rank = 0; rank < problem.ranks; ++rank)
    ofRanks.push_back(slots(rank));
  return RepeatedPattern(problem, inFlight, std::move(ofRanks)).run();
}

} // namespace sluice
