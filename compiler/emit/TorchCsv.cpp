#include "compiler/emit/Emit.h"
#include "ir/text/Actions.h"

namespace sluice {

std::string whyNotTorchCsv(const Graph &graph, const Schedule &schedule) {
  std::vector<Id> rankOf(graph.stages.size(), kNone);
  for (Id rank = 0; rank < schedule.ranks(); ++rank)
    for (Id node : schedule.rank(rank)) {
      Id stage = graph.nodes[node].stage;
      if (rankOf[stage] != kNone && rankOf[stage] != rank)
        return "PyTorch's CSV cannot say which of two copies of a stage "
               "computes: stage " +
               std::to_string(stage) + " is on rank " +
               std::to_string(rankOf[stage]) + " and on rank " +
               std::to_string(rank);
      rankOf[stage] = rank;
    }
  return "";
}

void emitTorchCsv(const Graph &graph, const Schedule &schedule,
                  llvm::raw_ostream &out) {
  for (Id rank = 0; rank < schedule.ranks(); ++rank) {
    const char *separator = "";
    for (const std::string &name :
         entryNames(graph, schedule, rank, Op::Recompute)) {
      out << separator << name;
      separator = ",";
    }
    out << '\n';
  }
}

/// A row of what a rank computes and sends, pairs as one cell.
static void emitRow(const Plan &plan, Id rank, llvm::raw_ostream &out) {
  const RankPlan &list = plan.ranks[rank];
  const char *separator = "";
  std::vector<bool> reduced(plan.stages.size());
  std::vector<std::string> waits;
  for (size_t at = 0; at < list.ops.size(); ++at) {
    const PlanOp &op = list.ops[at];
    if (!isInCsv(op.op))
      continue;
    bool joins = isCompute(op.op) && op.group != kNone;
    bool first = joins && (at == 0 || list.ops[at - 1].group != op.group);
    out << (joins && !first ? ";" : separator) << (first ? "(" : "")
        << nameOf(op) << (joins && !first ? kPairEnd : "");
    separator = ",";
    if (isSend(op.op))
      waits.push_back(std::to_string(op.stage) + "WAIT_" +
                      std::string(info(op.op).text) +
                      std::to_string(op.microbatch));
    reduced[op.stage] =
        reduced[op.stage] || (isCompute(op.op) && op.op != Op::Forward);
  }
  for (const std::string &wait : waits)
    out << separator << wait;
  for (Id stage = 0; stage < plan.stages.size(); ++stage)
    if (reduced[stage])
      out << separator << stage << "REDUCE_GRAD," << stage
          << "WAIT_REDUCE_GRAD";
  out << '\n';
}

void emitTorchCsvComms(const Plan &plan, llvm::raw_ostream &out) {
  for (Id rank = 0; rank < plan.ranks.size(); ++rank)
    emitRow(plan, rank, out);
}

} // namespace sluice
