//===- runtime/mpi/MpiBackend.cpp ----------------------------------------===//
#include "runtime/mpi/MpiBackend.h"

#include "runtime/Clock.h"

#include <algorithm>
#include <sys/prctl.h>
#include <time.h>

namespace sluice::runtime::mpi {

Status MpiBackend::prepare(const RankNeeds &needs) {
  // Short sleeps shall be short: the kernel lets them run over by 50
  // microseconds otherwise. Of this thread only, which is the rank's.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  sending = std::vector<End>(world.allChannels().size());
  receiving = std::vector<End>(world.allChannels().size());
  collectives.clear();
  collectives.reserve(world.allCollectives().size());
  for (Id id = 0; id < world.allCollectives().size(); ++id)
    collectives.emplace_back(world, id, rank);
  return QueueBackend::prepare(needs);
}

/// The next piece of the data of `command`. A message without bytes has one
/// too, by which the receiver knows that it was sent.
bool MpiBackend::startPiece(const Command &command, End &end,
                            Failure &failure) {
  const bool sends = command.kind == Kind::Send;
  const MpiWorld::Path path = world.dataPath(command.number, sends);
  const Bytes bytes = std::min(kPieceBytes, command.bytes - end.moved);
  auto *at = static_cast<std::byte *>(command.data) + end.moved;
  end.moving = true;
  return sends ? end.piece.send(world, path, at, bytes, failure.message)
               : end.piece.receive(world, path, at, bytes, failure.message);
}

/// Says that the receiver is ready, once it is.
bool MpiBackend::startReceive(const Command &command, End &end,
                              Failure &failure) {
  end.bytes = command.bytes;
  return startPiece(command, end, failure) &&
         end.ready.send(world, world.readyPath(command.number, true),
                        &end.bytes, sizeof(end.bytes), failure.message);
}

/// Looks at the pieces; starts the next where one has ended.
MpiBackend::Advance MpiBackend::pollPieces(Command &command, End &end,
                                           Failure &failure) {
  if (!end.piece.test(failure.message) || !end.ready.test(failure.message))
    return Advance::Failed;
  if (!end.piece.active() && end.moved < command.bytes) {
    end.moved += std::min(kPieceBytes, command.bytes - end.moved);
    if (end.moved < command.bytes)
      return startPiece(command, end, failure) ? Advance::Blocked
                                               : Advance::Failed;
  }
  if (end.piece.active() || end.ready.active())
    return Advance::Blocked;
  end.busy = end.moving = false;
  end.moved = 0;
  return this->end(command, nowNanoseconds());
}

MpiBackend::Advance MpiBackend::pollSend(Command &command, End &end,
                                         Failure &failure) {
  if (end.moving)
    return pollPieces(command, end, failure);
  if (!end.ready.test(failure.message))
    return Advance::Failed;
  if (end.ready.active())
    return Advance::Blocked;
  if (end.bytes != command.bytes) {
    failure.message = "a message of " + std::to_string(command.bytes) +
                      " bytes meets a receive of " + std::to_string(end.bytes) +
                      " bytes";
    return Advance::Failed;
  }
  return startPiece(command, end, failure) ? pollPieces(command, end, failure)
                                           : Advance::Failed;
}

MpiBackend::Advance MpiBackend::driveMessage(Command &command,
                                             Failure &failure) {
  const bool sends = command.kind == Kind::Send;
  End &end = (sends ? sending : receiving)[command.number];
  failure.op = command.op;
  if (command.state == State::Queued) {
    if (end.busy)
      return Advance::Blocked; // an earlier member of the group is under way
    end.busy = true;
    command.state = State::Posted;
    const bool started =
        sends
            ? end.ready.receive(world, world.readyPath(command.number, false),
                                &end.bytes, sizeof(end.bytes), failure.message)
            : startReceive(command, end, failure);
    if (!started)
      return Advance::Failed;
  }
  return sends ? pollSend(command, end, failure)
               : pollPieces(command, end, failure);
}

MpiBackend::Advance MpiBackend::driveCollective(Command &command,
                                                Failure &failure) {
  MpiCollective &part = collectives[command.number];
  failure.op = command.op;
  if (command.state == State::Queued) {
    if (part.busy())
      return Advance::Blocked; // an earlier member of the group is under way
    command.state = State::Posted;
    if (!part.start(command.pattern, command.element, command.data,
                    command.bytes, command.part, failure.message))
      return Advance::Failed;
  }
  switch (part.poll(failure.message)) {
  case MpiCollective::Answer::UnderWay:
    return Advance::Blocked;
  case MpiCollective::Answer::Failed:
    return Advance::Failed;
  case MpiCollective::Answer::Ended:
    break;
  }
  return end(command, nowNanoseconds());
}

void MpiBackend::rest(uint32_t, uint32_t rounds) {
  // No sched_yield: on a machine that is busy it costs a whole time slice of
  // everybody else, and a sleep is over as soon as it ends.
  constexpr long kShortest = 10'000; // nanoseconds
  constexpr long kLongest = 500'000;
  constexpr uint32_t kOfEach = 4; // sleeps of a length, before it doubles
  const uint32_t spins = world.spins();
  if (rounds <= spins)
    return; // a look at MPI takes longer than any pause
  const uint32_t doublings = std::min((rounds - spins) / kOfEach, 10u);
  const timespec time = {.tv_sec = 0,
                         .tv_nsec = std::min(kLongest, kShortest << doublings)};
  ::nanosleep(&time, nullptr);
}

} // namespace sluice::runtime::mpi
