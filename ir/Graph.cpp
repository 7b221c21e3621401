#include "ir/Graph.h"

namespace sluice {

void Graph::finalize() {
  auto nodeCount = static_cast<Id>(nodes.size());
  auto valueCount = static_cast<Id>(values.size());
  auto usesEnd = [&](Id value) {
    return value + 1 < valueCount ? values[value + 1].firstUse
                                  : static_cast<Id>(uses.size());
  };

  firstOutput.assign(nodeCount + 1, 0);
  for (const Value &value : values)
    ++firstOutput[value.producer + 1];
  firstInput.assign(nodeCount + 1, 0);
  for (Id consumer : uses)
    ++firstInput[consumer + 1];
  for (Id node = 0; node < nodeCount; ++node) {
    firstOutput[node + 1] += firstOutput[node];
    firstInput[node + 1] += firstInput[node];
  }

  // Values in order, so that each node's inputs are in order of value number.
  inputValues.resize(uses.size());
  std::vector<Id> next(firstInput.begin(), firstInput.end() - 1);
  for (Id value = 0; value < valueCount; ++value)
    for (Id use = values[value].firstUse; use < usesEnd(value); ++use)
      inputValues[next[uses[use]]++] = value;
}

} // namespace sluice
