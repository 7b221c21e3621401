//===- tests/cuda/double/Nccl.cpp - NCCL, as far as used ------------------===//
#include "tests/cuda/double/Engine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

using namespace sluice::cudadouble;

namespace {

/// What a thread has begun between ncclGroupStart and ncclGroupEnd.
struct Group {
  unsigned depth = 0;
  struct Init {
    Communicator *communicator;
    std::string id;
    int ranks;
  };
  std::vector<Init> inits;
  std::vector<std::shared_ptr<Launch>> launches; ///< one a stream
};
thread_local Group group;

/// Launches that are not done with by their communicators yet.
struct Late {
  std::vector<std::shared_ptr<Launch>> launches;
};
std::map<Communicator *, std::shared_ptr<Late>> late;

class Call {
public:
  explicit Call(const char *function) : engine(Engine::get()), name(function) {
    lock = Engine::Lock(engine.mutex);
    if (Engine::isInFunction()) {
      refused = misuse(ncclInvalidUsage, "in a host function");
      return;
    }
    if (engine.fails(function))
      refused = ncclSystemError;
  }
  ncclResult_t misuse(ncclResult_t code, const std::string &what) const {
    engine.fault(Fault::Kind::Misuse, std::string(name) + ": " + what);
    return code;
  }
  /// Of a handle that may be used for something new.
  ncclResult_t check(Communicator *communicator) const {
    if (engine.communicators.count(communicator) == 0 || communicator->aborted)
      return misuse(ncclInvalidArgument, "of no communicator");
    if (communicator->state == ncclInProgress || late.count(communicator) != 0)
      return misuse(ncclInvalidUsage, "while a call before is in progress");
    return communicator->state;
  }

  Engine &engine;
  Engine::Lock lock;
  ncclResult_t refused = ncclSuccess;

private:
  const char *name;
};

Communicator *communicatorOf(ncclComm_t handle) {
  return reinterpret_cast<Communicator *>(handle);
}

size_t sizeOf(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclFloat32:
    return 4;
  case ncclFloat64:
    return 8;
  default:
    return 0;
  }
}

/// Launches what was begun, at once or when somebody asks how it goes.
ncclResult_t endGroup(Call &call) {
  for (const Group::Init &init : group.inits)
    if (Wire::prefix().empty())
      call.engine.joinClique(*init.communicator, init.id, init.ranks);
    else
      call.engine.joinWire(*init.communicator, Wire::prefix() + init.id,
                           init.ranks);
  ncclResult_t result = group.inits.empty() ? ncclSuccess : ncclInProgress;
  group.inits.clear();
  const std::vector<std::shared_ptr<Launch>> launches =
      std::move(group.launches);
  group.launches.clear();
  if (launches.empty())
    return result;
  const bool captures = launches[0]->stream->capture != nullptr;
  if (captures || !call.engine.draw(3)) {
    for (const auto &each : launches)
      call.engine.launch(each);
    return result;
  }
  const auto shared = std::make_shared<Late>(Late{launches});
  for (const auto &each : launches)
    for (const Message &message : each->messages)
      late[message.communicator] = shared;
  return ncclInProgress;
}

