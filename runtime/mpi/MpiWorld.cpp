//===- runtime/mpi/MpiWorld.cpp ------------------------------------------===//
#include "runtime/mpi/MpiWorld.h"

#include "runtime/Memory.h"
#include "runtime/mpi/MpiBackend.h"

#include <thread>

namespace sluice::runtime::mpi {

/// Polls before a rank lets others go first: some 20 microseconds.
static constexpr uint32_t kSpins = 100;

Status MpiWorld::layTags() {
  uint64_t next = 2 * uint64_t(channels.size());
  for (const Collective &of : collectives) {
    firstTag.push_back(static_cast<int>(next));
    next += uint64_t(of.ranks.size()) * of.ranks.size();
    if (next > static_cast<uint64_t>(session.maxTag))
      break;
  }
  if (next <= static_cast<uint64_t>(session.maxTag))
    return {};
  return Status::environment(
      "the plan needs more than the " + std::to_string(session.maxTag) +
      " tags that this MPI has, for " + std::to_string(channels.size()) +
      " channels and " + std::to_string(collectives.size()) + " collectives");
}

/// Ranks in one process come and go, each world with messages of its own. With
/// several processes there is one world.
Status MpiWorld::takeCommunicator(uint32_t ranks) {
  uint32_t sharing = static_cast<uint32_t>(session.localSize);
  data = session.data;
  if (session.size == 1) {
    sharing = ranks;
    if (const int code = MPI_Comm_dup(session.data, &data); code != MPI_SUCCESS)
      return Status::environment(describe("MPI_Comm_dup", code));
    ownsData = true;
  }
  spinRounds = sharing <= std::thread::hardware_concurrency() ? kSpins : 0;
  return {};
}

Status MpiWorld::make(uint32_t ranks, std::span<const Channel> channels,
                      std::span<const Collective> collectives,
                      std::unique_ptr<World> &world) {
  if (Status s = checkPaths(ranks, channels, collectives); !s.ok())
    return s;
  const Session *opened = nullptr;
  if (Status s = mpi::session(opened); !s.ok())
    return s;
  if (opened->size != 1 && static_cast<uint32_t>(opened->size) != ranks)
    return Status::usage("MPI has " + std::to_string(opened->size) +
                         " processes, but there are " + std::to_string(ranks) +
                         " ranks");
  auto made =
      std::unique_ptr<MpiWorld>(new MpiWorld(*opened, channels, collectives));
  if (Status s = made->layTags(); !s.ok())
    return s;
  if (Status s = made->takeCommunicator(ranks); !s.ok())
    return s;
  world = std::move(made);
  return {};
}

/// After an abort messages may be on their way; MPI cannot call them back.
MpiWorld::~MpiWorld() {
  if (ownsData && !aborted())
    MPI_Comm_free(&data);
}

Status MpiWorld::admit(std::span<const Bytes> arenas) const {
  return admitArenas(arenas);
}

Status MpiWorld::open(Id rank, std::unique_ptr<Backend> &backend) {
  backend = std::make_unique<MpiBackend>(*this, rank);
  return {};
}

MpiWorld::Path MpiWorld::dataPath(Id channel, bool sends) const {
  const Channel &of = channels[channel];
  return {processOf(sends ? of.destination : of.source),
          2 * static_cast<int>(channel)};
}

MpiWorld::Path MpiWorld::readyPath(Id channel, bool sends) const {
  const Channel &of = channels[channel];
  return {processOf(sends ? of.source : of.destination),
          2 * static_cast<int>(channel) + 1};
}

MpiWorld::Path MpiWorld::memberPath(Id collective, uint32_t from, uint32_t to,
                                    bool sends) const {
  const std::vector<Id> &ranks = collectives[collective].ranks;
  return {processOf(ranks[sends ? to : from]),
          firstTag[collective] + static_cast<int>(from * ranks.size() + to)};
}

} // namespace sluice::runtime::mpi
