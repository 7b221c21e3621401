//===- runtime/cuda/CudaBackend.h - One rank on a GPU ---------------------===//
//
// Every stream of the plan is one of CUDA. A command is given to the device at
// once, except where ranks share devices and a message has not met its other
// end: what stands behind it on that stream then waits in a fixed array, and
// `synchronize` goes on with it. That polls: events for what has ended, NCCL
// for errors, the job for an abort.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CUDA_CUDABACKEND_H
#define SLUICE_RUNTIME_CUDA_CUDABACKEND_H

#include "runtime/CommandBackend.h"
#include "runtime/cuda/CudaWorld.h"

#include <algorithm>
#include <exception>

namespace sluice::runtime::cuda {

class CudaBackend final : public CommandBackend {
public:
  CudaBackend(CudaWorld &sharedWorld, Id ownRank)
      : world(sharedWorld), rank(ownRank), device(sharedWorld.deviceOf(rank)) {}
  ~CudaBackend() override;

  Status prepare(const RankNeeds &needs) override;
  void *arena() override { return memory; }
  Bytes arenaBytes() const override { return allocated; }
  void *hostArena() override { return hostMemory; }
  Bytes hostArenaBytes() const override { return hostAllocated; }
  void recordTimes(OpTime *target) override;
  bool beginStep() override;
  void beginGroup(uint8_t stream) override;
  void endGroup(uint8_t stream) override;
  Outcome synchronize(Failure &failure) override;

private:
  /// Operations that have ended when an event has fired.
  struct Mark {
    cudaEvent_t event = nullptr;
    uint32_t count = 0;
    uint32_t op = kNone; ///< the first of them
    uint32_t flight = 0; ///< of the first; the others follow
  };
  /// When operations started and ended.
  struct Stamp {
    cudaEvent_t start = nullptr, end = nullptr;
    uint32_t firstOp = 0, count = 0; ///< in stampedOps
  };
  /// A stream of the plan.
  struct Lane {
    cudaStream_t stream = nullptr;
    std::vector<Command> commands; ///< of the capacity that was prepared
    uint32_t head = 0, tail = 0;
    uint32_t group = kNone;  ///< open while enqueueing
    bool grouped = false;    ///< what communicates at the head has begun
    uint32_t stamp = 0;      ///< of what is at the head
    uint32_t lastOp = kNone; ///< that was enqueued
    uint32_t flight = 0;     ///< of the first operation of what is at the head
    std::vector<Mark> marks;
    uint32_t markHead = 0, markTail = 0;
    uint32_t done = 0;
    uint32_t captured = 0; ///< operations of the graph
  };
  /// A collective of the rank: a stream of its own, so that those of one group
  /// progress independently, and room for what others send.
  struct Sum {
    uint32_t seat = kNone; ///< kNone: the rank takes no part
    cudaStream_t stream = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
    std::byte *scratch = nullptr;
    Member *member = nullptr;
    std::vector<int> positions; ///< of the seats' ranks, in NCCL's words
  };
  /// The data of a collective, cut into a slice for each of its seats, of which
  /// so much is moved at once. Of parts that are equal the slices are these.
  struct Slices {
    size_t seats;
    Bytes bytes;
    Bytes unit;     ///< of an element
    Bytes most;     ///< to move at once
    Bytes done = 0; ///< of each

    Bytes at(size_t seat) const { return bytes / unit * seat / seats * unit; }
    /// Of what is next of a slice.
    Bytes begin(size_t seat) const {
      return std::min(at(seat) + done, at(seat + 1));
    }
    Bytes size(size_t seat) const {
      return std::min(most, at(seat + 1) - begin(seat));
    }
    /// Whether anything is: the last one is as long as any.
    bool left() const { return size(seats - 1) != 0; }
  };
  /// An end of a channel that NCCL serves.
  struct End {
    Member *member = nullptr;
    int peer = 0;
  };
  /// What a host function is given.
  struct Slot {
    CudaBackend *self = nullptr;
    uint32_t op = kNone;
  };

  // Preparing (CudaPrepare.cpp)
  Answer allocate(const RankNeeds &needs);
  Answer allocateOnHost(Bytes bytes, std::byte *&data);
  Answer makeLanes(const RankNeeds &needs);
  Answer makePaths(size_t capacity);
  Answer makeSum(Id id, size_t capacity, std::byte *scratch);
  Answer equip(CudaWorld::Path &path, size_t seat, size_t capacity);
  Answer makeEvent(cudaEvent_t &event);
  Answer makeStream(cudaStream_t &stream);
  Answer makeGraphEvents();
  Answer clear();
  Answer await();
  bool drain() const;
  void release();