ncclResult_t transfer(Call &call, bool sends, void *data, size_t count,
                      ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  if (call.refused != ncclSuccess)
    return call.refused;
  Communicator *communicator = communicatorOf(handle);
  if (ncclResult_t error = call.check(communicator))
    return error;
  const size_t bytes = count * sizeOf(type);
  if (peer < 0 || peer >= communicator->clique->ranks || sizeOf(type) == 0)
    return call.misuse(ncclInvalidArgument, "such a peer or type");
  if (bytes == 0)
    return call.misuse(ncclInvalidArgument, "of nothing");
  if (!call.engine.memory.holds(data, bytes))
    return call.misuse(ncclInvalidArgument, "outside of all memory");
  auto *on = reinterpret_cast<Stream *>(stream);
  if (on->device != communicator->device)
    return call.misuse(ncclInvalidArgument, "on a stream of another device");
  size_t at = 0;
  while (at < group.launches.size() && group.launches[at]->stream != on)
    ++at;
  if (at == group.launches.size()) {
    group.launches.push_back(std::make_shared<Launch>());
    group.launches[at]->stream = on;
  }
  Launch &launch = *group.launches[at];
  launch.messages.push_back(
      {communicator, sends, peer, static_cast<std::byte *>(data), bytes});
  return group.depth == 0 ? endGroup(call) : ncclSuccess;
}

} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  Call call("ncclGetVersion");
  const int other = call.engine.settings.ncclVersion;
  *version = other != 0 ? other : NCCL_VERSION_CODE;
  return call.refused;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  Call call("ncclGetUniqueId");
  static uint64_t next = 0;
  *id = {};
  (void)std::snprintf(id->internal, sizeof(id->internal), "-%d-%llu",
                      static_cast<int>(::getpid()),
                      static_cast<unsigned long long>(++next));
  return call.refused;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *handle, int ranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  Call call("ncclCommInitRankConfig");
  *handle = nullptr;
  if (call.refused != ncclSuccess)
    return call.refused;
  if (!config || config->blocking != 0)
    return call.misuse(ncclInvalidArgument, "of one that blocks");
  const char *order = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  call.engine.inLaunchOrder = order && std::strcmp(order, "1") == 0;
  auto made = std::make_unique<Communicator>();
  Communicator *communicator = made.get();
  communicator->rank = rank;
  communicator->device = call.engine.host().device;
  communicator->pollsLeft = call.engine.draw(2) ? 3 : 0;
  call.engine.communicators.insert(communicator);
  call.engine.madeCommunicators.push_back(std::move(made));
  group.inits.push_back(
      {communicator,
       std::string(id.internal, ::strnlen(id.internal, sizeof(id.internal))),
       ranks});
  *handle = reinterpret_cast<ncclComm_t>(communicator);
  return group.depth == 0 ? endGroup(call) : ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key,
                           ncclComm_t *handle, ncclConfig_t *config) {
  Call call("ncclCommSplit");
  if (call.refused != ncclSuccess)
    return call.refused;
  Communicator *communicator = communicatorOf(parent);
  if (ncclResult_t error = call.check(communicator))
    return error;
  if (!config || config->blocking != 0 || color < NCCL_SPLIT_NOCOLOR)
    return call.misuse(ncclInvalidArgument, "of one that blocks");
  if (!communicator->clique->wire || group.depth != 0)
    return call.misuse(ncclInvalidUsage, "only between processes, no group");
  if (!communicator->order.empty())
    return call.misuse(ncclInvalidUsage, "while something is outstanding");
  *handle = nullptr;
  call.engine.beginSplit(*communicator, color, key, handle);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *state) {
  Call call("ncclCommGetAsyncError");
  if (call.refused != ncclSuccess)
    return call.refused;
  Communicator *communicator = communicatorOf(handle);
  if (call.engine.communicators.count(communicator) == 0)
    return call.misuse(ncclInvalidArgument, "of no communicator");
  if (call.engine.communicatorsFail) {
    *state = ncclRemoteError;
    return ncclSuccess;
  }
  if (const auto found = late.find(communicator); found != late.end()) {
    const std::shared_ptr<Late> launches = found->second;
    if (call.engine.draw(2)) {
      *state = ncclInProgress;
      return ncclSuccess;
    }
    std::erase_if(late,
                  [&](const auto &each) { return each.second == launches; });
    for (const auto &each : launches->launches)
      call.engine.launch(each);
  }
  call.engine.poll(*communicator);
  *state = communicator->state;
  if (*state == ncclSuccess && communicator->pollsLeft != 0) {
    --communicator->pollsLeft;
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  Call call("ncclCommAbort");
  Communicator *communicator = communicatorOf(handle);
  if (call.engine.communicators.erase(communicator) == 0)
    return call.misuse(ncclInvalidArgument, "of no communicator");
  late.erase(communicator);
  if (communicator->clique)
    call.engine.abort(*communicator);
  return call.refused;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  Call call("ncclCommFinalize");
  if (call.refused != ncclSuccess)
    return call.refused;
  Communicator *communicator = communicatorOf(handle);
  if (ncclResult_t error = call.check(communicator))
    return error;
  communicator->pollsLeft = call.engine.draw(2) ? 2 : 0;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  Call call("ncclCommDestroy");
  if (call.refused != ncclSuccess)
    return call.refused;
  Communicator *communicator = communicatorOf(handle);
  if (call.engine.communicators.erase(communicator) == 0)
    return call.misuse(ncclInvalidArgument, "of no communicator");
  if (!communicator->order.empty())
    return call.misuse(ncclInvalidUsage, "while it is in use");
  if (!call.engine.graphs.empty())
    return call.misuse(ncclInvalidUsage, "before the graphs that may use it");
  if (communicator->clique->wire)
    communicator->clique->wire->leave();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  Call call("ncclGroupStart");
  if (call.refused != ncclSuccess)
    return call.refused;
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Call call("ncclGroupEnd");
  if (group.depth == 0)
    return call.misuse(ncclInvalidUsage, "without a start");
  --group.depth;
  if (call.refused != ncclSuccess) {
    group.launches.clear();
    group.inits.clear();
    return call.refused;
  }
  return group.depth == 0 ? endGroup(call) : ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t handle, cudaStream_t stream) {
  Call call("ncclSend");
  return transfer(call, true, const_cast<void *>(data), count, type, peer,
                  handle, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t handle, cudaStream_t stream) {
  Call call("ncclRecv");
  return transfer(call, false, data, count, type, peer, handle, stream);
}

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclSystemError:
    return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  default:
    return "an error of the double";
  }
}

const char *ncclGetLastError(ncclComm_t) { return ""; }

} // extern "C"
