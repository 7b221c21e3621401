//===- runtime/Peers.h - The processes of a job --------------------------===//
//
// Where a job has a process for each rank, what the processes tell each other
// beside the plan's messages goes through this small interface: letters, in
// order, that nobody waits for. What they say is Liaison.h's.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_PEERS_H
#define SLUICE_RUNTIME_PEERS_H

#include "ir/Plan.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::runtime {

/// One rank each: process i is rank i of all replicas.
class Peers {
public:
  /// Who hears of letters. Called from one thread of the Peers' own, one call
  /// after the other; no call may wait for another process.
  class Listener {
  public:
    virtual ~Listener() = default;
    virtual void letter(Id from, std::string_view text) = 0;
    /// Some hundred times a second, and after every letter.
    virtual void tick() = 0;
  };

  /// Waits until all processes have come here: only after a clean end.
  virtual ~Peers() = default;
  virtual Id self() const = 0;
  virtual uint32_t count() const = 0;
  /// Returns what process 0 says here. Waits for it: all processes call it, as
  /// soon as they have met.
  virtual std::string share(std::string text) = 0;
  /// Hands `text` on to process `to`, which may be this one. Does not wait.
  /// What one process posts to another arrives in order. From any thread.
  virtual void post(Id to, std::string text) = 0;
  /// Waits until all that was posted has left, for `seconds` at most.
  virtual void flush(double seconds) = 0;
  /// From here on `listener` hears, first what came before; null: nobody. No
  /// call to the one before is running when it returns, unless it is called
  /// from such a call.
  virtual void listen(Listener *listener) = 0;
  /// What to add to this process's clock (Clock.h) for that of process 0, in
  /// nanoseconds.
  virtual int64_t clockOffset() const = 0;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_PEERS_H
