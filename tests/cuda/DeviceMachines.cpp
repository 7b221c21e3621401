//===- tests/cuda/DeviceMachines.cpp - The suite of backends on real GPUs -===//
//
// As CudaMachines.cpp, with the libraries themselves: for tools/gpu_check.
//
//===----------------------------------------------------------------------===//
#include "tests/conformance/BackendForTests.h"

namespace sluice::tests {

const std::vector<Machine> &machines() {
  static const std::vector<Machine> all = [] {
    Machine made{"cuda, one GPU", findBackend("cuda"), {}, {}, {}};
    made.options.devices = 1;
    made.begin = made.end = [] {};
    return std::vector<Machine>{made};
  }();
  return all;
}

} // namespace sluice::tests
