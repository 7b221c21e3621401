//===- runtime/cuda/Communicators.cpp -------------------------------------===//
#include "runtime/cuda/Communicators.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <thread>

namespace sluice::runtime::cuda {

//===----------------------------------------------------------------------===//
// Which there are
//===----------------------------------------------------------------------===//

namespace {
/// Ranks within the numbers of communicators, joined by paths.
class Sets {
public:
  uint32_t of(Id communicator, Id rank) {
    const auto [entry, isNew] = numbers.try_emplace(
        {communicator, rank}, static_cast<uint32_t>(parents.size()));
    if (isNew)
      parents.push_back(entry->second);
    return entry->second;
  }
  uint32_t root(uint32_t node) {
    while (parents[node] != node)
      node = parents[node] = parents[parents[node]];
    return node;
  }
  void join(uint32_t one, uint32_t other) {
    const uint32_t a = root(one), b = root(other);
    parents[std::max(a, b)] = std::min(a, b);
  }

private:
  std::map<std::pair<Id, Id>, uint32_t> numbers;
  std::vector<uint32_t> parents;
};
} // namespace

Communicators::Communicators(std::span<const Channel> channels,
                             std::span<const Collective> collectives) {
  join(channels, collectives);
}

void Communicators::join(std::span<const Channel> channels,
                         std::span<const Collective> collectives) {
  Sets sets;
  for (const Channel &channel : channels)
    sets.join(sets.of(channel.communicator, channel.source),
              sets.of(channel.communicator, channel.destination));
  for (const Collective &of : collectives)
    for (const Id rank : of.ranks)
      sets.join(sets.of(of.communicator, of.ranks.front()),
                sets.of(of.communicator, rank));

  std::map<uint32_t, uint32_t> cliqueOf; // by root
  std::vector<std::set<Id>> ranks;
  const auto numberOf = [&](Id communicator, Id rank) {
    const auto [entry, isNew] =
        cliqueOf.try_emplace(sets.root(sets.of(communicator, rank)),
                             static_cast<uint32_t>(ranks.size()));
    if (isNew)
      ranks.emplace_back();
    ranks[entry->second].insert(rank);
    return entry->second;
  };
  std::vector<std::vector<std::pair<Id, Id>>> messages;
  const auto pair = [&](uint32_t clique, Id from, Id to) {
    messages.resize(ranks.size());
    messages[clique].push_back({from, to});
  };
  for (const Channel &channel : channels) {
    const uint32_t clique = numberOf(channel.communicator, channel.source);
    (void)numberOf(channel.communicator, channel.destination);
    cliqueOfChannel.push_back(clique);
    pair(clique, channel.source, channel.destination);
  }
  for (const Collective &of : collectives) {
    uint32_t clique = kNone;
    for (const Id rank : of.ranks)
      clique = numberOf(of.communicator, rank);
    cliqueOfCollective.push_back(clique);
    for (const Id from : of.ranks)
      for (const Id to : of.ranks)
        if (from != to)
          pair(clique, from, to);
  }
  messages.resize(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    Clique &clique = cliques.emplace_back();
    clique.messages = std::move(messages[i]);
    for (const Id rank : ranks[i]) {
      Member &member = clique.members.emplace_back();
      member.rank = rank;
      member.position = static_cast<int>(clique.members.size() - 1);
    }
  }
}

Member &Communicators::find(Clique &clique, Id rank) {
  return *std::lower_bound(
      clique.members.begin(), clique.members.end(), rank,
      [](const Member &member, Id wanted) { return member.rank < wanted; });
}

Member &Communicators::ofChannel(Id channel, Id rank) {
  return find(cliques[cliqueOfChannel[channel]], rank);
}

Member &Communicators::ofCollective(Id collective, Id rank) {
  return find(cliques[cliqueOfCollective[collective]], rank);
}

std::vector<Member *> Communicators::ofRank(Id rank) {
  std::vector<Member *> members;
  for (Clique &clique : cliques)
    for (Member &member : clique.members)
      if (member.rank == rank)
        members.push_back(&member);
  return members;
}

//===----------------------------------------------------------------------===//
// Making and connecting
//===----------------------------------------------------------------------===//

static constexpr const char *kLate = "NCCL does not connect in time";

/// All calls of one communicator are over, or the time is.
static Answer settleAll(std::deque<Member> &members,
                        Communicators::Deadline deadline) {
  const auto isOver = [&] {
    return std::chrono::steady_clock::now() > deadline;
  };
  for (const Member &member : members)
    if (Answer answer = Communicators::settle(member, isOver); !answer.ok())
      return answer;
  return isOver() ? Answer{kLate} : Answer{};
}

Answer Communicators::make(Clique &clique, Deadline deadline) {
  ncclUniqueId id;
  if (Answer answer = answerOf(ncclGetUniqueId(&id), "ncclGetUniqueId");
      !answer.ok())
    return answer;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (Answer answer = answerOf(ncclGroupStart(), "ncclGroupStart");
      !answer.ok())
    return answer;
  Answer first;
  for (Member &member : clique.members) {
    first = answerOf(cudaSetDevice(member.device), "cudaSetDevice");
    if (first.ok())
      first =
          answerOf(ncclCommInitRankConfig(
                       &member.handle, static_cast<int>(clique.members.size()),
                       id, member.position, &config),
                   "ncclCommInitRankConfig");
    if (!first.ok())
      break;
  }
  // Ends in any case: an open group would swallow what comes later.
  Answer ended = answerOf(ncclGroupEnd(), "ncclGroupEnd");
  if (!first.ok())
    return first;
  return ended.ok() ? settleAll(clique.members, deadline) : ended;
}

namespace {
/// A stream and some bytes of a device, for a moment.
class Spot {
public:
  Answer take(int onDevice) {
    device = onDevice;
    if (Answer answer = answerOf(cudaSetDevice(device), "cudaSetDevice");
        !answer.ok())
      return answer;
    if (Answer answer =
            answerOf(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags");
        !answer.ok())
      return answer;
    void *data = nullptr;
    Answer answer = answerOf(cudaMalloc(&data, 2), "cudaMalloc");
    bytes = static_cast<std::byte *>(data);
    return answer;
  }
  Spot() = default;
  Spot(const Spot &) = delete;
  Spot &operator=(const Spot &) = delete;
  /// Freeing waits for the device: what never ends keeps its bytes.
  ~Spot() {
    (void)cudaSetDevice(device);
    const bool isIdle =
        !stream ||
        await(std::chrono::steady_clock::now() + std::chrono::seconds(1)).ok();
    if (bytes && isIdle)
      (void)cudaFree(bytes);
    if (stream)
      (void)cudaStreamDestroy(stream);
  }
  /// Until all that was enqueued has ended.
  Answer await(Communicators::Deadline deadline) const {
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
      if (std::chrono::steady_clock::now() > deadline)
        return {kLate};
      std::this_thread::yield();
    }
    return answerOf(state, "cudaStreamQuery");
  }

