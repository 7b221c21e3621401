//===- tests/ir/CollectiveNets.h - Nets with operations of several ranks --===//
#ifndef SLUICE_TESTS_IR_COLLECTIVENETS_H
#define SLUICE_TESTS_IR_COLLECTIVENETS_H

#include "tests/ir/NetForTests.h"

namespace sluice::testing {

/// Every rank holds all of the stages, which pass nothing on: microbatch k is
/// computed on rank k mod ranks. A collective over all ranks for each stage.
inline Net copies(uint32_t ranks, uint32_t microbatches, uint32_t stages) {
  Net net = chain(ranks, microbatches, true, stages);
  net.edges.clear();
  for (Id s = 0; s < stages; ++s) {
    net.collectives.emplace_back();
    for (Id r = 0; r < ranks; ++r)
      net.collectives.back().push_back(r);
  }
  return net;
}

/// Ranks 0 and 1 pass a value on and hold copies of stage 2.
inline Net messageAndCopies() {
  Net net = chain(2, 2, false, 3);
  net.edges = {{0, 1, 8}};
  net.stages[2] = testStage(2, true);
  net.collectives = {{0, 1}};
  return net;
}

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_COLLECTIVENETS_H
