#include "ir/Schedule.h"

namespace sluice {

std::vector<std::string> entryNames(const Graph &graph,
                                    const Schedule &schedule, Id rank,
                                    std::optional<Op> left) {
  std::vector<std::string> names;
  bool joins = false;
  for (size_t at = schedule.firstOfRank[rank];
       at < schedule.firstOfRank[rank + 1]; ++at) {
    const Node &node = graph.nodes[schedule.order[at]];
    if (node.op == left)
      continue;
    std::string name = opName(node.op, node.stage, node.microbatch);
    if (joins)
      names.back() += ";" + name + kPairEnd;
    else
      names.push_back(schedule.joins(at) ? "(" + name : name);
    joins = !joins && schedule.joins(at);
  }
  return names;
}

} // namespace sluice