  int device = 0;
  cudaStream_t stream = nullptr;
  std::byte *bytes = nullptr; ///< one to send, one to receive into
};
} // namespace

/// A byte over each path.
static Answer exchange(std::span<const std::pair<Id, Id>> messages,
                       const std::function<Member &(Id)> &memberOf,
                       std::deque<Spot> &spots) {
  for (const auto &[from, to] : messages) {
    Member &source = memberOf(from), &target = memberOf(to);
    Spot &there = spots[static_cast<size_t>(target.position)];
    Spot &here = spots[static_cast<size_t>(source.position)];
    if (Answer answer =
            answerOf(ncclSend(here.bytes, 1, ncclInt8, target.position,
                              source.handle, here.stream),
                     "ncclSend");
        !answer.ok())
      return answer;
    if (Answer answer =
            answerOf(ncclRecv(there.bytes + 1, 1, ncclInt8, source.position,
                              target.handle, there.stream),
                     "ncclRecv");
        !answer.ok())
      return answer;
  }
  return {};
}

Answer Communicators::touch(Clique &clique, Deadline deadline) {
  std::deque<Spot> spots;
  for (const Member &member : clique.members)
    if (Answer answer = spots.emplace_back().take(member.device); !answer.ok())
      return answer;
  if (Answer answer = answerOf(ncclGroupStart(), "ncclGroupStart");
      !answer.ok())
    return answer;
  Answer answer = exchange(
      clique.messages, [&](Id rank) -> Member & { return find(clique, rank); },
      spots);
  Answer ended = answerOf(ncclGroupEnd(), "ncclGroupEnd");
  if (answer.ok())
    answer = std::move(ended);
  if (answer.ok())
    answer = settleAll(clique.members, deadline);
  for (const Spot &spot : spots)
    if (answer.ok())
      answer = spot.await(deadline);
  if (!answer.ok()) // before the bytes go
    for (Member &member : clique.members)
      abort({{&member}});
  return answer;
}

/// Plans put all that a rank communicates into one order, and its host enqueues
/// in it. NCCL promises to begin in that order if it is asked to: else a
/// message that came later could take the room of one that others wait for.
static void askForOrder() { ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); }

Status Communicators::connect(std::span<const int> devices, Deadline deadline) {
  askForOrder();
  for (Clique &clique : cliques)
    for (Member &member : clique.members)
      member.device = devices[member.rank];
  for (Clique &clique : cliques) {
    Answer answer = make(clique, deadline);
    if (answer.ok())
      answer = touch(clique, deadline);
    if (!answer.ok())
      return Status::environment("cannot connect the ranks: " + answer.fault);
  }
  connected = true;
  return {};
}

//===----------------------------------------------------------------------===//
// The end
//===----------------------------------------------------------------------===//

void Communicators::abort(std::span<Member *const> members) {
  for (Member *member : members)
    if (member->handle && !member->gone.exchange(true))
      (void)ncclCommAbort(member->handle);
}

/// Finalizes all, since ranks may wait for each other in it, then destroys
/// them. What was never whole, or does not finalize within a second, is
/// aborted.
Communicators::~Communicators() {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(1);
  const auto isOver = [&] {
    return std::chrono::steady_clock::now() > deadline;
  };
  std::vector<Member *> left;
  for (Clique &clique : cliques)
    for (Member &member : clique.members)
      if (member.handle && !member.gone.load())
        left.push_back(&member);
  std::erase_if(left, [this](Member *member) {
    if (connected && answerOf(ncclCommFinalize(member->handle), "").ok())
      return false;
    abort({{member}});
    return true;
  });
  for (Member *member : left) {
    const bool isFinal = settle(*member, isOver).ok() && !isOver();
    if (!isFinal || ncclCommDestroy(member->handle) != ncclSuccess)
      abort({{member}});
    member->gone = true;
  }
}

} // namespace sluice::runtime::cuda
