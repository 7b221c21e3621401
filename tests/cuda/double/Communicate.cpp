//===- tests/cuda/double/Communicate.cpp - How messages meet --------------===//
//
// A send and a receive of a communicator meet by position. Both start with
// their launch and end when they have met; a launch ends with the last of its
// messages. The launches of one communicator run one after the other.
//
//===----------------------------------------------------------------------===//
#include "tests/cuda/double/Engine.h"

#include <cstring>

namespace sluice::cudadouble {

std::string describe(const Message &message) {
  const Communicator &of = *message.communicator;
  const int from = message.sends ? of.rank : message.peer;
  const int to = message.sends ? message.peer : of.rank;
  return std::string(message.sends ? "ncclSend " : "ncclRecv ") +
         std::to_string(message.number) + " from " + std::to_string(from) +
         " to " + std::to_string(to) + " of communicator " + of.clique->name +
         " (device " + std::to_string(of.device) + ")";
}

void Engine::launch(std::shared_ptr<Launch> next) {
  Stream &stream = *next->stream;
  next->open = next->messages.size();
  for (Message &message : next->messages) {
    message.launch = next.get();
    message.number =
        message.communicator->numbers[{message.sends, message.peer}]++;
    next->communicators.insert(message.communicator);
  }
  if (!stream.capture)
    next->sequence = nextLaunch(stream.device);
  if (!stream.capture)
    for (Communicator *communicator : next->communicators)
      communicator->order.push_back(next.get());
  Item item;
  item.kind = Item::Kind::Launch;
  item.call = "ncclGroupEnd";
  item.launch = std::move(next);
  enqueue(stream, std::move(item));
}

/// Whether its communicators have ended all that they launched before.
bool Engine::isItsTurn(const Launch &next) {
  return std::all_of(next.communicators.begin(), next.communicators.end(),
                     [&](const Communicator *communicator) {
                       return communicator->aborted ||
                              communicator->order.front() == &next;
                     });
}

/// Whether its device can take one more communicator.
bool Engine::hasRoom(const Launch &next) const {
  std::set<const Communicator *> resident(next.communicators.begin(),
                                          next.communicators.end());
  for (const Communicator *other : communicators)
    if (other->device == next.stream->device && !other->order.empty() &&
        other->order.front()->started)
      resident.insert(other);
  return resident.size() <= std::max<size_t>(settings.residentCommunicators,
                                             next.communicators.size());
}

/// Whether all that its device was given before has started.
bool Engine::isFirst(const Launch &next) const {
  const auto found = waiting.find(next.stream->device);
  return found == waiting.end() || found->second.empty() ||
         *found->second.begin() >= next.sequence;
}

bool Engine::canStart(const Launch &next) const {
  return isItsTurn(next) && (!inLaunchOrder || isFirst(next)) &&
         (settings.residentCommunicators == 0 || hasRoom(next));
}

void Engine::touch(const Message &message) {
  memory.touch({message.data, message.bytes, !message.sends},
               message.launch->stream->index, message.launch->startClock,
               describe(message));
}

void Engine::start(Launch &started) {
  started.started = true;
  waiting[started.stream->device].erase(started.sequence);
  started.start = started.end = started.stream->now;
  started.startClock = started.endClock = started.stream->clock;
  moved();
  for (Message &message : started.messages) {
    if (message.communicator->aborted) {
      end(message, started.start);
      continue;
    }
    touch(message);
    if (!message.sends)
      Memory::poison(message.data, message.bytes);
  }
  for (Message &message : started.messages)
    if (!message.ended)
      post(message);
  endIfWhole(started);
}

void Engine::post(Message &message) {
  Communicator &of = *message.communicator;
  const int from = message.sends ? of.rank : message.peer;
  const int to = message.sends ? message.peer : of.rank;
  Path &path = of.clique->paths[{from, to}];
  if (of.clique->wire) {
    (message.sends ? path.sends : path.receives).push_back(&message);
    return;
  }
  if (message.sends && message.bytes <= settings.eagerBytes) {
    path.buffered.push_back({{message.data, message.data + message.bytes},
                             message.launch->start,
                             message.launch->startClock});
    end(message, message.launch->start);
  } else {
    (message.sends ? path.sends : path.receives).push_back(&message);
  }
  meet(*of.clique, from, to);
}

void Engine::meet(Clique &clique, int from, int to) {
  Path &path = clique.paths[{from, to}];
  while (!path.receives.empty()) {
    Message &receive = *path.receives.front();
    if (!path.buffered.empty()) {
      receiveBuffered(path, receive);
      continue;
    }
    if (path.sends.empty())
      return;
    Message &send = *path.sends.front();
    if (send.bytes != receive.bytes) {
      fault(Fault::Kind::Mismatch,
            describe(send) + " has " + std::to_string(send.bytes) +
                " bytes, its receive " + std::to_string(receive.bytes));
      return;
    }
    path.sends.pop_front();
    path.receives.pop_front();
    carry(send, receive);
  }
}

/// When a message that can start at `ready` is there; `sent`: has left.
Ticks Engine::arrival(int from, int to, size_t bytes, Ticks ready,
                      Ticks &sent) {
  const TransferCost cost = settings.transferCost
                                ? settings.transferCost(from, to, bytes)
                                : TransferCost();
  Ticks &free = linkFree[{from, to}];
  free = std::max(free, ready) + cost.occupancy;
  sent = free;
  return sent + cost.latency;
}

void Engine::carry(Message &send, Message &receive) {
  if (send.bytes != 0)
    std::memmove(receive.data, send.data, send.bytes);
  Launch &source = *send.launch, &target = *receive.launch;
  source.endClock.join(target.startClock);
  target.endClock.join(source.startClock);
  Ticks sent = 0;
  const Ticks received =
      arrival(send.communicator->device, receive.communicator->device,
              send.bytes, std::max(source.start, target.start), sent);
  end(send, sent);
  end(receive, received);
  endIfWhole(source);
  if (&source != &target)
    endIfWhole(target);
}

void Engine::receiveBuffered(Path &path, Message &receive) {
  const Path::Sent sent = std::move(path.buffered.front());
  path.buffered.pop_front();
  path.receives.pop_front();
  if (sent.data.size() != receive.bytes)
    fault(Fault::Kind::Mismatch, describe(receive) + " gets other bytes");
  std::copy_n(sent.data.begin(), std::min(sent.data.size(), receive.bytes),
              receive.data);
  receive.launch->endClock.join(sent.clock);
  end(receive, std::max(receive.launch->start, sent.start));
  endIfWhole(*receive.launch);
}

void Engine::end(Message &message, Ticks when) {
  message.ended = true;
  message.launch->end = std::max(message.launch->end, when);
  --message.launch->open;
}

void Engine::endIfWhole(Launch &over) {
  if (over.open != 0 || !over.started)
    return;
  over.started = false; // once
  Stream &stream = *over.stream;
  stream.now = std::max(stream.now, over.end);
  stream.clock.join(over.endClock);
  for (Communicator *communicator : over.communicators)
    std::erase(communicator->order, &over);
  finish(stream);
}

/// Ends all that the handle has launched; what it sends and receives is lost.
void Engine::abort(Communicator &communicator) {
  communicator.aborted = true;
  for (auto &[ends, path] : communicator.clique->paths)
    for (auto *queue : {&path.sends, &path.receives})
      std::erase_if(*queue, [&](const Message *message) {
        return message->communicator == &communicator;
      });
  // A launch that has not started will never need to wait for its turn.
  for (const Launch *each : communicator.order)
    waiting[each->stream->device].erase(each->sequence);
  const std::deque<Launch *> launched = communicator.order;
  for (Launch *each : launched) {
    if (!each->started)
      continue;
    for (Message &message : each->messages)
      if (message.communicator == &communicator && !message.ended)
        end(message, each->start);
    endIfWhole(*each);
  }
  moved();
}

void Engine::joinClique(Communicator &communicator, const std::string &id,
                        int ranks) {
  std::unique_ptr<Clique> &clique = cliques[id];
  if (!clique) {
    clique = std::make_unique<Clique>();
    clique->name = std::to_string(cliques.size() - 1);
    clique->ranks = ranks;
  }
  communicator.clique = clique.get();
  clique->members.push_back(&communicator);
  bool isRefused = clique->ranks != ranks;
  for (const Communicator *one : clique->members)
    for (const Communicator *other : clique->members)
      isRefused |= one != other &&
                   (one->device == other->device || one->rank == other->rank);
  if (isRefused || clique->members.size() == static_cast<size_t>(ranks))
    for (Communicator *member : clique->members)
      member->state = isRefused ? ncclInvalidUsage : ncclSuccess;
  moved();
}

} // namespace sluice::cudadouble
