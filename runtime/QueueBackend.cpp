//===- runtime/QueueBackend.cpp ------------------------------------------===//
#include "runtime/QueueBackend.h"

#include "runtime/Clock.h"

#include <algorithm>
#include <cstring>

namespace sluice::runtime {

/// `what` is the arena's name in a message.
Status QueueBackend::allocate(Bytes bytes, const char *what, Arena &arena) {
  if (reserve(bytes))
    arena.reset(static_cast<std::byte *>(::operator new (
        bytes, std::align_val_t{kBufferAlignment}, std::nothrow)));
  if (!arena)
    return Status::environment("out of memory: rank " + std::to_string(rank) +
                               " needs " + what + " of " + formatBytes(bytes));
  std::memset(arena.get(), 0, bytes);
  return {};
}

Status QueueBackend::prepare(const RankNeeds &needs) {
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
  compute = needs.compute;
  progress = needs.progress;
  progress->flight.allocate();
  return {};
}

//===----------------------------------------------------------------------===//
// Enqueueing
//===----------------------------------------------------------------------===//

void QueueBackend::push(uint8_t stream, const Command &command) {
  Stream &queue = streams[stream];
  queue.commands[queue.tail++] = command;
}

void QueueBackend::beginGroup(uint8_t stream) {
  streams[stream].group = streams[stream].tail;
  push(stream, {.kind = Kind::Group});
}

void QueueBackend::endGroup(uint8_t stream) {
  Stream &queue = streams[stream];
  queue.commands[queue.group].number = queue.tail - queue.group - 1;
  queue.group = kNone;
}

//===----------------------------------------------------------------------===//
// Working off
//===----------------------------------------------------------------------===//

void QueueBackend::noteStart(Command &command, int64_t now) {
  command.flight = progress->flight.begin(command.op, now);
  if (times)
    times[command.op].start = now;
}

void QueueBackend::noteEnd(const Command &command, int64_t now) {
  progress->flight.end(command.flight, now);
  if (times)
    times[command.op].end = std::max(times[command.op].start, now);
}

QueueBackend::Advance QueueBackend::end(Command &command, int64_t when) {
  command.state = State::Ended;
  noteEnd(command, when);
  return Advance::Moved;
}

/// Drives what communicates in one operation; Moved only when all of it has
/// ended.
QueueBackend::Advance QueueBackend::drive(Stream &stream, uint32_t first,
                                          uint32_t count, Failure &failure) {
  Command *const members = &stream.commands[first];
  if (members[0].flight == kNone) {
    const int64_t now = nowNanoseconds();
    for (uint32_t i = 0; i < count; ++i)
      noteStart(members[i], now);
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

QueueBackend::Advance QueueBackend::runLaunch(Command &command,
                                              Failure &failure) {
  noteStart(command, nowNanoseconds());
  const bool ok = compute->compute(command.op, nullptr, failure);
  if (ok) // else it has not ended
    noteEnd(command, nowNanoseconds());
  return ok ? Advance::Moved : Advance::Failed;
}

QueueBackend::Advance QueueBackend::runCopy(Command &command) {
  noteStart(command, nowNanoseconds());
  for (const CopyPiece &piece : std::span(command.pieces, command.number))
    std::memcpy(piece.to, piece.from, piece.bytes);
  noteEnd(command, nowNanoseconds());
  return Advance::Moved;
}

QueueBackend::Advance QueueBackend::execute(Stream &stream, Command &command,
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
uint32_t QueueBackend::operationsOf(const Command &command) {
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
QueueBackend::Advance QueueBackend::advance(uint8_t number, Failure &failure) {
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

bool QueueBackend::empty() const {
  return std::all_of(streams.begin(), streams.end(), [](const Stream &stream) {
    return stream.head == stream.tail;
  });
}

void QueueBackend::reset() {
  for (Stream &stream : streams)
    stream.head = stream.tail = stream.done = 0;
  ++epoch;
}

Outcome QueueBackend::synchronize(Failure &failure) {
  uint32_t idle = 0;
  while (!empty()) {
    const uint32_t seen = look();
    if (aborted())
      return Outcome::Aborted;
    bool moved = false;
    // Messages first, the computing stream (0) last.
    for (size_t s = streams.size(); s-- > 0;) {
      const Advance one = advance(static_cast<uint8_t>(s), failure);
      if (one == Advance::Failed)
        return Outcome::Failed;
      moved |= one == Advance::Moved;
    }
    idle = moved ? 0 : idle + 1;
    if (!moved)
      rest(seen, idle);
  }
  // The last computation may have outlasted an abort.
  if (aborted())
    return Outcome::Aborted;
  reset();
  return Outcome::Done;
}

} // namespace sluice::runtime
