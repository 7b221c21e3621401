#include "compiler/schedules/OrdersText.h"

#include "ir/Ops.h"
#include "ir/Words.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace sluice {

namespace {

class OrderReader {
public:
  OrderReader(const Actions &all, const OrderLimits &limits, Diagnostics &sink)
      : limits(limits), diagnostics(sink) {
    orders.firstOfRank.push_back(0);
    for (const Action &action : all.list)
      if (isCompute(action.op))
        highest = std::max(highest, action.microbatch);
  }

  void rank(const ActionLine &line, std::span<const Action> actions) {
    current = &line;
    for (size_t i = 0; i < actions.size(); ++i)
      operation(actions[i], i + 1 < actions.size() &&
                                actions[i].group != kNone &&
                                actions[i].group == actions[i + 1].group);
    orders.firstOfRank.push_back(static_cast<Id>(orders.entries.size()));
  }

  Orders take(uint32_t &stages) {
    stages = limits.given ? limits.stages
                          : static_cast<uint32_t>(rankOfStage.size());
    return std::move(orders);
  }

private:
  SourceLocation at(const Action &action) const {
    SourceLocation where = current->where;
    if (current->columnsKnown)
      where.column = action.column;
    return where;
  }

  void fail(const Action &action, const std::string &message) {
    diagnostics.error(at(action), nameOf(action) + message);
  }

  static std::string nameOf(const Action &action) {
    return opName(action.op, action.stage, action.microbatch);
  }

  void operation(const Action &action, bool joined) {
    if (isMessage(action.op))
      return message(action);
    if (action.microbatch >= limits.microbatches)
      return tooHigh(action);
    if (action.stage >= limits.stages)
      return fail(action,
                  " is of stage " + number(action.stage) +
                      (limits.given ? ", there are " : ", must be below ") +
                      number(limits.stages));
    if (placed(action) && once(action))
      orders.entries.push_back(
          {action.stage, action.microbatch, action.op, joined});
  }

  /// Told once: the orders of more microbatches than the spec has are full of
  /// these.
  void tooHigh(const Action &action) {
    if (std::exchange(toldMicrobatch, true))
      return;
    fail(action, " is of microbatch " + number(action.microbatch) +
                     ", there are " + number(limits.microbatches) +
                     " (pipeline.microbatches)");
    if (highest > action.microbatch)
      diagnostics.lastError().note("the highest in the orders is " +
                                   number(highest));
  }

  void message(const Action &action) {
    if (!std::exchange(hasMessages, true))
      diagnostics.warning(at(action), nameOf(action) +
                                          " and all other messages of the "
                                          "orders are replaced by the "
                                          "compiler's own");
  }

  /// A stage stays on the rank on which it was first.
  bool placed(const Action &action) {
    Id stage = action.stage;
    Id rank = static_cast<Id>(orders.firstOfRank.size() - 1);
    if (stage >= rankOfStage.size())
      rankOfStage.resize(stage + size_t(1), kNone);
    Id &of = rankOfStage[stage];
    if (of == kNone)
      of = rank;
    if (of != rank && toldStages.insert(stage).second) { // each stage once
      fail(action, " is on rank " + number(rank) + ", stage " + number(stage) +
                       " before on rank " + number(of));
      diagnostics.lastError().note(
          "the operations of a stage stand on one rank; orders with two copies "
          "of a stage have no text");
    }
    return of == rank;
  }

  /// Forward once; backward once, whole or in its two parts.
  bool once(const Action &action) {
    for (Op other :
         {Op::Forward, Op::Backward, Op::BackwardInput, Op::BackwardWeight}) {
      bool same = other == action.op;
      bool both = (other == Op::Backward && action.op != Op::Forward) ||
                  (action.op == Op::Backward && other != Op::Forward);
      auto found =
          seen.find({action.stage, action.microbatch, unsigned(other)});
      if (!(same || both) || found == seen.end())
        continue;
      fail(action, same ? " stands twice"
                        : " stands beside " +
                              opName(other, action.stage, action.microbatch) +
                              ": a backward is whole or split, not both");
      diagnostics.lastError().note("the other is here", found->second);
      return false;
    }
    seen[{action.stage, action.microbatch, unsigned(action.op)}] = at(action);
    return true;
  }

  const OrderLimits &limits;
  Diagnostics &diagnostics;
  const ActionLine *current = nullptr;
  bool hasMessages = false, toldMicrobatch = false;
  Id highest = 0; ///< microbatch
  Orders orders;
  std::vector<Id> rankOfStage;
  llvm::DenseSet<Id> toldStages;
  llvm::DenseMap<std::tuple<Id, Id, unsigned>, SourceLocation> seen;
};

} // namespace

std::string scheduleCsvPath(const Spec &spec) {
  llvm::SmallString<128> path(spec.pipeline.scheduleCsv.value);
  if (llvm::sys::path::is_relative(path)) {
    path = llvm::sys::path::parent_path(spec.file);
    llvm::sys::path::append(path, spec.pipeline.scheduleCsv.value);
  }
  return path.str().str();
}

Orders parseOrders(std::span<const ActionLine> lines, char separator,
                   const OrderLimits &limits, uint32_t &stages,
                   Diagnostics &diagnostics) {
  Actions actions = parseActions(lines, separator, diagnostics);
  OrderReader reader(actions, limits, diagnostics);
  for (Id rank = 0; rank < actions.ranks(); ++rank)
    reader.rank(lines[rank], actions.rank(rank));
  return reader.take(stages);
}

} // namespace sluice
