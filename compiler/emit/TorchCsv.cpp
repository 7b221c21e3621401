#include "compiler/emit/Emit.h"

namespace sluice {

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
