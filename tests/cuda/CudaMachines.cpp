//===- tests/cuda/CudaMachines.cpp - The suite of backends on `cuda` ------===//
//
// With a GPU a rank, over NCCL, and with one for all; each also with whatever
// can go on going on in another order.
//
//===----------------------------------------------------------------------===//
#include "tests/conformance/BackendForTests.h"
#include "tests/cuda/double/Double.h"

namespace sluice::tests {

/// What moves data takes long enough for times of different ranks to be told
/// apart, though each device has a clock of its own.
static constexpr cudadouble::Ticks kMove = 100'000'000; // 100 us
static cudadouble::TransferCost slowTransfer(int, int, size_t) {
  return {kMove, 0};
}

static Machine machine(const std::string &name, uint32_t devices,
                       uint64_t seed) {
  Machine made{name, findBackend("cuda"), {}, {}, {}};
  made.options.devices = devices;
  if (devices == 0) // NCCL begins in the order of the host
    made.lacks = kAnyOrder;
  made.begin = [seed] {
    cudadouble::Settings settings;
    settings.seed = seed;
    settings.transferCost = slowTransfer;
    settings.copyCost = kMove;
    cudadouble::reset(settings);
  };
  made.end = [] {
    for (const cudadouble::Fault &fault : cudadouble::faults()) {
      INFO(fault.text);
      CHECK(fault.kind == cudadouble::Fault::Kind::Deadlock);
    }
    for (const auto &[kind, count] : cudadouble::objects()) {
      INFO(count << " " << kind << " are left");
      CHECK(count == 0);
    }
  };
  return made;
}

const std::vector<Machine> &machines() {
  static const std::vector<Machine> all = {
      machine("cuda, a GPU a rank", 0, 0), machine("cuda, one GPU", 1, 0),
      machine("cuda, a GPU a rank, at random", 0, 7),
      machine("cuda, one GPU, at random", 1, 8)};
  return all;
}

} // namespace sluice::tests
