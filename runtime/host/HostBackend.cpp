//===- runtime/host/HostBackend.cpp --------------------------------------===//
#include "runtime/host/HostBackend.h"

namespace sluice::runtime {

Status HostBackend::prepare(const RankNeeds &needs) {
  for (Id id = 0; id < world.collectiveCount(); ++id)
    seats.push_back(world.collective(id).seatOf(rank));
  return QueueBackend::prepare(needs);
}

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
    switch (channel.mailbox.post(side, command.data, command.bytes)) {
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
                         command.bytes, command.part)) {
  case Gathering::Posted::Waits:
    command.state = State::Posted;
    return Advance::Moved;
  case Gathering::Posted::Ended:
    break;
  case Gathering::Posted::Mismatch: {
    const size_t other = gathering.differing();
    failure = {command.op,
               sizesDiffer(command.pattern, collective.ranks[0],
                           gathering.bytes(0), collective.ranks[other],
                           gathering.bytes(other))};
    return Advance::Failed;
  }
  }
  for (const Id other : collective.ranks)
    if (other != rank)
      world.wake(other);
  return end(command, gathering.endedAt());
}

} // namespace sluice::runtime
