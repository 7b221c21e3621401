//===- tests/cuda/double/Engine.h - What the double is made of ------------===//
//
// One engine, one lock. Enqueueing appends to a stream's queue; a thread that
// waits or asks works off what can go on, of all streams. So there is no thread
// of its own, and nothing can go on exactly where that finds nothing.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_CUDA_DOUBLE_ENGINE_H
#define SLUICE_TESTS_CUDA_DOUBLE_ENGINE_H

#include "tests/cuda/double/Double.h"
#include "tests/cuda/double/Memory.h"
#include "tests/cuda/double/Wire.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <unordered_set>

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace sluice::cudadouble {

struct Capture;
struct GraphRun;
struct Launch;
struct Stream;

/// One recording of an event.
struct Record {
  bool done = false;
  Ticks when = 0;
  VectorClock clock;
  Capture *capture = nullptr; ///< in which it was recorded
  bool over = false;          ///< of a capture that has ended
  VectorClock captured;       ///< what of the capture it stands behind
};

/// A thread that calls.
struct Host {
  int device = 0;
  Ticks now = 0;
  std::shared_ptr<VectorClock> clock = std::make_shared<VectorClock>();
  unsigned streams = 0; ///< that it has made and that are there
  /// State of the engine at which it last found that it must wait.
  uint64_t waitedAt = 0;
};

/// Something in a stream's queue.
struct Item {
  enum class Kind : uint8_t { Record, Wait, Work, Function, Launch, Graph };
  Kind kind = Kind::Work;
  const char *call = "";
  std::shared_ptr<Record> record;
  std::function<void()> work;
  std::vector<Access> accesses;
  cudaHostFn_t function = nullptr;
  void *argument = nullptr;
  std::shared_ptr<Launch> launch;
  std::shared_ptr<GraphRun> graph;
  Ticks notBefore = 0; ///< when its host enqueued it
  std::shared_ptr<const VectorClock> after;
  bool started = false;
  bool hangs = false;
};

struct Stream {
  uint32_t index = 0; ///< in vector clocks
  int device = 0;
  std::shared_ptr<Host> owner;
  std::deque<Item> items;
  Ticks now = 0;
  VectorClock clock;
  bool busy = false; ///< runs a host function
  bool live = true;  ///< not destroyed
  Capture *capture = nullptr;
  uint32_t lane = 0; ///< of the capture
};

struct Event {
  int device = 0;
  bool timed = false;
  std::shared_ptr<Record> latest;
};

//===----------------------------------------------------------------------===//
// NCCL
//===----------------------------------------------------------------------===//

struct Clique;

/// A rank's handle of a communicator.
struct Communicator {
  Clique *clique = nullptr;
  int rank = 0;
  int device = 0;
  ncclResult_t state = ncclInProgress;
  unsigned pollsLeft = 0; ///< before `state` may be Success
  bool live = true;
  bool aborted = false;
  std::deque<Launch *> order; ///< not ended, in order of their launch
  std::map<std::pair<bool, int>, uint64_t> numbers; ///< of messages, by way
  /// A split that has begun and is not over.
  struct Split {
    uint64_t number;
    int color;
    ncclComm_t *handle;
  };
  std::optional<Split> split;
};

/// One send or receive.
struct Message {
  Communicator *communicator;
  bool sends;
  int peer;
  std::byte *data;
  size_t bytes;
  uint64_t number = 0; ///< of those to the peer, or from it
  Launch *launch = nullptr;
  bool ended = false;
  Wire::Progress progress; ///< to or from another process
};

/// What one ncclGroupEnd launches on one stream: one kernel.
struct Launch {
  Stream *stream = nullptr;
  std::vector<Message> messages;
  std::set<Communicator *> communicators;
  uint64_t sequence = 0; ///< of launches, in the order of the hosts
  size_t open = 0;       ///< messages that have not ended
  bool started = false;
  Ticks start = 0, end = 0;
  VectorClock startClock, endClock;
};

/// Messages from one rank to another that have started and not met.
struct Path {
  std::deque<Message *> sends, receives;
  struct Sent {
    std::vector<std::byte> data;
    Ticks start;
    VectorClock clock;
  };
  std::deque<Sent> buffered;
  uint64_t carried = 0; ///< that have met; between processes
};

/// What the handles of a communicator share.
struct Clique {
  std::string name;
  int ranks = 0;
  std::vector<Communicator *> members;
  std::map<std::pair<int, int>, Path> paths; ///< by sender and receiver
  std::unique_ptr<Wire> wire;                ///< where the ranks are processes
};

//===----------------------------------------------------------------------===//
// The engine
//===----------------------------------------------------------------------===//

class Engine {
public:
  Engine();
  static Engine &get();
  using Lock = std::unique_lock<std::mutex>;

  void reset(const Settings &next);

  /// Counts a call; true if it is to fail.
  bool fails(const char *function);
  /// The calling thread.
  Host &host();
  std::shared_ptr<Host> sharedHost();
  /// The end of a thread.
  void leave(Host &ended);
  /// Whether the calling thread is inside a host function.
  static bool isInFunction();

  void fault(Fault::Kind kind, const std::string &text);
  /// Appends to the queue, or to what is captured.
  void enqueue(Stream &stream, Item item);
  /// Works off all that can go on.
  void pump(Lock &lock);
  /// Whether `done`; else notes that the thread waits.
  template <typename Done> bool ask(Lock &lock, Done done) {
    if (done())
      return true;
    pump(lock);
    if (done())
      return true;
    noteWaiting();
    return false;
  }
  /// Returns when `done`; false where it never will be.
  template <typename Done> bool await(Lock &lock, Done done) {
    while (!ask(lock, done)) {
      if (stuck && settings.failOnDeadlock)
        return false;
      changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    return true;
  }
  /// Lets the calling thread know all that `clock` does.
  void learn(Ticks when, const VectorClock &clock);
  void moved() {
    ++version;
    stuck = false;
    changed.notify_all();
  }

  Stream *makeStream();
  static bool isIdle(const Stream &stream) {
    return stream.items.empty() && !stream.busy;
  }
  bool isDeviceIdle(int device) const;

  // NCCL (Communicate.cpp)
  void launch(std::shared_ptr<Launch> next);
  void abort(Communicator &communicator);
  /// The number of a launch that its device is given now.
  uint64_t nextLaunch(int device) {
    waiting[device].insert(++launches);
    return launches;
  }
  void joinClique(Communicator &communicator, const std::string &id, int ranks);

  // NCCL between processes (Processes.cpp)
  /// Makes the communicator that all ranks call `name`.
  void joinWire(Communicator &communicator, const std::string &name, int ranks);
  void beginSplit(Communicator &parent, int color, int key, ncclComm_t *handle);
  /// Looks how what is in progress on it goes, and whether a peer is gone.
  void poll(Communicator &communicator);
  /// Moves what can be moved; false if nothing can.
  bool carryBetweenProcesses();
  /// The number of a device on the machine: CUDA_VISIBLE_DEVICES hides some.
  int physicalDevice(int device) const;
  int visibleDevices() const;

  std::mutex mutex;
  std::condition_variable changed;
  Settings settings;
  Memory memory{*this};
  std::vector<std::unique_ptr<Stream>> streams;
  std::unordered_set<Event *> events;
  std::set<Communicator *> communicators;
  std::vector<std::unique_ptr<Communicator>> madeCommunicators;
  std::map<std::string, std::unique_ptr<Clique>> cliques;
  std::set<void *> graphs;    ///< graphs and what is made of them
  std::set<void *> libraries; ///< handles of cublasLt
  std::vector<Fault> faults;
  std::map<std::string, uint64_t, std::less<>> calls;
  std::map<std::string, uint64_t, std::less<>>
      failing;          ///< calls left before one fails
  uint64_t hanging = 0; ///< operations left before one hangs
  bool communicatorsFail = false;
  bool inLaunchOrder = false; ///< NCCL_LAUNCH_ORDER_IMPLICIT
  bool stuck = false;
  bool betweenProcesses = false; ///< others may move what stands here
  Ticks latest = 0;
  std::mt19937_64 random;

  bool draw(unsigned oneIn) {
    return settings.seed != 0 && random() % oneIn == 0;
  }
  /// "stream 3 (device 1)".
  static std::string nameOf(const Stream &stream);

private:
  friend struct GraphRun;
  bool canRun(const Stream &stream) const;
  bool canStart(const Launch &launch) const;
  bool hasRoom(const Launch &launch) const;
  bool isFirst(const Launch &launch) const;
  static bool isItsTurn(const Launch &launch);
  Stream *pick();
  void run(Stream &stream, Lock &lock);
  void runFunction(Stream &stream, Lock &lock);
  void checkAccesses(Stream &stream, const Item &item);
  void finish(Stream &stream);
  void noteWaiting();
  bool isStuck() const;
  std::string whoStands() const;

  // NCCL
  void start(Launch &launch);
  void post(Message &message);
  void meet(Clique &clique, int from, int to);
  void carry(Message &send, Message &receive);
  void receiveBuffered(Path &path, Message &receive);
  Ticks arrival(int from, int to, size_t bytes, Ticks ready, Ticks &sent);
  void end(Message &message, Ticks when);
  void endIfWhole(Launch &launch);
  void touch(const Message &message);

  /// Real time, and how far virtual time has been ahead of it.
  Ticks sinceReset() const;
  Ticks ahead = 0;

  std::chrono::steady_clock::time_point began;
  std::set<std::shared_ptr<Host>> hosts;
  std::map<std::pair<int, int>, Ticks> linkFree;
  uint64_t version = 1;
  uint64_t launches = 0;
  /// Per device, the launches that have not started.
  std::map<int, std::set<uint64_t>> waiting;
  unsigned running = 0;   ///< host functions
  uint32_t lookFirst = 0; ///< stream
};

/// "ncclSend 3 from rank 0 to rank 1 of communicator 2".
std::string describe(const Message &message);

} // namespace sluice::cudadouble

#endif // SLUICE_TESTS_CUDA_DOUBLE_ENGINE_H
