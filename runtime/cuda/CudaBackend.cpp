//===- runtime/cuda/CudaBackend.cpp - Commands to the device --------------===//
#include "runtime/cuda/CudaBackend.h"

#include "runtime/Clock.h"

#include <algorithm>
#include <thread>

namespace sluice::runtime::cuda {

//===----------------------------------------------------------------------===//
// Enqueueing
//===----------------------------------------------------------------------===//

void CudaBackend::push(uint8_t stream, const Command &command) {
  Lane &lane = lanes[stream];
  if (failedLane == &lane && command.op != kNone) {
    why.op = command.op;
    failedLane = nullptr;
  }
  if (hasFailed || world.aborted())
    return;
  lane.commands[lane.tail++] = command;
  if (lane.group == kNone)
    (void)advance(lane);
}

void CudaBackend::beginGroup(uint8_t stream) {
  Lane &lane = lanes[stream];
  lane.group = lane.tail;
  push(stream, {.kind = Kind::Group});
}

void CudaBackend::endGroup(uint8_t stream) {
  Lane &lane = lanes[stream];
  const uint32_t group = lane.group;
  lane.group = kNone;
  if (hasFailed || world.aborted())
    return;
  lane.commands[group].number = lane.tail - group - 1;
  (void)advance(lane);
}

/// Gives the device what it can be given.
CudaBackend::Advance CudaBackend::advance(Lane &lane) {
  Advance result = Advance::Blocked;
  while (lane.head != lane.tail) {
    Command &command = lane.commands[lane.head];
    const uint32_t length =
        command.kind == Kind::Group ? command.number + 1 : 1;
    const Advance one = issue(lane, command);
    if (one != Advance::Moved)
      return one == Advance::Failed ? one : result;
    result = Advance::Moved;
    lane.head += length;
  }
  lane.head = lane.tail = 0;
  return result;
}

CudaBackend::Advance CudaBackend::issue(Lane &lane, Command &command) {
  switch (command.kind) {
  case Kind::Wait:
    return issueWait(lane, command);
  case Kind::Record:
    return issueRecord(lane, command);
  case Kind::Launch:
    return issueLaunch(lane, command);
  case Kind::Copy:
    return issueCopy(lane, command);
  case Kind::Send:
  case Kind::Receive:
  case Kind::Collective:
    return communicate(lane, &command, 1);
  case Kind::Group:
    return communicate(lane, &command + 1, command.number);
  }
  return Advance::Blocked; // not reached: the switch is complete
}

CudaBackend::Advance CudaBackend::issueWait(Lane &lane,
                                            const Command &command) {
  if (recorded[command.number] != epoch)
    return Advance::Blocked; // its record waits itself
  const Advance one = failAt(
      kNone,
      answerOf(cudaStreamWaitEvent(lane.stream, events[command.number], 0),
               "cudaStreamWaitEvent"));
  if (one == Advance::Failed)
    failedLane = &lane;
  return one;
}

CudaBackend::Advance CudaBackend::issueRecord(Lane &lane,
                                              const Command &command) {
  recorded[command.number] = epoch;
  return failAt(lane.lastOp,
                answerOf(cudaEventRecord(events[command.number], lane.stream),
                         "cudaEventRecord"));
}

/// Moved where the call went well; notes the failure where it did not.
CudaBackend::Advance CudaBackend::failAt(uint32_t op, const Answer &answer) {
  if (answer.ok())
    return Advance::Moved;
  fail(op, answer.fault);
  return Advance::Failed;
}

void CudaBackend::fail(uint32_t op, const std::string &message) {
  if (hasFailed)
    return;
  hasFailed = true;
  why = {op, message};
}

//===----------------------------------------------------------------------===//
// Computing
//===----------------------------------------------------------------------===//

CudaBackend::Advance CudaBackend::issueLaunch(Lane &lane,
                                              const Command &command) {
  if (Answer answer = begin(lane, &command, 1); !answer.ok())
    return failAt(command.op, answer);
  if (world.computesOnDevice()) {
    if (!compute->compute(command.op, lane.stream, why)) {
      hasFailed = true;
      return Advance::Failed;
    }
  } else {
    Slot &slot = slots[usedSlots++];
    slot = {this, command.op};
    if (Answer answer =
            answerOf(cudaLaunchHostFunc(lane.stream, runFunction, &slot),
                     "cudaLaunchHostFunc");
        !answer.ok())
      return failAt(command.op, answer);
  }
  if (Answer answer = endStamp(lane, &command, 1); !answer.ok())
    return failAt(command.op, answer);
  return mark(lane, command.op, 1);
}

CudaBackend::Advance CudaBackend::issueCopy(Lane &lane,
                                            const Command &command) {
  if (Answer answer = begin(lane, &command, 1); !answer.ok())
    return failAt(command.op, answer);
  for (const CopyPiece &piece : std::span(command.pieces, command.number)) {
    if (piece.bytes == 0)
      continue;
    if (Answer answer =
            answerOf(cudaMemcpyAsync(piece.to, piece.from, piece.bytes,
                                     cudaMemcpyDefault, lane.stream),
                     "cudaMemcpyAsync");
        !answer.ok())
      return failAt(command.op, answer);
  }
  if (Answer answer = endStamp(lane, &command, 1); !answer.ok())
    return failAt(command.op, answer);
  return mark(lane, command.op, 1);
}

void CudaBackend::runFunction(void *slot) {
  const Slot &of = *static_cast<Slot *>(slot);
  of.self->computeOnHost(of.op);
}

/// In a thread of CUDA, which nothing may be thrown into.
void CudaBackend::computeOnHost(uint32_t op) {
  if (world.halted())
    return;
  Failure failure;
  try {
    if (compute->compute(op, nullptr, failure))
      return;
  } catch (...) {
    thrown = std::current_exception();
  }
  world.halt();
  functionWhy = std::move(failure);
  functionFailed.store(true, std::memory_order_release);
}

//===----------------------------------------------------------------------===//
// Communicating
//===----------------------------------------------------------------------===//

CudaWorld::Path &CudaBackend::pathOf(const Command &command) {
  return command.kind == Kind::Collective ? world.collective(command.number)
                                          : world.channel(command.number);
}

size_t CudaBackend::seatOf(const Command &command) {
  return command.kind == Kind::Collective ? sums[command.number].seat
                                          : command.kind == Kind::Receive;
}

/// Compares the sizes with those that the other ends have noted.
bool CudaBackend::agrees(const Command &command) {
  CudaWorld::Path &path = pathOf(command);
  const auto differs = path.ledger.note(seatOf(command), command.bytes);
  if (!differs)
    return true;
  fail(command.op,
       command.kind == Kind::Collective
           ? sizesDiffer(command.pattern, path.ranks[differs->first],
                         differs->firstBytes, path.ranks[differs->second],
                         differs->secondBytes)
           : "a message of " + std::to_string(differs->firstBytes) +
                 " bytes meets a receive of " +
                 std::to_string(differs->secondBytes) + " bytes");
  return false;
}

/// What communicates in one operation: Moved once all of it is enqueued.
CudaBackend::Advance CudaBackend::communicate(Lane &lane, Command *commands,
                                              uint32_t count) {
  if (count == 0)
    return Advance::Moved;
  if (!lane.grouped) {
    for (uint32_t i = 0; i < count; ++i)
      if (!agrees(commands[i]))
        return Advance::Failed;
    if (Answer answer = begin(lane, commands, count); !answer.ok())
      return failAt(commands[0].op, answer);
    lane.grouped = true;
  }
  const Advance one = world.usesNccl() ? issueNccl(lane, commands, count)
                                       : postLocal(lane, commands, count);
  if (one != Advance::Moved)
    return one;
  lane.grouped = false;
  if (Answer answer = endStamp(lane, commands, count); !answer.ok())
    return failAt(commands[0].op, answer);
  return mark(lane, commands[0].op, count);
}

/// Ranks that share devices.
CudaBackend::Advance CudaBackend::postLocal(Lane &lane, Command *commands,
                                            uint32_t count) {
  bool all = true;
  for (uint32_t i = 0; i < count; ++i) {
    if (commands[i].state == State::Ended)
      continue;
    if (postOne(lane, commands[i]) == Advance::Failed)
      return Advance::Failed;
    all &= commands[i].state == State::Ended;
  }
  return all ? Advance::Moved : Advance::Blocked;
}

CudaBackend::Advance CudaBackend::postOne(Lane &lane, Command &command) {
  LocalPath &path = pathOf(command).local;
  const size_t seat = seatOf(command);
  Answer answer;
  LocalPath::Posted posted = LocalPath::Posted::Waits;
  if (command.state == State::Posted) {
    posted = path.join(seat, answer);
  } else {
    if (path.pending(seat))
      return Advance::Blocked; // an earlier member of the group is under way
    posted = path.post(seat,
                       {lane.stream, command.data, command.bytes,
                        command.pattern, command.element, command.part},
                       answer);
  }
  switch (posted) {
  case LocalPath::Posted::Waits:
    command.state = State::Posted;
    return Advance::Blocked;
  case LocalPath::Posted::Ended:
    command.state = State::Ended;
    return Advance::Moved;
  case LocalPath::Posted::Failed:
    return failAt(command.op, answer);
  }
  return Advance::Blocked; // not reached: the switch is complete
}

/// Polls until no call on `member` is in progress. An abort ends that too.
Answer CudaBackend::settle(const Member &member) {
  return Communicators::settle(member, [this] { return world.aborted(); });
}

Answer CudaBackend::message(Lane &lane, const Command &command) {
  const bool sends = command.kind == Kind::Send;
  const End &end = (sends ? sendEnds : receiveEnds)[command.number];
  // NCCL has no message of nothing: a byte of the pad stands for it.
  void *const data = command.bytes == 0 ? pad + !sends : command.data;
  const size_t bytes = std::max<Bytes>(command.bytes, 1);
  return sends ? answerOf(ncclSend(data, bytes, ncclInt8, end.peer,
                                   end.member->handle, lane.stream),
                          "ncclSend")
               : answerOf(ncclRecv(data, bytes, ncclInt8, end.peer,
                                   end.member->handle, lane.stream),
                          "ncclRecv");
}

/// The messages of a group are one launch of NCCL.
Answer CudaBackend::messagesOf(Lane &lane, const Command *commands,
                               uint32_t count) {
  const bool isGroup = count > 1;
  Answer answer;
  if (isGroup)
    answer = answerOf(ncclGroupStart(), "ncclGroupStart");
  if (!answer.ok())
    return answer;
  for (uint32_t i = 0; i < count && answer.ok(); ++i)
    if (commands[i].kind != Kind::Collective)
      answer = message(lane, commands[i]);
  if (isGroup)
    if (Answer ended = answerOf(ncclGroupEnd(), "ncclGroupEnd"); answer.ok())
      answer = std::move(ended);
  for (uint32_t i = 0; i < count && answer.ok(); ++i) {
    if (commands[i].kind == Kind::Collective)
      continue;
    const bool sends = commands[i].kind == Kind::Send;
    answer =
        settle(*(sends ? sendEnds : receiveEnds)[commands[i].number].member);
  }
  return answer;
}

CudaBackend::Advance CudaBackend::issueNccl(Lane &lane, Command *commands,
                                            uint32_t count) {
  bool hasMessages = false;
  for (uint32_t i = 0; i < count; ++i)
    hasMessages |= commands[i].kind != Kind::Collective;
  const auto eachSum = [&](auto enqueue) {
    for (uint32_t i = 0; i < count; ++i)
      if (commands[i].kind == Kind::Collective)
        if (Answer answer = enqueue(commands[i]); !answer.ok())
          return failAt(commands[i].op, answer);
    return Advance::Moved;
  };
  // Sums leave for their own streams before the messages, and come back after
  // them: all progress independently. Messages are launched first: NCCL begins
  // in order, and a sum has a second launch that waits for its first to end.
  if (eachSum([&](const Command &sum) { return forkSum(lane, sum); }) ==
      Advance::Failed)
    return Advance::Failed;
  if (hasMessages)
    if (Answer answer = messagesOf(lane, commands, count); !answer.ok())
      return failAt(commands[0].op, answer);
  if (eachSum([&](const Command &sum) { return meetAll(sum); }) ==
      Advance::Failed)
    return Advance::Failed;
  for (uint32_t i = 0; i < count; ++i)
    if (commands[i].kind == Kind::Collective)
      if (Answer answer = answerOf(
              cudaStreamWaitEvent(lane.stream, sums[commands[i].number].end, 0),
              "cudaStreamWaitEvent");
          !answer.ok())
        return failAt(commands[i].op, answer);
  return Advance::Moved;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

/// Notes that so many operations of the stream have ended once it comes here.
CudaBackend::Advance CudaBackend::mark(Lane &lane, uint32_t op,
                                       uint32_t operations) {
  Mark &next = lane.marks[lane.markTail++];
  next.count = operations;
  next.op = lane.lastOp = op;
  next.flight = lane.flight;
  if (mode == Mode::Capture)
    return Advance::Moved; // an event of a graph cannot be asked
  return failAt(op, answerOf(cudaEventRecord(next.event, lane.stream),
                             "cudaEventRecord"));
}

/// Enqueues what was held back and can go on now.
CudaBackend::Advance CudaBackend::pump() {
  Advance result = Advance::Blocked;
  for (Lane &lane : lanes) {
    const Advance one = advance(lane);
    if (one == Advance::Failed)
      return one;
    if (one == Advance::Moved)
      result = one;
  }
  return result;
}

/// Tells of what has ended.
CudaBackend::Advance CudaBackend::look() {
  Advance result = Advance::Blocked;
  for (size_t s = 0; s < lanes.size(); ++s) {
    Lane &lane = lanes[s];
    while (lane.markHead != lane.markTail) {
      const Mark &next = lane.marks[lane.markHead];
      const cudaError_t code = cudaEventQuery(next.event);
      if (code == cudaErrorNotReady)
        break;
      if (code != cudaSuccess)
        return failAt(next.op, answerOf(code, "cudaEventQuery"));
      const int64_t now = nowNanoseconds();
      for (uint32_t i = 0; i < next.count; ++i)
        progress->flight.end(next.flight + i, now);
      lane.done += next.count;
      ++lane.markHead;
      progress->done[static_cast<uint32_t>(s)].store(lane.done,
                                                     std::memory_order_relaxed);
      result = Advance::Moved;
    }
  }
  return result;
}

/// Of NCCL, which tells of them to who asks.
CudaBackend::Advance CudaBackend::checkErrors() {
  for (const Member *member : members) {
    ncclResult_t state = ncclSuccess;
    Answer answer = answerOf(ncclCommGetAsyncError(member->handle, &state),
                             "ncclCommGetAsyncError");
    if (answer.ok())
      answer = answerOf(state, "NCCL, while it communicates");
    if (!answer.ok())
      return failAt(standsAt(), answer);
  }
  return Advance::Moved;
}

/// An operation that has not ended: of those that communicate, if there is one.
uint32_t CudaBackend::standsAt() const {
  for (size_t s = lanes.size(); s-- > 0;)
    if (lanes[s].markHead != lanes[s].markTail)
      return lanes[s].marks[lanes[s].markHead].op;
  return kNone;
}

bool CudaBackend::isIssued() const {
  return std::all_of(lanes.begin(), lanes.end(),
                     [](const Lane &lane) { return lane.head == lane.tail; });
}

bool CudaBackend::isDone() const {
  return std::all_of(lanes.begin(), lanes.end(), [](const Lane &lane) {
    return lane.markHead == lane.markTail;
  });
}

Outcome CudaBackend::failed(Failure &failure) {
  world.halt();
  const bool isFunction =
      !hasFailed && functionFailed.load(std::memory_order_acquire);
  dropCapture();
  Communicators::abort(members);
  if (isFunction && thrown)
    std::rethrow_exception(std::exchange(thrown, nullptr));
  failure = isFunction ? functionWhy : why;
  return Outcome::Failed;
}

Outcome CudaBackend::endStep(Failure &failure) {
  if (functionFailed.load(std::memory_order_acquire))
    return failed(failure);
  if (world.aborted()) {
    Communicators::abort(members);
    return Outcome::Aborted;
  }
  if (Answer answer = takeTimes(); !answer.ok()) {
    fail(kNone, answer.fault);
    return failed(failure);
  }
  for (Lane &lane : lanes)
    lane.markHead = lane.markTail = lane.done = 0;
  usedSlots = usedStamps = 0;
  stampedOps.clear();
  ++epoch;
  return Outcome::Done;
}

/// Of a graph, which ends as one: the mark of all operations is set by hand.
CudaBackend::Advance CudaBackend::lookAtGraph() {
  const cudaError_t code = cudaEventQuery(graphEvent);
  if (code == cudaErrorNotReady)
    return Advance::Blocked;
  if (code != cudaSuccess)
    return failAt(kNone, answerOf(code, "cudaEventQuery"));
  for (uint32_t s = 0; s < lanes.size(); ++s)
    progress->done[s].store(lanes[s].captured, std::memory_order_relaxed);
  mode = Mode::Direct;
  return Advance::Moved;
}

/// What must be done once all commands are there.
void CudaBackend::closeStep() {
  Answer answer;
  if (mode == Mode::Capture)
    answer = endCapture();
  if (mode == Mode::Replay && answer.ok())
    answer = replay();
  if (!answer.ok())
    fail(kNone, answer.fault);
}

Outcome CudaBackend::synchronize(Failure &failure) {
  constexpr unsigned kYields = 64;          // before it sleeps
  constexpr unsigned kRoundsPerCheck = 256; // of errors
  (void)cudaSetDevice(device);
  if (!hasFailed && !world.aborted())
    closeStep();
  for (unsigned round = 0, idle = 0;; ++round) {
    if (hasFailed || functionFailed.load(std::memory_order_acquire))
      return failed(failure);
    if (world.aborted()) {
      dropCapture();
      Communicators::abort(members);
      return Outcome::Aborted;
    }
    if (mode == Mode::Direct && isIssued() && isDone() && !world.halted())
      return endStep(failure);
    Advance one = mode == Mode::Replay ? lookAtGraph() : pump();
    if (one != Advance::Failed && look() == Advance::Moved)
      one = Advance::Moved;
    if (round % kRoundsPerCheck == 0)
      (void)checkErrors();
    if (one == Advance::Moved)
      idle = 0;
    else if (++idle < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

/// The flight recorder has operations from when they are given to the device
/// (of a graph none are) to when the host sees that they have ended.
Answer CudaBackend::begin(Lane &lane, const Command *commands, uint32_t count) {
  if (mode != Mode::Capture) {
    const int64_t now = nowNanoseconds();
    lane.flight = progress->flight.begin(commands[0].op, now);
    for (uint32_t i = 1; i < count; ++i)
      (void)progress->flight.begin(commands[i].op, now);
  }
  return beginStamp(lane);
}

Answer CudaBackend::beginStamp(Lane &lane) {
  if (!times)
    return {};
  lane.stamp = usedStamps++;
  return answerOf(cudaEventRecord(stamps[lane.stamp].start, lane.stream),
                  "cudaEventRecord");
}

Answer CudaBackend::endStamp(Lane &lane, const Command *commands,
                             uint32_t count) {
  if (!times)
    return {};
  Stamp &stamp = stamps[lane.stamp];
  stamp.firstOp = static_cast<uint32_t>(stampedOps.size());
  stamp.count = count;
  for (uint32_t i = 0; i < count; ++i)
    stampedOps.push_back(commands[i].op);
  return answerOf(cudaEventRecord(stamp.end, lane.stream), "cudaEventRecord");
}

/// From events of the device to the clock of the process.
Answer CudaBackend::takeTimes() {
  if (!times)
    return {};
  const auto timeOf = [this](cudaEvent_t event, int64_t &time) {
    float milliseconds = 0;
    Answer answer = answerOf(cudaEventElapsedTime(&milliseconds, anchor, event),
                             "cudaEventElapsedTime");
    time = anchorTime + static_cast<int64_t>(1e6 * double(milliseconds));
    return answer;
  };
  for (uint32_t i = 0; i < usedStamps; ++i) {
    OpTime time;
    if (Answer answer = timeOf(stamps[i].start, time.start); !answer.ok())
      return answer;
    if (Answer answer = timeOf(stamps[i].end, time.end); !answer.ok())
      return answer;
    for (uint32_t op = 0; op < stamps[i].count; ++op)
      times[stampedOps[stamps[i].firstOp + op]] = time;
  }
  return {};
}

} // namespace sluice::runtime::cuda