  // Enqueueing
  void push(uint8_t stream, const Command &command) override;
  Advance advance(Lane &lane);
  Advance issue(Lane &lane, Command &command);
  Advance issueWait(Lane &lane, const Command &command);
  Advance issueRecord(Lane &lane, const Command &command);
  Advance issueLaunch(Lane &lane, const Command &command);
  Advance issueCopy(Lane &lane, const Command &command);
  Advance communicate(Lane &lane, Command *members, uint32_t count);
  Advance postLocal(Lane &lane, Command *members, uint32_t count);
  Advance postOne(Lane &lane, Command &command);
  Advance issueNccl(Lane &lane, Command *members, uint32_t count);
  Answer messagesOf(Lane &lane, const Command *members, uint32_t count);
  Answer message(Lane &lane, const Command &command);
  bool agrees(const Command &command);
  CudaWorld::Path &pathOf(const Command &command);
  size_t seatOf(const Command &command);
  Advance mark(Lane &lane, uint32_t op, uint32_t operations);
  uint32_t standsAt() const;
  Advance failAt(uint32_t op, const Answer &answer);
  void fail(uint32_t op, const std::string &message);
  static void runFunction(void *slot);
  void computeOnHost(uint32_t op);

  // Collectives (CudaSums.cpp)
  Answer forkSum(Lane &lane, const Command &command);
  Answer meetAll(const Command &command);
  Answer exchange(Sum &sum, std::byte *data, const Slices &slices,
                  bool gathers);
  Answer addSlices(Sum &sum, Element element, std::byte *own, Bytes bytes);
  Answer meetOnly(Sum &sum);
  Answer settle(const Member &member);

  // Waiting
  Advance pump();
  Advance look();
  Advance lookAtGraph();
  void closeStep();
  Advance checkErrors();
  bool isIssued() const;
  bool isDone() const;
  Outcome endStep(Failure &failure);
  Outcome failed(Failure &failure);

  // Graphs (CudaGraphs.cpp)
  Answer beginCapture();
  Answer endCapture();
  Answer instantiate();
  Answer replay();
  void dropCapture();
  Answer order(cudaStream_t after, cudaStream_t before, cudaEvent_t event);
  std::vector<cudaStream_t> otherStreams() const;

  // Times
  Answer begin(Lane &lane, const Command *members, uint32_t count);
  Answer beginStamp(Lane &lane);
  Answer endStamp(Lane &lane, const Command *members, uint32_t count);
  Answer takeAnchor();
  Answer takeTimes();

  CudaWorld &world;
  const Id rank;
  const int device;
  std::byte *memory = nullptr; ///< the arena, and behind it pad and scratch
  std::byte *pad = nullptr;    ///< for messages of no bytes
  std::byte *hostMemory = nullptr;
  Bytes allocated = 0, hostAllocated = 0;
  bool prepared = false;
  std::vector<Lane> lanes;
  std::vector<cudaEvent_t> events;
  std::vector<uint32_t> recorded; ///< per event: epoch of its last record
  std::vector<cudaEvent_t> ownEvents;
  std::vector<cudaStream_t> ownStreams;
  std::vector<End> sendEnds, receiveEnds; ///< per channel
  std::vector<Sum> sums;                  ///< per collective
  std::vector<Member *> members;
  std::vector<Slot> slots;
  uint32_t usedSlots = 0;
  uint32_t epoch = 1;
  Compute *compute = nullptr;
  RankProgress *progress = nullptr;

  enum class Mode : uint8_t {
    Direct,  ///< commands go to the device
    Capture, ///< ... to a graph, which is launched at the end of the step
    Replay   ///< the graph is launched
  };
  Mode mode = Mode::Direct;
  cudaGraphExec_t graph = nullptr;
  cudaEvent_t forkEvent = nullptr, graphEvent = nullptr;
  std::vector<cudaEvent_t> joinEvents; ///< per other stream

  OpTime *times = nullptr;
  cudaEvent_t anchor = nullptr; ///< fired at anchorTime
  int64_t anchorTime = 0;
  std::vector<Stamp> stamps;
  std::vector<uint32_t> stampedOps;
  uint32_t usedStamps = 0;

  bool hasFailed = false; ///< while enqueueing; `why` says how
  /// At a wait that failed, whose operation is to come on this stream.
  const Lane *failedLane = nullptr;
  Failure why;
  std::atomic<bool> functionFailed{false}; ///< `functionWhy` says how
  Failure functionWhy;
  std::exception_ptr thrown; ///< by a host function
};

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_CUDABACKEND_H
