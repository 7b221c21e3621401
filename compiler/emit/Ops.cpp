#include "compiler/emit/Emit.h"

namespace sluice {

void emitOps(const Graph &graph, const Schedule &schedule,
             llvm::raw_ostream &out) {
  for (Id rank = 0; rank < schedule.ranks(); ++rank) {
    out << "rank " << rank << ":";
    for (const std::string &name : entryNames(graph, schedule, rank))
      out << ' ' << name;
    out << '\n';
  }
}

} // namespace sluice
