#include "compiler/emit/Emit.h"

namespace sluice {

void emitTorchCsv(const Graph &graph, const Schedule &schedule,
                  llvm::raw_ostream &out) {
  for (Id rank = 0; rank < schedule.ranks(); ++rank) {
    const char *separator = "";
    for (Id node : schedule.rank(rank)) {
      const Node &n = graph.nodes[node];
      if (!isCompute(n.op) || n.op == Op::Recompute)
        continue;
      out << separator << nameOf(n);
      separator = ",";
    }
    out << '\n';
  }
}

} // namespace sluice
