//===- runtime/cuda/CudaWorld.cpp -----------------------------------------===//
#include "runtime/cuda/CudaWorld.h"

#include "runtime/Launch.h"
#include "runtime/Memory.h"
#include "runtime/cuda/CudaBackend.h"

#include <cstdlib>
#include <map>

namespace sluice::runtime {

using namespace cuda;

CudaWorld::CudaWorld(uint32_t ranks, std::span<const Channel> channelSpan,
                     std::span<const Collective> collectiveSpan)
    : channelList(channelSpan.begin(), channelSpan.end()),
      collectiveList(collectiveSpan.begin(), collectiveSpan.end()),
      devices(ranks, 0) {
  for (const Channel &channel : channelList)
    channels.emplace_back(std::vector<Id>{channel.source, channel.destination});
  for (const Collective &of : collectiveList)
    collectives.emplace_back(of.ranks);
}

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

/// "13.0".
static std::string versionText(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

static Status checkVersions(bool usesNccl) {
  int driver = 0;
  if (Answer answer =
          answerOf(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
      !answer.ok())
    return statusOf(answer, "backend cuda");
  if (driver / 1000 < CUDART_VERSION / 1000)
    return Status::environment(
        "the driver of the GPUs is too old: it knows CUDA " +
        versionText(driver) + ", this program needs " +
        versionText(CUDART_VERSION));
  if (!usesNccl)
    return {};
  int nccl = 0;
  if (Answer answer = answerOf(ncclGetVersion(&nccl), "ncclGetVersion");
      !answer.ok())
    return statusOf(answer, "backend cuda");
  if (nccl / 10000 != NCCL_MAJOR || nccl < NCCL_VERSION_CODE)
    return Status::environment(
        "the NCCL that is installed has version " + std::to_string(nccl) +
        ", this program was built with " + std::to_string(NCCL_VERSION_CODE));
  return {};
}

/// The device of a process that has one rank: that of its number on the
/// machine, or the only one that its launcher lets it see.
Status CudaWorld::chooseOwnDevice(const ConnectOptions &options, int count) {
  if (options.devices != 0)
    return Status::usage("--devices is for one process with several ranks; "
                         "each of these processes has one GPU");
  Launch launch;
  if (Status s = detectLaunch(launch); !s.ok())
    return s;
  const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool isOnly = count == 1 && visible && *visible;
  if (!isOnly && launch.localRank >= static_cast<uint32_t>(count))
    return Status::environment(
        "process " + std::to_string(options.self) + " is number " +
        std::to_string(launch.localRank) +
        " on its machine, counted from 0, and wants the GPU of that number, "
        "but it sees only " +
        std::to_string(count));
  devices[options.self] = isOnly ? 0 : static_cast<int>(launch.localRank);
  if (hasPaths())
    communicators = std::make_unique<Communicators>(channelList, collectiveList,
                                                    options.self);
  return checkVersions(usesNccl());
}

/// Rank r has device r; with fewer devices than ranks, each has a run of ranks.
Status CudaWorld::chooseDevices(const ConnectOptions &options) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0)
    return Status::environment(
        "backend cuda: there is no GPU that can be used here" +
        (code == cudaSuccess
             ? std::string()
             : " (" + answerOf(code, "cudaGetDeviceCount").fault + ")"));
  if (options.self != kNone)
    return chooseOwnDevice(options, count);
  if (options.devices > static_cast<uint32_t>(count))
    return Status::environment("--devices=" + std::to_string(options.devices) +
                               ": there are " + std::to_string(count) +
                               " GPUs");
  const uint64_t ranks = devices.size();
  const uint64_t used = std::min<uint64_t>(
      options.devices != 0 ? options.devices : static_cast<uint32_t>(count),
      ranks);
  for (uint64_t rank = 0; rank < ranks; ++rank)
    devices[rank] = static_cast<int>(rank * used / ranks);
  if (used == ranks && hasPaths())
    communicators =
        std::make_unique<Communicators>(channelList, collectiveList);
  return checkVersions(usesNccl());
}

Status CudaWorld::connect(const ConnectOptions &options) {
  onDevice = options.computesOnDevice;
  self = options.self;
  token = options.token;
  timeoutSeconds = options.timeoutSeconds;
  if (Status s = chooseDevices(options); !s.ok())
    return s;
  graphs = options.graphs;
  if (!usesNccl() && graphs && !channelList.empty())
    return Status::usage("--graph: ranks that share a GPU cannot be captured; "
                         "it takes one for each of the " +
                         std::to_string(devices.size()) + " ranks");
  if (!usesNccl() || self != kNone)
    return {};
  return communicators->connect(devices, deadline());
}

/// Longer than anybody waits, where there is no limit.
Communicators::Deadline CudaWorld::deadline() const {
  const double seconds = timeoutSeconds > 0 ? timeoutSeconds : 1e6;
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::duration<double>(seconds));
}

Status CudaWorld::join() {
  if (!usesNccl())
    return {};
  return communicators->join(token, static_cast<int>(devices.size()),
                             devices[self],
                             {deadline(), [this] { return aborted(); }});
}

Status CudaWorld::admit(std::span<const Bytes> arenas) const {
  if (!onDevice)
    return admitArenas(arenas);
  std::map<int, Bytes> needed;
  for (size_t i = 0; i < arenas.size(); ++i)
    needed[devices[self != kNone ? self : i]] += arenas[i];
  for (const auto &[device, bytes] : needed) {
    size_t free = 0, total = 0;
    Answer answer = answerOf(cudaSetDevice(device), "cudaSetDevice");
    if (answer.ok())
      answer = answerOf(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (!answer.ok())
      return statusOf(answer, "GPU " + std::to_string(device));
    if (bytes > free)
      return Status::environment("out of memory: the arenas on GPU " +
                                 std::to_string(device) + " take " +
                                 formatBytes(bytes) + ", and " +
                                 formatBytes(free) + " are free");
  }
  return {};
}

Status CudaWorld::open(Id rank, std::unique_ptr<Backend> &backend) {
  backend = std::make_unique<CudaBackend>(*this, rank);
  return {};
}

Status makeCudaWorld(uint32_t ranks, std::span<const Channel> channels,
                     std::span<const Collective> collectives,
                     std::unique_ptr<World> &world) {
  if (Status s = checkPaths(ranks, channels, collectives); !s.ok())
    return s;
  world = std::make_unique<CudaWorld>(ranks, channels, collectives);
  return {};
}

} // namespace sluice::runtime
