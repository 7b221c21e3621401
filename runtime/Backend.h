//===- runtime/Backend.h - What a rank's lists run on --------------------===//
//
// The small interface between the executor and a device: an arena, streams,
// events, channels, collectives. It fits threads in memory, CUDA with NCCL, and
// MPI alike.
//
// What every backend promises:
//  - A stream runs its commands one after the other, in the order in which they
//    were enqueued; streams progress independently of each other and of when
//    the host enqueues, as far as the plan's progress model needs it.
//  - What stands after a `wait` starts after its event has fired; an event
//    fires when all that stands before its `record` on that stream has ended.
//    Between two synchronizations an event is recorded once at most, and a wait
//    for it is enqueued after the record. What fired before does not count.
//  - A message is a rendezvous: the n-th send of a channel meets the n-th
//    receive; neither ends before the other has started. Nothing relies on
//    buffering. Different sizes are never a cut: one end at least fails, and
//    with it the job; the other fails as well or waits until the abort.
//  - A collective is a rendezvous of all its ranks: their n-th operations meet,
//    none ends before all have started. A sum is made in order of ranks, so
//    that it has the same bits on every rank and in every run.
//  - A group starts when all that stands before it has ended, all its messages
//    and collectives progress independently (those of one channel or collective
//    in order), and it ends as one.
//  - Every capacity is checked in `prepare`. After it nothing allocates.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_BACKEND_H
#define SLUICE_RUNTIME_BACKEND_H

#include "ir/Plan.h"
#include "ir/Status.h"
#include "runtime/Peers.h"
#include "runtime/Progress.h"
#include "runtime/sluice.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::runtime {

/// How the commands of a step ended on a rank.
enum class Outcome : uint8_t {
  Done,
  Failed, ///< here; the Failure says how
  Aborted ///< from outside, because of another rank or the watchdog
};

/// What went wrong on a rank, and at which operation of its list.
struct Failure {
  uint32_t op = kNone;
  std::string message;
};

/// Who computes: the executor. A backend calls it in stream order, on the host
/// when the call's turn has come, on a GPU while enqueueing.
class Compute {
public:
  virtual ~Compute() = default;
  /// Runs (or enqueues on `stream`, a handle of the backend) the operation at
  /// position `op` of the rank's list. False: failed, `failure` tells how.
  virtual bool compute(uint32_t op, void *stream, Failure &failure) = 0;
};

/// Start and end of one operation in nanoseconds of a clock that all ranks of
/// the process share; 0 where it did not run.
struct OpTime {
  int64_t start = 0;
  int64_t end = 0;
};

/// A part of what a copy between a device's memory and its host's moves.
struct CopyPiece {
  void *to;
  const void *from;
  Bytes bytes;
};

/// All that a rank will ever need, counted before it starts.
struct RankNeeds {
  Bytes arenaBytes = 0;
  Bytes hostArenaBytes = 0;
  /// Per stream: the most commands that one step enqueues on it. A wait, a
  /// record, a launch, a send, a receive, a collective, a copy and a group
  /// (beside its members) are one each.
  std::vector<uint32_t> commands;
  uint32_t events = 0;
  Compute *compute = nullptr;
  /// Where to tell how far the rank is; at least as many streams as above.
  RankProgress *progress = nullptr;
};

/// One rank's device. All calls but `abort` come from the rank's own thread.
/// Streams, events and channels are named by number; a caller keeps to the
/// numbers and counts it prepared for.
class Backend {
public:
  virtual ~Backend() = default;

  /// Takes all memory and other resources. Both arenas are zero-filled, aligned
  /// to kBufferAlignment and exactly as large as asked for.
  virtual Status prepare(const RankNeeds &needs) = 0;
  /// The arena; never null, even when it is empty.
  virtual void *arena() = 0;
  /// Bytes that were allocated for the arena.
  virtual Bytes arenaBytes() const = 0;
  /// The same two of the arena of host memory, from which a device copies fast.
  virtual void *hostArena() = 0;
  virtual Bytes hostArenaBytes() const = 0;

  /// From here on the start and end of operation i are written to times[i];
  /// null switches that off. It may cost two clock reads an operation.
  virtual void recordTimes(OpTime *times) = 0;

  /// Before the commands of each step. False: it will repeat those of a step
  /// before, and none are to be enqueued.
  virtual bool beginStep() { return true; }
  virtual void wait(uint8_t stream, uint32_t event) = 0;
  virtual void record(uint8_t stream, uint32_t event) = 0;
  virtual void launch(uint8_t stream, uint32_t op) = 0;
  virtual void send(uint8_t stream, uint32_t op, Id channel, void *data,
                    Bytes bytes) = 0;
  virtual void receive(uint8_t stream, uint32_t op, Id channel, void *data,
                       Bytes bytes) = 0;
  /// The rank's part in an operation of all ranks of the collective `path`,
  /// each with as many bytes. AllReduce: `data` is replaced by the sum of what
  /// lies there on all ranks, element by element, in their order. The other two
  /// cut it into equal parts, one for each rank in their order. ReduceScatter:
  /// the rank's own part of the same sum goes to `part`, or where that is null
  /// takes the place of the rank's own; all else in `data` is undefined then.
  /// AllGather: each rank gets the parts of all others, as they lie there.
  virtual void collective(uint8_t stream, uint32_t op, Id path, Pattern pattern,
                          Element element, void *data, Bytes bytes,
                          void *part) = 0;
  /// Copies between the two arenas: one operation. `pieces` must live until the
  /// next synchronization ends.
  virtual void copy(uint8_t stream, uint32_t op,
                    std::span<const CopyPiece> pieces) = 0;
  /// What communicates on `stream` between the two is one operation.
  virtual void beginGroup(uint8_t stream) = 0;
  virtual void endGroup(uint8_t stream) = 0;

