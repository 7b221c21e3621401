//===- runtime/cuda/CudaPrepare.cpp - What a rank takes and gives back ----===//
#include "runtime/Clock.h"
#include "runtime/cuda/CudaBackend.h"
#include "runtime/cuda/CudaScratch.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

namespace sluice::runtime::cuda {

Answer CudaBackend::makeEvent(cudaEvent_t &event) {
  Answer answer =
      answerOf(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  if (answer.ok())
    ownEvents.push_back(event);
  return answer;
}

Answer CudaBackend::makeStream(cudaStream_t &stream) {
  Answer answer =
      answerOf(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
               "cudaStreamCreateWithFlags");
  if (answer.ok())
    ownStreams.push_back(stream);
  return answer;
}

static Bytes aligned(Bytes bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

/// One allocation: the arena, the pad, and scratch of each collective; and one
/// for what is offloaded.
Answer CudaBackend::allocate(const RankNeeds &needs) {
  const Bytes arena = aligned(needs.arenaBytes);
  Bytes bytes = arena + kPadBytes;
  if (world.usesNccl())
    for (Id id = 0; id < world.collectiveCount(); ++id) {
      const std::vector<Id> &ranks = world.collective(id).ranks;
      bytes +=
          kScratchBytes * std::binary_search(ranks.begin(), ranks.end(), rank);
    }
  if (world.computesOnDevice()) {
    void *data = nullptr;
    if (Answer answer = answerOf(cudaMalloc(&data, bytes), "cudaMalloc");
        !answer.ok())
      return {"out of memory: an arena of " + formatBytes(needs.arenaBytes) +
              " (" + answer.fault + ")"};
    memory = static_cast<std::byte *>(data);
  } else if (Answer answer = allocateOnHost(bytes, memory); !answer.ok()) {
    return answer;
  }
  allocated = needs.arenaBytes;
  pad = memory + arena;
  // Never null, even when it is empty.
  if (Answer answer =
          allocateOnHost(needs.hostArenaBytes + kPadBytes, hostMemory);
      !answer.ok())
    return answer;
  hostAllocated = needs.hostArenaBytes;
  return {};
}

/// Memory that devices reach and copy from fast.
Answer CudaBackend::allocateOnHost(Bytes bytes, std::byte *&data) {
  void *pinned = nullptr;
  if (Answer answer =
          answerOf(cudaHostAlloc(&pinned, bytes, cudaHostAllocPortable),
                   "cudaHostAlloc");
      !answer.ok())
    return {"out of memory: " + formatBytes(bytes) + " of pinned memory (" +
            answer.fault + ")"};
  data = static_cast<std::byte *>(pinned);
  return {};
}

Answer CudaBackend::makeLanes(const RankNeeds &needs) {
  lanes.resize(needs.commands.size());
  for (size_t s = 0; s < lanes.size(); ++s) {
    if (Answer answer = makeStream(lanes[s].stream); !answer.ok())
      return answer;
    lanes[s].commands.resize(needs.commands[s]);
    lanes[s].marks.resize(needs.commands[s]);
    for (Mark &each : lanes[s].marks)
      if (Answer answer = makeEvent(each.event); !answer.ok())
        return answer;
  }
  events.resize(needs.events);
  recorded.assign(needs.events, 0);
  for (cudaEvent_t &event : events)
    if (Answer answer = makeEvent(event); !answer.ok())
      return answer;
  return {};
}

/// Of an end, the room in the ledger and, between ranks that share devices, its
/// events.
Answer CudaBackend::equip(CudaWorld::Path &path, size_t seat, size_t capacity) {
  path.ledger.reserve(seat, capacity);
  if (world.usesNccl())
    return {};
  cudaEvent_t ready = nullptr, done = nullptr;
  if (Answer answer = makeEvent(ready); !answer.ok())
    return answer;
  if (Answer answer = makeEvent(done); !answer.ok())
    return answer;
  path.local.equip(seat, ready, done);
  return {};
}

Answer CudaBackend::makeSum(Id id, size_t capacity, std::byte *scratch) {
  Sum &sum = sums[id];
  CudaWorld::Path &path = world.collective(id);
  sum.seat = static_cast<uint32_t>(
      std::lower_bound(path.ranks.begin(), path.ranks.end(), rank) -
      path.ranks.begin());
  if (Answer answer = equip(path, sum.seat, capacity); !answer.ok())
    return answer;
  if (!world.usesNccl())
    return {};
  sum.scratch = scratch;
  sum.member = &world.nccl().ofCollective(id, rank);
  for (const Id other : path.ranks)
    sum.positions.push_back(world.nccl().ofCollective(id, other).position);
  if (Answer answer = makeStream(sum.stream); !answer.ok())
    return answer;
  if (Answer answer = makeEvent(sum.begin); !answer.ok())
    return answer;
  return makeEvent(sum.end);
}

Answer CudaBackend::makePaths(size_t capacity) {
  sendEnds.resize(world.channelCount());
  receiveEnds.resize(world.channelCount());
  for (Id id = 0; id < world.channelCount(); ++id) {
    CudaWorld::Path &path = world.channel(id);
    for (size_t seat = 0; seat < 2; ++seat) {
      if (path.ranks[seat] != rank)
        continue;
      if (Answer answer = equip(path, seat, capacity); !answer.ok())
        return answer;
      if (!world.usesNccl())
        continue;
      Communicators &nccl = world.nccl();
      (seat == 0 ? sendEnds : receiveEnds)[id] = {
          &nccl.ofChannel(id, rank),
          nccl.ofChannel(id, path.ranks[1 - seat]).position};
    }
  }
  sums.resize(world.collectiveCount());
  std::byte *scratch = pad + kPadBytes;
  for (Id id = 0; id < world.collectiveCount(); ++id) {
    const std::vector<Id> &ranks = world.collective(id).ranks;
    if (!std::binary_search(ranks.begin(), ranks.end(), rank))
      continue;
    if (Answer answer = makeSum(id, capacity, scratch); !answer.ok())
      return answer;
    scratch += kScratchBytes;
  }
  if (world.usesNccl())
    members = world.nccl().ofRank(rank);
  return {};
}

/// Events that bring streams into a capture and out of it.
Answer CudaBackend::makeGraphEvents() {
  if (!world.usesGraphs())
    return {};
  joinEvents.resize(otherStreams().size());
  Answer answer = makeEvent(forkEvent);
  if (answer.ok())
    answer = makeEvent(graphEvent);
  for (cudaEvent_t &event : joinEvents)
    if (answer.ok())
      answer = makeEvent(event);
  return answer;
}

/// Until all of the first stream has ended, or the job has.
Answer CudaBackend::await() {
  cudaError_t state = cudaErrorNotReady;
  while ((state = cudaStreamQuery(ownStreams.front())) == cudaErrorNotReady) {
    if (world.aborted())
      return {"the job ended"};
    std::this_thread::yield();
  }
  return answerOf(state, "cudaStreamQuery");
}

/// Zeroes both arenas; returns once it is done.
Answer CudaBackend::clear() {
  const cudaStream_t stream = ownStreams.front();
  if (allocated != 0)
    if (Answer answer = answerOf(cudaMemsetAsync(memory, 0, allocated, stream),
                                 "cudaMemsetAsync");
        !answer.ok())
      return answer;
  std::memset(hostMemory, 0, hostAllocated);
  return await();
}

Status CudaBackend::prepare(const RankNeeds &needs) {
  const size_t capacity =
      std::accumulate(needs.commands.begin(), needs.commands.end(), size_t(0));
  prepared = true; // there may be something to give back
  compute = needs.compute;
  progress = needs.progress;
  progress->flight.allocate();
  slots.resize(capacity);
  stampedOps.reserve(capacity);
  Answer answer = answerOf(cudaSetDevice(device), "cudaSetDevice");
  if (answer.ok())
    answer = allocate(needs);
  if (answer.ok())
    answer = makeLanes(needs);
  if (answer.ok())
    answer = makePaths(capacity);
  if (answer.ok())
    answer = makeGraphEvents();
  if (answer.ok())
    answer = clear();
  return statusOf(answer, "rank " + std::to_string(rank));
}

/// Events with times are made where they are asked for, outside of steps.
void CudaBackend::recordTimes(OpTime *target) {
  times = target;
  if (!times)
    return;
  const auto make = [this](cudaEvent_t &event) {
    const cudaError_t code = cudaEventCreateWithFlags(&event, cudaEventDefault);
    if (code == cudaSuccess)
      ownEvents.push_back(event);
    return answerOf(code, "cudaEventCreateWithFlags");
  };
  Answer answer = answerOf(cudaSetDevice(device), "cudaSetDevice");
  if (!anchor && answer.ok())
    answer = make(anchor);
  if (stamps.empty())
    stamps.resize(slots.size());
  for (Stamp &stamp : stamps) {
    if (!stamp.start && answer.ok())
      answer = make(stamp.start);
    if (!stamp.end && answer.ok())
      answer = make(stamp.end);
  }
  if (answer.ok())
    answer = takeAnchor();
  if (!answer.ok())
    fail(kNone, answer.fault);
}

/// An event whose time is known by the clock of the process: of several, the
/// one that leaves the least doubt about it.
Answer CudaBackend::takeAnchor() {
  constexpr int kTries = 20;
  const cudaStream_t stream = ownStreams.front();
  cudaEvent_t spare = stamps.front().start;
  int64_t doubt = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const int64_t before = nowNanoseconds();
    if (Answer answer =
            answerOf(cudaEventRecord(spare, stream), "cudaEventRecord");
        !answer.ok())
      return answer;
    if (Answer answer = await(); !answer.ok())
      return answer;
    const int64_t after = nowNanoseconds();
    if (after - before >= doubt)
      continue;
    doubt = after - before;
    anchorTime = before + doubt / 2;
    std::swap(anchor, spare);
  }
  stamps.front().start = spare;
  return {};
}

//===----------------------------------------------------------------------===//
// The end
//===----------------------------------------------------------------------===//

/// Waits until the device has done all, but no longer than a second.
bool CudaBackend::drain() const {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const cudaStream_t stream : ownStreams)
    while (cudaStreamQuery(stream) == cudaErrorNotReady) {
      if (std::chrono::steady_clock::now() > deadline)
        return false;
      std::this_thread::yield();
    }
  return true;
}

void CudaBackend::release() {
  if (graph)
    (void)cudaGraphExecDestroy(graph);
  for (const cudaEvent_t event : ownEvents)
    (void)cudaEventDestroy(event);
  for (const cudaStream_t stream : ownStreams)
    (void)cudaStreamDestroy(stream);
  if (hostMemory)
    (void)cudaFreeHost(hostMemory);
  if (!memory)
    return;
  if (world.computesOnDevice())
    (void)cudaFree(memory);
  else
    (void)cudaFreeHost(memory);
}

/// What never ends keeps its memory: giving it back would wait for it.
CudaBackend::~CudaBackend() {
  if (!prepared)
    return;
  (void)cudaSetDevice(device);
  if (hasFailed || functionFailed || world.aborted())
    Communicators::abort(members);
  if (drain())
    release();
}

} // namespace sluice::runtime::cuda
