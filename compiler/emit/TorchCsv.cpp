#include "compiler/emit/Emit.h"

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

} // namespace sluice
