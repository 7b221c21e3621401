//===- tests/runtime/HostMachine.cpp - The suite of backends on `host` ---===//
#include "tests/conformance/BackendForTests.h"

const std::vector<sluice::tests::Machine> &sluice::tests::machines() {
  static const std::vector<Machine> all = {
      {"host", findBackend("host"), {}, {}, {}}};
  return all;
}
