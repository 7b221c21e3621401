//===- tests/cuda/double/Double.h - What tests say to the double ----------===//
//
// A double of the CUDA runtime, NCCL and cublasLt, as far as runtime/cuda uses
// them: the same functions, declared by the real headers, linked instead of the
// real libraries. Devices are memory of this process and streams are queues,
// worked off by whatever thread waits for them. Nothing depends on real time:
// each stream has a virtual clock, and vector clocks say what is ordered.
//
// What tests cannot see through the backend, they ask and set here.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_CUDA_DOUBLE_DOUBLE_H
#define SLUICE_TESTS_CUDA_DOUBLE_DOUBLE_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sluice::cudadouble {

/// Virtual time in picoseconds.
using Ticks = int64_t;

/// What a message takes: so long its link carries nothing else, and so long
/// after that it arrives.
struct TransferCost {
  Ticks occupancy = 0;
  Ticks latency = 0;
};

/// What the machine is like.
struct Settings {
  int devices = 8;
  size_t deviceMemory = size_t(1) << 30; ///< of each
  int driverVersion = 13000;
  int ncclVersion = 0; ///< 0: that of the headers
  /// Not 0: which of several streams goes on is drawn at random, and NCCL's
  /// launches come late, as they may on communicators that do not block.
  uint64_t seed = 0;
  /// Messages up to so many bytes leave before their receive is there, as in a
  /// library that buffers.
  size_t eagerBytes = 0;
  /// Communicators that can have a kernel on one device at a time; 0: all. In
  /// what order they get there, NCCL_LAUNCH_ORDER_IMPLICIT says.
  unsigned residentCommunicators = 0;
  /// Of a message from one device to another; nothing: none takes time.
  std::function<TransferCost(int from, int to, size_t bytes)> transferCost;
  /// What a copy on a device takes, and what computes there.
  Ticks copyCost = 0;
  /// Whether virtual time goes with real time: a host function takes what it
  /// took, and nothing starts before it was enqueued. Else a host function
  /// takes what it spends, and enqueueing nothing.
  bool measureHostFunctions = true;
  /// Whether waits fail once nothing can ever move again.
  bool failOnDeadlock = false;
};

/// A new machine. Nothing of the last one may be in use.
void reset(const Settings &settings = {});

/// Something that the double has seen and a program must not do.
struct Fault {
  enum class Kind {
    Race,     ///< two accesses without an order
    Deadlock, ///< nothing can move any more
    Mismatch, ///< a send meets a receive of another size
    Misuse    ///< a call that its library does not allow
  };
  Kind kind;
  std::string text;
};

/// Since the reset.
std::vector<Fault> faults();
std::vector<Fault> faults(Fault::Kind kind);

/// Calls so far, by the name of the function.
std::map<std::string, uint64_t> calls();

/// What there is of each kind of object: streams, events, allocations,
/// communicators, graphs, libraries. Empty where everything was given back.
std::map<std::string, uint64_t> objects();

/// Lets the n-th call from now on of the function fail (from 1).
void failCall(const std::string &function, uint64_t number);
/// Lets the n-th operation enqueued from now on (from 1) never end.
void hangOperation(uint64_t number);
/// Lets every communicator report an error from now on.
void failCommunicators();

/// The latest end of what has been run.
Ticks virtualTime();

/// In a host function: takes virtual time.
void spend(Ticks time);
/// In a host function: what it touches; checked for races.
void touches(const void *data, size_t bytes, bool writes);
/// In a host function: how reports name it.
void label(const std::string &name);

} // namespace sluice::cudadouble

#endif // SLUICE_TESTS_CUDA_DOUBLE_DOUBLE_H
