//===- runtime/host/HostBackend.cpp --------------------------------------===//
#include "runtime/host/HostBackend.h"

#include "runtime/Clock.h"

#include <algorithm>
#include <cstring>

namespace sluice::runtime {

/// `what` is the arena's name in a message.
Status HostBackend::allocate(Bytes bytes, const char *what, Arena &arena) {
  if (world.reserve(bytes))
    arena.reset(static_cast<std::byte *>(::operator new (
        bytes, std::align_val_t{kBufferAlignment}, std::nothrow)));
  if (!arena)
    return Status::environment("out of memory: rank " + std::to_string(rank) +
                               " needs " + what + " of " + formatBytes(bytes));
  std::memset(arena.get(), 0, bytes);
  return {};
}

Status HostBackend::prepare(const RankNeeds &needs) {
  if (Status s = allocate(needs.arenaBytes, "an arena", memory); !s.ok())
    return s;
  if (Status s = allocate(needs.hostArenaBytes,
                          "an arena for what is offloaded", hostMemory);
      !s.ok())
    return s;
  allocated = needs.arenaBytes;
  hostAllocated = needs.hostArenaBytes;
  streams.resize(needs.commands.size());
  for (size_t s = 0; s < streams.size(); ++s)
    streams[s].commands.resize(needs.commands[s]);
  fired.assign(needs.events, 0);
  for (Id id = 0; id < world.collectiveCount(); ++id)
    seats.push_back(world.collective(id).seatOf(rank));
  compute = needs.compute;
  progress = needs.progress;
  return {};
}

//===----------------------------------------------------------------------===//
// Enqueueing
//===----------------------------------------------------------------------===//

void HostBackend::push(uint8_t stream, const Command &command) {
  Stream &queue = streams[stream];
  queue.commands[queue.tail++] = command;
}

void HostBackend::wait(uint8_t stream, uint32_t event) {
  push(stream, {.number = event, .kind = Kind::Wait});
}

void HostBackend::record(uint8_t stream, uint32_t event) {
  push(stream, {.number = event, .kind = Kind::Record});
}

void HostBackend::launch(uint8_t stream, uint32_t op) {
  push(stream, {.op = op, .kind = Kind::Launch});
}

void HostBackend::send(uint8_t stream, uint32_t op, Id channel, void *data,
                       Bytes bytes) {
  push(stream, {.data = data,
                .bytes = bytes,
                .op = op,
                .number = channel,
                .kind = Kind::Send});
}

void HostBackend::receive(uint8_t stream, uint32_t op, Id channel, void *data,
                          Bytes bytes) {
  push(stream, {.data = data,
                .bytes = bytes,
                .op = op,
                .number = channel,
                .kind = Kind::Receive});
}

void HostBackend::allReduce(uint8_t stream, uint32_t op, Id collective,
                            Element element, void *data, Bytes bytes) {
  push(stream, {.data = data,
                .bytes = bytes,
                .op = op,
                .number = collective,
                .pattern = Pattern::AllReduce,
                .element = element,
                .kind = Kind::Collective});
}

void HostBackend::reduceScatter(uint8_t stream, uint32_t op, Id collective,
                                Element element, void *data, Bytes bytes) {
  push(stream, {.data = data,
                .bytes = bytes,
                .op = op,
                .number = collective,
                .pattern = Pattern::ReduceScatter,
                .element = element,
                .kind = Kind::Collective});
}

void HostBackend::allGather(uint8_t stream, uint32_t op, Id collective,
                            void *data, Bytes bytes) {
  push(stream, {.data = data,
                .bytes = bytes,
                .op = op,
                .number = collective,
                .pattern = Pattern::AllGather,
                .kind = Kind::Collective});
}

void HostBackend::copy(uint8_t stream, uint32_t op,
                       std::span<const CopyPiece> pieces) {
  push(stream, {.pieces = pieces.data(),
                .op = op,
                .number = static_cast<uint32_t>(pieces.size()),
                .kind = Kind::Copy});
}

void HostBackend::beginGroup(uint8_t stream) {
  streams[stream].group = streams[stream].tail;
  push(stream, {.kind = Kind::Group});
}

void HostBackend::endGroup(uint8_t stream) {
  Stream &queue = streams[stream];
  queue.commands[queue.group].number = queue.tail - queue.group - 1;
  queue.group = kNone;
}

//===----------------------------------------------------------------------===//
// Working off
//===----------------------------------------------------------------------===//

/// Posts a message, or looks whether it has ended.
HostBackend::Advance HostBackend::driveMessage(Command &command,
                                               Failure &failure) {
  HostWorld::HostChannel &channel = world.channel(command.number);
  const bool sends = command.kind == Kind::Send;
  const auto side = sends ? Mailbox::Side::Sender : Mailbox::Side::Receiver;
  if (command.state == State::Posted) {
    if (!channel.mailbox.ended(side))
      return Advance::Blocked;
  } else {
    if (channel.mailbox.pending(side))
      return Advance::Blocked; // an earlier member of the group is under way
    switch (channel.mailbox.post(side, command.data, command.bytes,
                                 times != nullptr)) {
    case Mailbox::Posted::First:
      command.state = State::Posted;
      return Advance::Moved;
    case Mailbox::Posted::Ended:
      world.wake(sends ? channel.destination : channel.source);
      break;
    case Mailbox::Posted::Mismatch:
      failure.op = command.op;
      failure.message =
          "a message of " +
          std::to_string(channel.mailbox.bytes(Mailbox::Side::Sender)) +
          " bytes meets a receive of " +
          std::to_string(channel.mailbox.bytes(Mailbox::Side::Receiver)) +
          " bytes";
      return Advance::Failed;
    }
  }
  return end(command, channel.mailbox.endedAt());
}

HostBackend::Advance HostBackend::end(Command &command, int64_t when) {
  command.state = State::Ended;
  if (times)
    times[command.op].end = std::max(times[command.op].start, when);
  return Advance::Moved;
}

/// Takes part in a collective, or looks whether it has ended.
HostBackend::Advance HostBackend::driveCollective(Command &command,
                                                  Failure &failure) {
  HostWorld::HostCollective &collective = world.collective(command.number);
  Gathering &gathering = collective.gathering;
  const uint32_t seat = seats[command.number];
  if (command.state == State::Posted)
    return gathering.ended(seat) ? end(command, gathering.endedAt())
                                 : Advance::Blocked;
  if (gathering.pending(seat))
    return Advance::Blocked; // an earlier member of the group is under way
  switch (gathering.post(seat, command.pattern, command.element, command.data,
                         command.bytes, times != nullptr)) {
  case Gathering::Posted::Waits:
    command.state = State::Posted;
    return Advance::Moved;
  case Gathering::Posted::Ended:
    break;
  case Gathering::Posted::Mismatch: {
    const size_t other = gathering.differing();
    failure.op = command.op;
    failure.message =
        "rank " + std::to_string(collective.ranks[0]) +
        (command.pattern == Pattern::AllGather ? " gathers " : " sums ") +
        std::to_string(gathering.bytes(0)) + " bytes, rank " +
        std::to_string(collective.ranks[other]) + " " +
        std::to_string(gathering.bytes(other));
    return Advance::Failed;
  }
  }
  for (const Id other : collective.ranks)
    if (other != rank)
      world.wake(other);
  return end(command, gathering.endedAt());
}

/// Drives what communicates in one operation; Moved only when all of it has
/// ended.
HostBackend::Advance HostBackend::drive(Stream &stream, uint32_t first,
                                        uint32_t count, Failure &failure) {
  Command *const members = &stream.commands[first];
  if (times && members[0].state == State::Queued) {
    const int64_t now = nowNanoseconds();
    for (uint32_t i = 0; i < count; ++i)
      times[members[i].op].start = now;
  }
  bool all = true;
  for (uint32_t i = 0; i < count; ++i) {
    if (members[i].state == State::Ended)
      continue;
    const Advance one = members[i].kind == Kind::Collective
                            ? driveCollective(members[i], failure)
                            : driveMessage(members[i], failure);
    if (one == Advance::Failed)
      return one;
    all &= members[i].state == State::Ended;
  }
  return all ? Advance::Moved : Advance::Blocked;
}

HostBackend::Advance HostBackend::runLaunch(const Command &command,
                                            Failure &failure) {
  if (times)
    times[command.op].start = nowNanoseconds();
  const bool ok = compute->compute(command.op, nullptr, failure);
  if (times)
    times[command.op].end = nowNanoseconds();
  return ok ? Advance::Moved : Advance::Failed;
}

HostBackend::Advance HostBackend::runCopy(const Command &command) {
  if (times)
    times[command.op].start = nowNanoseconds();
  for (const CopyPiece &piece : std::span(command.pieces, command.number))
    std::memcpy(piece.to, piece.from, piece.bytes);
  if (times)
    times[command.op].end = nowNanoseconds();
  return Advance::Moved;
}

HostBackend::Advance HostBackend::execute(Stream &stream, Command &command,
                                          Failure &failure) {
  switch (command.kind) {
  case Kind::Wait:
    return fired[command.number] == epoch ? Advance::Moved : Advance::Blocked;
  case Kind::Record:
    fired[command.number] = epoch;
    return Advance::Moved;
  case Kind::Launch:
    return runLaunch(command, failure);
  case Kind::Copy:
    return runCopy(command);
  case Kind::Send:
  case Kind::Receive:
  case Kind::Collective:
    return drive(stream, stream.head, 1, failure);
  case Kind::Group:
    return drive(stream, stream.head + 1, command.number, failure);
  }
  return Advance::Blocked; // not reached: the switch is complete
}

/// Operations that end with `command`.
uint32_t HostBackend::operationsOf(const Command &command) {
  switch (command.kind) {
  case Kind::Wait:
  case Kind::Record:
    return 0;
  case Kind::Launch:
  case Kind::Send:
  case Kind::Receive:
  case Kind::Collective:
  case Kind::Copy:
    return 1;
  case Kind::Group:
    return command.number;
  }
  return 0; // not reached: the switch is complete
}

/// Works `number` off until it is blocked or has run one computation or copy,
/// so that messages are looked at between computations.
HostBackend::Advance HostBackend::advance(uint8_t number, Failure &failure) {
  Stream &stream = streams[number];
  Advance result = Advance::Blocked;
  while (stream.head != stream.tail) {
    Command &command = stream.commands[stream.head];
    const Advance one = execute(stream, command, failure);
    if (one == Advance::Blocked)
      return result;
    if (one == Advance::Failed)
      return one;
    result = Advance::Moved;
    if (const uint32_t ops = operationsOf(command)) {
      stream.done += ops;
      progress->done[number].store(stream.done, std::memory_order_relaxed);
    }
    stream.head += command.kind == Kind::Group ? command.number + 1 : 1;
    if (command.kind == Kind::Launch || command.kind == Kind::Copy)
      return result;
  }
  return result;
}

bool HostBackend::empty() const {
  return std::all_of(streams.begin(), streams.end(), [](const Stream &stream) {
    return stream.head == stream.tail;
  });
}

void HostBackend::reset() {
  for (Stream &stream : streams)
    stream.head = stream.tail = stream.done = 0;
  ++epoch;
}

Outcome HostBackend::synchronize(Failure &failure) {
  while (!empty()) {
    // Read the bell before everything that it may ring for.
    const uint32_t seen = world.wakeups(rank);
    if (world.aborted())
      return Outcome::Aborted;
    bool moved = false;
    // Messages first, the computing stream (0) last.
    for (size_t s = streams.size(); s-- > 0;) {
      const Advance one = advance(static_cast<uint8_t>(s), failure);
      if (one == Advance::Failed)
        return Outcome::Failed;
      moved |= one == Advance::Moved;
    }
    if (!moved)
      world.sleep(rank, seen);
  }
  // The last computation may have outlasted an abort.
  if (world.aborted())
    return Outcome::Aborted;
  reset();
  return Outcome::Done;
}

} // namespace sluice::runtime
