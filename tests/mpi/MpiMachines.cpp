//===- tests/mpi/MpiMachines.cpp - What this program tries the suite on ---===//
#include "tests/conformance/BackendForTests.h"

const std::vector<sluice::tests::Machine> &sluice::tests::machines() {
  static const std::vector<Machine> all = {
      {"mpi, in pieces", findBackend("mpi"), {}, {}, {}}};
  return all;
}
