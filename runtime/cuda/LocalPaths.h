//===- runtime/cuda/LocalPaths.h - Messages within a process --------------===//
//
// NCCL refuses two ranks on one device. Where ranks share devices, messages and
// collectives are copies and events instead: both ends record an event, and
// whoever comes second, in the order of the hosts, enqueues the copy behind
// both. The other's host holds back what follows on that stream until then, so
// that a device is never given a wait for something that was not enqueued
// before.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CUDA_LOCALPATHS_H
#define SLUICE_RUNTIME_CUDA_LOCALPATHS_H

#include "runtime/cuda/Codes.h"

#include "ir/Ops.h"
#include "ir/Units.h"

#include <mutex>
#include <vector>

namespace sluice::runtime::cuda {

/// A channel, which has two ends, or a collective, which has one a rank.
class LocalPath {
public:
  explicit LocalPath(size_t ends) : seats(ends) {}

  enum class Posted : uint8_t {
    Waits, ///< others are not there yet: ask `join`
    Ended, ///< all were there; what moves the data is on the caller's stream
    Failed
  };
  /// What an end works on.
  struct Work {
    cudaStream_t stream;
    void *data;
    Bytes bytes;
    Pattern pattern = Pattern::None; ///< of a collective
    Element element = Element::None; ///< of a sum
    void *part = nullptr;            ///< where the end's own part of a sum goes
  };

  /// Gives an end its events, of its device, before its first work.
  void equip(size_t seat, cudaEvent_t ready, cudaEvent_t done) {
    seats[seat].ready = ready;
    seats[seat].done = done;
  }
  /// Takes part; not while it is pending. What stands on the stream before is
  /// waited for. Of a channel, seat 0 sends.
  Posted post(size_t seat, const Work &work, Answer &answer);
  /// True while a work that was posted has not been seen to end.
  bool pending(size_t seat) const { return seats[seat].pending; }
  /// If the posted work of `seat` was enqueued by another: lets its stream wait
  /// for that, and it is no longer pending.
  Posted join(size_t seat, Answer &answer);

private:
  struct Seat {
    Work work = {};
    cudaEvent_t ready = nullptr;
    cudaEvent_t done = nullptr; ///< of what it has enqueued for all
    uint64_t seen = 0;          ///< value of `completed` when it was posted
    bool pending = false;       ///< of the end's own thread
  };
  Answer enqueue(size_t seat);
  Answer move(const Work &on);
  Answer meet(const Work &on);
  Answer sum(const Work &on);
  Answer hand(size_t of, size_t from, size_t to, const Work &on);

  std::mutex mutex;
  std::vector<Seat> seats;
  size_t taken = 0;
  uint64_t completed = 0;
  cudaEvent_t last = nullptr; ///< done of who enqueued last
};

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_LOCALPATHS_H
