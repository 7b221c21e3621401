//===- runtime/cuda/CudaWorld.h - What the ranks of a process share -------===//
#ifndef SLUICE_RUNTIME_CUDA_CUDAWORLD_H
#define SLUICE_RUNTIME_CUDA_CUDAWORLD_H

#include "runtime/Backend.h"
#include "runtime/cuda/Communicators.h"
#include "runtime/cuda/Ledger.h"
#include "runtime/cuda/LocalPaths.h"

#include <deque>
#include <memory>
#include <vector>

namespace sluice::runtime::cuda {

/// Where every rank has a device of its own, NCCL joins them; where ranks share
/// devices, copies within the process do.
class CudaWorld final : public World {
public:
  CudaWorld(uint32_t ranks, std::span<const Channel> channels,
            std::span<const Collective> collectives);

  Status connect(const ConnectOptions &options) override;
  Status join() override;
  Status admit(std::span<const Bytes> arenas) const override;
  Status open(Id rank, std::unique_ptr<Backend> &backend) override;
  void abort() override { stop.store(true, std::memory_order_release); }

  bool aborted() const { return stop.load(std::memory_order_acquire); }
  /// A rank has failed: what it lets go on, on its streams and by its messages
  /// on those of others, has no data to compute with. An abort is to come.
  void halt() { failing.store(true, std::memory_order_release); }
  bool halted() const {
    return aborted() || failing.load(std::memory_order_acquire);
  }
  bool usesNccl() const { return communicators != nullptr; }
  /// Whether modules compute on the devices, and arenas lie there; else on the
  /// host, in memory that both reach.
  bool computesOnDevice() const { return onDevice; }
  bool usesGraphs() const { return graphs; }
  int deviceOf(Id rank) const { return devices[rank]; }
  /// Only where usesNccl().
  Communicators &nccl() { return *communicators; }

  /// One of the paths between ranks.
  struct Path {
    std::vector<Id> ranks; ///< of its ends: source and destination, or members
    Ledger ledger;
    LocalPath local;
    explicit Path(std::vector<Id> ends)
        : ranks(std::move(ends)), ledger(ranks.size()), local(ranks.size()) {}
  };
  Path &channel(Id id) { return channels[id]; }
  Path &collective(Id id) { return collectives[id]; }
  size_t channelCount() const { return channels.size(); }
  size_t collectiveCount() const { return collectives.size(); }

private:
  Status chooseDevices(const ConnectOptions &options);
  Status chooseOwnDevice(const ConnectOptions &options, int count);
  Communicators::Deadline deadline() const;
  bool hasPaths() const {
    return !channelList.empty() || !collectiveList.empty();
  }

  std::vector<Channel> channelList;
  std::vector<Collective> collectiveList;
  std::deque<Path> channels, collectives; ///< never moved
  std::vector<int> devices;               ///< per rank
  std::unique_ptr<Communicators> communicators;
  bool onDevice = false;
  bool graphs = false;
  Id self = kNone; ///< the only rank here; kNone: all are
  std::string token;
  double timeoutSeconds = 0;
  std::atomic<bool> stop{false}, failing{false};
};

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_CUDAWORLD_H
