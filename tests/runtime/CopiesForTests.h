//===- tests/runtime/CopiesForTests.h - One stage on several ranks -------===//
#ifndef SLUICE_TESTS_RUNTIME_COPIESFORTESTS_H
#define SLUICE_TESTS_RUNTIME_COPIESFORTESTS_H

#include "tests/ir/PlanBuilderForTests.h"

#include <string>
#include <vector>

namespace sluice::tests {

/// Copies of one stage on `ranks` ranks, each with a microbatch of its own,
/// whose gradients are summed over all of them.
inline Plan makeCopies(uint32_t ranks, Bytes gradients) {
  testing::Net net = testing::chain(ranks, ranks, true, 1);
  net.stages[0].bytes.gradients = gradients;
  net.collectives.emplace_back();
  std::vector<std::string> lists;
  for (Id rank = 0; rank < ranks; ++rank) {
    net.collectives[0].push_back(rank);
    const std::string microbatch = std::to_string(rank);
    lists.push_back("0F" + microbatch + " 0B" + microbatch +
                    " 0ALL_REDUCE_G 0STEP");
  }
  return testing::buildPlan(net, lists);
}

} // namespace sluice::tests

#endif // SLUICE_TESTS_RUNTIME_COPIESFORTESTS_H
