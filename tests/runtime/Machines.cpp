//===- tests/runtime/Machines.cpp - What this program tries the suite on --===//
//
// All that needs no other machine: the plug-in for GPUs has a program of its
// own (tests/cuda).
//
//===----------------------------------------------------------------------===//
#include "tests/conformance/BackendForTests.h"

const std::vector<sluice::tests::Machine> &sluice::tests::machines() {
  static const std::vector<Machine> all = [] {
    std::vector<Machine> made;
    for (const BackendInfo &row : backends())
      if (row.text != "cuda" && row.isBuilt())
        made.push_back({std::string(row.text), &row, {}, {}, {}});
    return made;
  }();
  return all;
}
