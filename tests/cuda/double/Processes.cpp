//===- tests/cuda/double/Processes.cpp - Ranks in processes of their own --===//
#include "tests/cuda/double/Engine.h"

#include <algorithm>
#include <cstdlib>

namespace sluice::cudadouble {

static std::vector<int> visibleList() {
  std::vector<int> numbers;
  const char *text = std::getenv("CUDA_VISIBLE_DEVICES");
  for (char *end = nullptr; text && *text; text = end + (*end == ',')) {
    numbers.push_back(static_cast<int>(std::strtol(text, &end, 10)));
    if (end == text)
      return {};
  }
  return numbers;
}

int Engine::visibleDevices() const {
  const std::vector<int> list = visibleList();
  return list.empty() ? settings.devices : static_cast<int>(list.size());
}

int Engine::physicalDevice(int device) const {
  const std::vector<int> list = visibleList();
  return list.empty() ? device : list[static_cast<size_t>(device)];
}

void Engine::joinWire(Communicator &communicator, const std::string &name,
                      int ranks) {
  betweenProcesses = true;
  std::unique_ptr<Clique> &clique = cliques[name];
  if (!clique)
    clique = std::make_unique<Clique>();
  clique->name = name;
  clique->ranks = ranks;
  clique->members.push_back(&communicator);
  clique->wire = Wire::open(name, ranks, communicator.rank,
                            physicalDevice(communicator.device));
  communicator.clique = clique.get();
  if (!clique->wire)
    communicator.state = ncclSystemError;
  moved();
}

void Engine::beginSplit(Communicator &parent, int color, int key,
                        ncclComm_t *handle) {
  parent.split = {parent.clique->wire->split(color, key), color, handle};
  parent.state = ncclInProgress;
}

void Engine::poll(Communicator &communicator) {
  if (!communicator.clique || !communicator.clique->wire ||
      communicator.aborted)
    return;
  Wire &wire = *communicator.clique->wire;
  if (wire.hasLost())
    communicator.state = ncclRemoteError;
  if (communicator.state != ncclInProgress)
    return;
  if (!communicator.split) {
    if (wire.sharesDevices())
      communicator.state = ncclInvalidUsage;
    else if (wire.allThere())
      communicator.state = ncclSuccess;
    return;
  }
  std::vector<int> ranks;
  const Communicator::Split split = *communicator.split;
  if (!wire.splitIsOver(split.number, split.color, ranks))
    return;
  communicator.split.reset();
  communicator.state = ncclSuccess;
  if (split.color == NCCL_SPLIT_NOCOLOR)
    return;
  auto made = std::make_unique<Communicator>();
  made->rank = static_cast<int>(
      std::find(ranks.begin(), ranks.end(), communicator.rank) - ranks.begin());
  made->device = communicator.device;
  joinWire(*made,
           wire.name() + "-" + std::to_string(split.number) + "." +
               std::to_string(split.color),
           static_cast<int>(ranks.size()));
  *split.handle = reinterpret_cast<ncclComm_t>(made.get());
  communicators.insert(made.get());
  madeCommunicators.push_back(std::move(made));
}

bool Engine::carryBetweenProcesses() {
  bool any = false;
  for (Communicator *communicator : communicators) {
    Clique *const clique = communicator->clique;
    if (!clique || !clique->wire)
      continue;
    for (auto &[ends, path] : clique->paths) {
      std::deque<Message *> &queue =
          ends.first == communicator->rank ? path.sends : path.receives;
      while (!queue.empty()) {
        Message &message = *queue.front();
        const size_t before = message.progress.moved;
        const Wire::State state =
            message.sends
                ? clique->wire->send(message.peer, path.carried, message.data,
                                     message.bytes, message.progress)
                : clique->wire->receive(message.peer, path.carried,
                                        message.data, message.bytes,
                                        message.progress);
        any |= message.progress.moved != before;
        if (state == Wire::State::Differs)
          fault(Fault::Kind::Mismatch,
                describe(message) + " has another size at its other end");
        if (state != Wire::State::Ended)
          break;
        any = true;
        ++path.carried;
        queue.pop_front();
        Launch &launch = *message.launch;
        end(message, launch.start);
        endIfWhole(launch);
      }
    }
  }
  return any;
}

} // namespace sluice::cudadouble
