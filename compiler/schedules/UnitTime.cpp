#include "compiler/schedules/UnitTime.h"

#include <algorithm>
#include <utility>

namespace sluice {

namespace {

constexpr uint32_t kNever = ~0u;

/// A chain of stages in a V, in unit time.
class UnitTime {
public:
  explicit UnitTime(const ScheduleProblem &sizes)
      : problem(sizes), stages(sizes.ranks * sizes.chunks),
        placement(PlacementKind::V, sizes.ranks, stages, sizes.microbatches),
        forwardEnd(size_t(stages) * sizes.microbatches, kNever),
        backwardEnd(forwardEnd), freeAt(sizes.ranks, 0),
        programs(sizes.ranks, {Phase{1, {}}}) {}

protected:
  Id rankOf(Id stage) const { return placement.rankOf(stage, 0); }
  Id stageOf(Id rank, uint8_t lane) const {
    return lane % 2 == 0 ? lane * problem.ranks + rank
                         : (lane + 1) * problem.ranks - 1 - rank;
  }
  uint8_t laneOf(Id stage) const {
    return static_cast<uint8_t>(stage / problem.ranks);
  }
  size_t cell(Id stage, Id microbatch) const {
    return size_t(stage) * problem.microbatches + microbatch;
  }
  bool forwardReady(Id stage, Id microbatch, uint32_t now) const {
    return stage == 0 || ended(forwardEnd, stage - 1, microbatch, now);
  }
  bool backwardReady(Id stage, Id microbatch, uint32_t now) const {
    return ended(forwardEnd, stage, microbatch, now) &&
           (stage + 1 == stages ||
            ended(backwardEnd, stage + 1, microbatch, now));
  }
  void runForward(Id stage, Id microbatch, uint32_t now) {
    take(stage, {Op::Forward, laneOf(stage)}, now + 1);
    forwardEnd[cell(stage, microbatch)] = now + 1;
  }
  void runBackward(Id stage, Id microbatch, Op op, uint32_t now) {
    uint32_t end = now + (op == Op::Backward ? 2 : 1);
    take(stage, {op, laneOf(stage)}, end);
    backwardEnd[cell(stage, microbatch)] = end;
  }
  void runWeight(Id rank, uint32_t now) {
    add(rank, {Op::BackwardWeight, kOldestLane}, now + 1);
  }

  const ScheduleProblem &problem;
  uint32_t stages;
  Placement placement;
  std::vector<uint32_t> forwardEnd, backwardEnd; ///< per stage and microbatch
  std::vector<uint32_t> freeAt;                  ///< per rank
  std::vector<RankProgram> programs;

private:
  bool ended(const std::vector<uint32_t> &ends, Id stage, Id microbatch,
             uint32_t now) const {
    return ends[cell(stage, microbatch)] <= now;
  }
  void take(Id stage, Step step, uint32_t end) {
    add(rankOf(stage), step, end);
  }
  void add(Id rank, Step step, uint32_t end) {
    programs[rank].front().steps.push_back(step);
    freeAt[rank] = end;
  }
};

/// The rule of repeatedPattern.
class Pattern : UnitTime {
public:
  Pattern(const ScheduleProblem &sizes, uint32_t limit,
          std::vector<PatternSlots> slotsOfRanks)
      : UnitTime(sizes), most(limit), slots(std::move(slotsOfRanks)),
        ranks(sizes.ranks) {}

  std::vector<RankProgram> run() {
    uint64_t left = uint64_t(6) * problem.microbatches * problem.ranks;
    for (uint32_t now = 0; left > 0; ++now)
      for (Id rank = 0; rank < problem.ranks; ++rank)
        left -= runSlot(rank, now);
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
    runWeight(rank, now);
    return true;
  }

  bool runPlanned(Id rank, unsigned step, bool overtakes, uint32_t now) {
    RankState &state = ranks[rank];
    Id stage = stageOf(rank, kSteps[step].lane), k = state.next[step];
    if (step < 2) {
      if (!forwardReady(stage, k, now) || !hasRoom(rank, step, overtakes))
        return false;
      ++state.inFlight;
      runForward(stage, k, now);
    } else {
      if (!backwardReady(stage, k, now))
        return false;
      ++state.pendingWeights;
      runBackward(stage, k, Op::BackwardInput, now);
    }
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

/// The rule of eagerWave. Microbatches pass a stage in order, so each stage has
/// one candidate for forward and one for backward.
class Wave : UnitTime {
public:
  explicit Wave(const ScheduleProblem &sizes)
      : UnitTime(sizes), nextForward(stages, 0), nextBackward(stages, 0) {}

  std::vector<RankProgram> run() {
    uint64_t left = uint64_t(2) * stages * problem.microbatches;
    for (uint32_t now = 0; left > 0; ++now)
      for (Id rank = 0; rank < problem.ranks; ++rank)
        if (freeAt[rank] <= now)
          left -= runSlot(rank, now);
    return std::move(programs);
  }

private:
  bool runSlot(Id rank, uint32_t now) {
    for (uint32_t lane = problem.chunks; lane-- > 0;) {
      Id stage = stageOf(rank, static_cast<uint8_t>(lane));
      Id k = nextBackward[stage];
      if (k == problem.microbatches || !backwardReady(stage, k, now))
        continue;
      ++nextBackward[stage];
      runBackward(stage, k, Op::Backward, now);
      return true;
    }
    for (uint32_t lane = problem.chunks; lane-- > 0;) {
      Id stage = stageOf(rank, static_cast<uint8_t>(lane));
      Id k = nextForward[stage];
      if (k == problem.microbatches || !forwardReady(stage, k, now) ||
          (stage == 0 && inFlight() >= problem.ranks * problem.chunks))
        continue;
      ++nextForward[stage];
      runForward(stage, k, now);
      return true;
    }
    return false;
  }

  /// Stage-microbatches on rank 0.
  uint32_t inFlight() const {
    uint32_t count = 0;
    for (uint32_t lane = 0; lane < problem.chunks; ++lane) {
      Id stage = stageOf(0, static_cast<uint8_t>(lane));
      count += nextForward[stage] - nextBackward[stage];
    }
    return count;
  }

  std::vector<Id> nextForward, nextBackward; ///< per stage
};

} // namespace

std::vector<RankProgram>
repeatedPattern(const ScheduleProblem &problem, uint32_t inFlight,
                llvm::function_ref<PatternSlots(Id rank)> slots) {
  std::vector<PatternSlots> ofRanks;
  for (Id rank = 0; rank < problem.ranks; ++rank)
    ofRanks.push_back(slots(rank));
  return Pattern(problem, inFlight, std::move(ofRanks)).run();
}

std::vector<RankProgram> eagerWave(const ScheduleProblem &problem) {
  return Wave(problem).run();
}

} // namespace sluice