  /// Returns when all that was enqueued has ended, or at the first failure, or
  /// soon after an abort (a call that is running ends first). Never Done after
  /// an abort.
  virtual Outcome synchronize(Failure &failure) = 0;
};

/// What a job asks of its devices.
struct ConnectOptions {
  uint32_t devices = 0;       ///< to use at most; 0: all that there are
  double timeoutSeconds = 60; ///< of waiting for others; not positive: none
  /// Whether what computes enqueues on the devices (and arenas lie there), or
  /// works on the host, in memory that both reach.
  bool computesOnDevice = false;
  /// Whether the commands of a step are captured once and then repeated.
  bool graphs = false;
  Id self = kNone; ///< the rank of this process, where each has one
  /// Then: BackendFunctions::token of process 0.
  std::string token;
};

/// All ranks of a job, as far as they are in this process, and the channels and
/// collectives between them.
class World {
public:
  virtual ~World() = default;
  /// Once, before all else: finds the devices and connects the ranks. Memory of
  /// the host needs neither.
  virtual Status connect(const ConnectOptions &) { return {}; }
  /// Where each process has one rank: after all have loaded the same job,
  /// before the first step, from the rank's own thread. An abort ends it.
  virtual Status join() { return {}; }
  /// Before any of them is allocated: refuses arenas, one per rank, that do not
  /// fit together into what memory there is. Touches nothing.
  virtual Status admit(std::span<const Bytes> arenas) const = 0;
  virtual Status open(Id rank, std::unique_ptr<Backend> &backend) = 0;
  /// Ends every wait of every rank, now and later. From any thread, repeatable.
  virtual void abort() = 0;
};

/// What a backend gives: built in, or from a plug-in.
struct BackendFunctions {
  /// Makes the world of `ranks` ranks with these channels and collectives,
  /// whose ranks must be below `ranks`.
  Status (*make)(uint32_t ranks, std::span<const Channel> channels,
                 std::span<const Collective> collectives,
                 std::unique_ptr<World> &world) = nullptr;
  /// Meets the other processes of the job; null: a job is one process. The
  /// worlds made then are of all processes, a rank each.
  Status (*connect)(std::unique_ptr<Peers> &peers) = nullptr;
  /// What the shipped module of this name is on the backend's devices, null
  /// where it computes on the host; null: all do.
  const sluice_module *(*moduleOnDevice)(const char *name) = nullptr;
  /// Not null where a process a rank is possible, but without `connect`: the
  /// processes meet by MPI, and the first tells all what this makes, empty if
  /// it cannot.
  std::string (*token)() = nullptr;
};

/// A row of Backends.def.
struct BackendInfo {
  std::string_view text;
  bool hostMemory;
  bool groups;
  bool sharedProcess;
  bool collectives;
  /// Of what is not built in: the shared library beside the program, which is
  /// loaded at the first call of what follows.
  std::string_view library;
  BackendFunctions builtIn;

  /// Whether this build has it.
  bool isBuilt() const;
  Status functions(const BackendFunctions *&found) const;
  /// The same module, or what it is on the backend's devices; `isOnDevice` says
  /// which.
  Status placeModule(const sluice_module *&module, bool &isOnDevice) const;
  /// As in BackendFunctions.
  Status make(uint32_t ranks, std::span<const Channel> channels,
              std::span<const Collective> collectives,
              std::unique_ptr<World> &world) const;
};

/// What a plug-in exports, by the name "sluice_backend"; its version must be
/// the program's.
struct BackendPlugin {
  uint32_t version;
  BackendFunctions functions;
};
inline constexpr uint32_t kBackendVersion = 5;

std::span<const BackendInfo> backends();

/// The row of exactly this text, or null.
const BackendInfo *findBackend(std::string_view text);

/// Refuses channels and collectives of ranks that are not there.
Status checkPaths(uint32_t ranks, std::span<const Channel> channels,
                  std::span<const Collective> collectives);

// Of a plug-in its own.
#define SLUICE_BACKEND(Name, ...)                                              \
  Status make##Name##World(uint32_t ranks, std::span<const Channel> channels,  \
                           std::span<const Collective> collectives,            \
                           std::unique_ptr<World> &world);
#include "runtime/Backends.def"

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_BACKEND_H
