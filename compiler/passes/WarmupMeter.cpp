#include "compiler/passes/WarmupMeter.h"

#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/PassManager.h"
#include "compiler/passes/WarmupSearch.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace sluice {

WarmupMeter::WarmupMeter(Compilation &compilation)
    : c(compilation), choice(*c.choice), network(c.network()),
      mostForwards(choice.sizes.microbatches * choice.sizes.chunks),
      trial(*c.stages, choice.placement, choice.sizes.microbatches,
            c.spec->model.timeUnit, network),
      along(choice.placement.ranksInOrder()) {
  readLimit();
}

/// Takes the limit from where every plan gets it.
void WarmupMeter::readLimit() {
  Diagnostics ignored;
  Compilation empty(ignored);
  empty.spec = c.spec;
  empty.plan.emplace();
  passes::AnnotatePlan(empty);
  const Plan &plan = *empty.plan;
  if (plan.memoryLimit != 0)
    room = plan.memoryLimit - std::min(plan.memoryLimit, plan.memoryAllowance);
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

Counts WarmupMeter::standard() const {
  Counts counts;
  for (Id at = 0; at < ranks(); ++at)
    counts.push_back(choice.info->warmup(choice.sizes, at));
  return counts;
}

Counts WarmupMeter::standardThatRuns() {
  Counts counts = standard();
  bool isShort = choice.sizes.chunks > 1 &&
                 choice.sizes.microbatches % choice.sizes.groupSize != 0;
  return isShort ? raisedThatRuns(counts) : counts;
}

/// Doubles what is added, then halves the rest. With all forwards first every
/// list runs.
Counts WarmupMeter::raisedThatRuns(const Counts &counts) {
  auto more = [&](uint32_t extra) {
    Counts raised;
    for (uint32_t count : counts)
      raised.push_back(std::min(count + extra, most()));
    return raised;
  };
  if (runs(counts))
    return counts;
  uint32_t bad = 0, good = 1;
  while (good < most() && !runs(more(good))) {
    bad = good;
    good *= 2;
  }
  while (good - bad > 1) {
    uint32_t middle = bad + (good - bad) / 2;
    (runs(more(middle)) ? good : bad) = middle;
  }
  return more(good);
}

Orders WarmupMeter::listed(const std::vector<RankProgram> &programs) const {
  auto trained = [&](Id stage) { return c.stages->stages[stage].backward; };
  Orders orders =
      listOrders({choice.sizes, choice.placement, choice.info->lanes,
                  choice.splitBackward, trained},
                 programs);
  addRecomputes(orders, c.stages->stages);
  return orders;
}

Orders WarmupMeter::ordersOf(const Counts &counts) const {
  return ordersWith(choice, *c.stages, counts);
}

std::optional<Ticks> WarmupMeter::objectiveOf(const Orders &orders) {
  if (!trial.run(orders))
    return std::nullopt;
  return c.spec->pipeline.objective.value == Objective::Span ? trial.span()
                                                             : trial.makespan();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

std::vector<bool> WarmupMeter::surelyOver(const Orders &orders) const {
  std::vector<bool> over(ranks(), false);
  if (!room)
    return over;
  std::vector<Bytes> least = trial.leastBytes(orders);
  for (auto [at, rank] : llvm::enumerate(along))
    over[at] = least[rank] > *room;
  return over;
}

bool WarmupMeter::mayFit(const Orders &orders) const {
  return !room || !llvm::is_contained(surelyOver(orders), true);
}

Counts WarmupMeter::countsOver() const {
  Counts over(ranks(), 0);
  if (!room)
    return over;
  std::vector<Bytes> arenas = trial.arenas();
  for (auto [at, rank] : llvm::enumerate(along))
    if (arenas[rank] > *room)
      over[at] = static_cast<uint32_t>(std::min<Bytes>(
          most(), (arenas[rank] - *room - 1) / bytesPerCount(rank) + 1));
  return over;
}

Bytes WarmupMeter::excess() const {
  Bytes sum = 0;
  if (room)
    for (Bytes bytes : trial.arenas())
      sum += bytes - std::min(bytes, *room);
  return sum;
}

/// What one more microbatch in flight takes on `rank`, at least 1.
Bytes WarmupMeter::bytesPerCount(Id rank) const {
  Bytes each = 1;
  for (const Placement::Holding &held :
       choice.placement.holdingsOf(rank, choice.sizes.microbatches)) {
    const Stage &stage = c.stages->stages[held.stage];
    const StageBytes &bytes = stage.bytes;
    auto left = [](bool isLeft, Bytes of) {
      return isLeft ? alignedSize(of) : 0;
    };
    each = std::max(
        each, left(stage.hasCheckpoint(), bytes.checkpoint) +
                  left(stage.savedBy() == Op::Forward,
                       bytes.activation - bytes.keptForWeight) +
                  left(stage.keptBy() == Op::Forward, bytes.keptForWeight));
  }
  return each;
}

/// Each rank's part of the orders in which all have its count: no list that
/// falls makes it hold less.
Orders WarmupMeter::ordersAlone(const Counts &counts) const {
  std::vector<RankProgram> programs;
  for (Id at = 0; at < ranks(); ++at)
    programs.push_back(
        choice.info->programs(choice.sizes, Counts(ranks(), counts[at]))[at]);
  return listed(programs);
}

Counts WarmupMeter::caps() const {
  if (!room)
    return Counts(ranks(), most());
  Counts low(ranks(), 0), high(ranks(), most() + 1); // exclusive; 0 may not fit
  while (true) {
    Counts middle;
    for (auto [a, b] : llvm::zip(low, high))
      middle.push_back(a + (b - a) / 2);
    if (middle == low)
      return low;
    std::vector<bool> over = surelyOver(ordersAlone(middle));
    for (Id at = 0; at < ranks(); ++at)
      (over[at] ? high : low)[at] = middle[at];
  }
}

} // namespace sluice
