#include "ir/verify/Internal.h"

#include <algorithm>

namespace sluice::verify {
namespace {

/// A step that clips gradients by their norm needs the sums of squares of all
/// tensors of the model. Each trained stage has its own computed once, on one
/// of the ranks that hold it; then all ranks that take steps sum what they
/// have, in one collective.
class Norms {
public:
  Norms(const PlanIndex &of, Report &to)
      : plan(of.plan), report(to), normed(plan.stages.size()),
        stepped(plan.stages.size()) {}

  void check() {
    for (Id r = 0; r < plan.ranks.size(); ++r)
      checkRank(r);
    for (Id s = 0; s < plan.stages.size(); ++s)
      checkStage(s);
    for (const OpPlace &place : sums)
      checkSum(place);
  }

private:
  const PlanOp &at(OpPlace place) const {
    return plan.ranks[place.rank].ops[place.index];
  }
  bool clips(const PlanOp &op) const {
    return plan.stages[op.stage].bytes.norms != 0;
  }
  void tell(FindingKind kind, OpPlace place, std::string message) {
    if (report.admits(kind))
      report.error(kind, place, std::move(message));
  }

  void checkRank(Id r) {
    std::optional<OpPlace> sum, step;
    for (uint32_t i = 0; i < plan.ranks[r].ops.size(); ++i) {
      OpPlace place{r, i};
      const PlanOp &op = at(place);
      if (op.op == Op::NormGradients)
        addNorm(place, sum);
      if (op.op == Op::AllReduceNorms) {
        if (sum)
          tell(FindingKind::Duplicate, place,
               nameOf(op) + " stands after " + nameOf(at(*sum)) + " of rank " +
                   std::to_string(r) + ", which sums all there is");
        else if (step)
          tell(FindingKind::Order, place,
               nameOf(op) + " stands after " + nameOf(at(*step)));
        sum = place;
      }
      if (op.op == Op::OptimizerStep && clips(op)) {
        stepped[op.stage] = place;
        if (!step)
          step = place;
      }
    }
    if (step && !sum)
      tell(FindingKind::Missing, *step,
           opName(Op::AllReduceNorms, at(*step).stage, kNone) +
               " is missing on rank " + std::to_string(r) + ": " +
               nameOf(at(*step)) + " clips by the norms of all stages");
    ranks += step.has_value();
    if (sum)
      sums.push_back(*sum);
  }

  void addNorm(OpPlace place, const std::optional<OpPlace> &sum) {
    const PlanOp &op = at(place);
    if (sum)
      tell(FindingKind::Order, place,
           nameOf(op) + " stands after " + nameOf(at(*sum)));
    if (!clips(op))
      tell(FindingKind::Malformed, place,
           nameOf(op) + " computes norms, but stage " +
               std::to_string(op.stage) + " has room for none");
    std::optional<OpPlace> &first = normed[op.stage];
    if (first && first->rank != place.rank)
      tell(FindingKind::Duplicate, place,
           nameOf(op) + " stands on rank " + std::to_string(first->rank) +
               " and on rank " + std::to_string(place.rank) +
               ": the norms of both would be added");
    first = place;
  }

  void checkStage(Id stage) {
    if (stepped[stage] && !normed[stage])
      tell(FindingKind::Missing, *stepped[stage],
           opName(Op::NormGradients, stage, kNone) +
               " is missing: " + nameOf(at(*stepped[stage])) +
               " clips by the norms of all stages");
  }

  void checkSum(OpPlace place) {
    const Collective &of = plan.collectives[at(place).channel];
    if (of.overReplicas)
      tell(FindingKind::Order, place,
           nameOf(at(place)) +
               " sums over replicas, of which each has the norms of all");
    else if (of.ranks.size() < ranks)
      tell(FindingKind::Order, place,
           nameOf(at(place)) + " sums over " + std::to_string(of.ranks.size()) +
               (of.ranks.size() == 1 ? " rank, " : " ranks, ") +
               std::to_string(ranks) + " take steps");
  }

  const Plan &plan;
  Report &report;
  std::vector<std::optional<OpPlace>> normed, stepped; ///< per stage, the last
  std::vector<OpPlace> sums;
  size_t ranks = 0; ///< that take steps
};

} // namespace

void checkNorms(const PlanIndex &index, Report &report) {
  auto clips = [](const Stage &stage) { return stage.bytes.norms != 0; };
  if (index.hasNorms ||
      std::any_of(index.plan.stages.begin(), index.plan.stages.end(), clips))
    Norms(index, report).check();
}

} // namespace sluice::verify
