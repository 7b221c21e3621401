#include "compiler/emit/Emit.h"

namespace sluice {

void emitOps(const Graph &graph, const Schedule &schedule,
             llvm::raw_ostream &out) {
  for (Id rank = 0; rank < schedule.ranks(); ++rank) {
    out << "rank " << rank << ":";
    for (Id node : schedule.rank(rank)) {
      const Node &n = graph.nodes[node];
      if (isCompute(n.op))
        out << ' ' << nameOf(n);
    }
    out << '\n';
  }
}

} // namespace sluice
