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
                             std::span<const Collective> collectives, Id own)
    : self(own) {
  arrange(channels, collectives);
}

void Communicators::arrange(std::span<const Channel> channels,
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
  if (self == rank)
    members.push_back(&whole);
  return members;
}

//===----------------------------------------------------------------------===//
// Making and connecting
//===----------------------------------------------------------------------===//

static constexpr const char *kLate = "NCCL does not connect in time";

/// All calls on one communicator are over, or the time is.
static Answer settleOne(const Member &member,
                        const Communicators::Patience &patience) {
  const auto isOver = [&] { return patience.isOver(); };
  if (Answer answer = Communicators::settle(member, isOver); !answer.ok())
    return answer;
  return isOver() ? Answer{kLate} : Answer{};
}

/// The same of all members that are here.
static Answer settleAll(std::deque<Member> &members,
                        const Communicators::Patience &patience) {
  for (const Member &member : members)
    if (member.handle)
      if (Answer answer = settleOne(member, patience); !answer.ok())
        return answer;
  return {};
}

Answer Communicators::make(Clique &clique, const Patience &patience) {
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
  return ended.ok() ? settleAll(clique.members, patience) : ended;
}

/// A stream and some bytes of a device, for a moment.
class Communicators::Spot {
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
    if (!stream)
      return; // of a rank that is not here
    (void)cudaSetDevice(device);
    const bool isIdle =
        await({std::chrono::steady_clock::now() + std::chrono::seconds(1)})
            .ok();
    if (bytes && isIdle)
      (void)cudaFree(bytes);
    (void)cudaStreamDestroy(stream);
  }
  /// Until all that was enqueued has ended.
  Answer await(const Patience &patience) const {
    if (!stream)
      return {};
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
      if (patience.isOver())
        return {kLate};
      std::this_thread::yield();
    }
    return answerOf(state, "cudaStreamQuery");
  }

  int device = 0;
  cudaStream_t stream = nullptr;
  std::byte *bytes = nullptr; ///< one to send, one to receive into
};

/// A byte over each path, as far as its ends are here.
Answer Communicators::exchange(Clique &clique, std::deque<Spot> &spots) {
  for (const auto &[from, to] : clique.messages) {
    Member &source = find(clique, from), &target = find(clique, to);
    const Spot &there = spots[static_cast<size_t>(target.position)];
    const Spot &here = spots[static_cast<size_t>(source.position)];
    Answer answer;
    if (isHere(from))
      answer = answerOf(ncclSend(here.bytes, 1, ncclInt8, target.position,
                                 source.handle, here.stream),
                        "ncclSend");
    if (isHere(to) && answer.ok())
      answer = answerOf(ncclRecv(there.bytes + 1, 1, ncclInt8, source.position,
                                 target.handle, there.stream),
                        "ncclRecv");
    if (!answer.ok())
      return answer;
  }
  return {};
}

Answer Communicators::touch(Clique &clique, const Patience &patience) {
  std::deque<Spot> spots(clique.members.size());
  for (const Member &member : clique.members)
    if (isHere(member.rank))
      if (Answer answer =
              spots[static_cast<size_t>(member.position)].take(member.device);
          !answer.ok())
        return answer;
  if (Answer answer = answerOf(ncclGroupStart(), "ncclGroupStart");
      !answer.ok())
    return answer;
  Answer answer = exchange(clique, spots);
  Answer ended = answerOf(ncclGroupEnd(), "ncclGroupEnd");
  if (answer.ok())
    answer = std::move(ended);
  if (answer.ok())
    answer = settleAll(clique.members, patience);
  for (const Spot &spot : spots)
    if (answer.ok())
      answer = spot.await(patience);
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
    Answer answer = make(clique, {deadline});
    if (answer.ok())
      answer = touch(clique, {deadline});
    if (!answer.ok())
      return Status::environment("cannot connect the ranks: " + answer.fault);
  }
  connected = true;
  return {};
}

//===----------------------------------------------------------------------===//
// With the ranks of other processes
//===----------------------------------------------------------------------===//

std::string Communicators::makeToken() {
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess)
    return {};
  return {id.internal, sizeof(id.internal)};
}

Answer Communicators::meet(const std::string &token, int count,
                           const Patience &patience) {
  ncclUniqueId id;
  if (token.size() != sizeof(id.internal))
    return {"process 0 could make no id (ncclGetUniqueId)"};
  std::copy_n(token.data(), sizeof(id.internal), id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  whole.rank = self;
  whole.position = static_cast<int>(self);
  Answer answer = answerOf(cudaSetDevice(whole.device), "cudaSetDevice");
  if (answer.ok())
    answer = answerOf(ncclCommInitRankConfig(&whole.handle, count, id,
                                             whole.position, &config),
                      "ncclCommInitRankConfig");
  return answer.ok() ? settleOne(whole, patience) : answer;
}

/// Ranks that are not in it take part, too, and get none.
Answer Communicators::split(Clique &clique, const Patience &patience) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  Member *own = nullptr;
  for (Member &member : clique.members)
    if (isHere(member.rank))
      own = &member;
  // NCCL may write the handle at any time until the call is over.
  Answer answer =
      answerOf(ncclCommSplit(whole.handle, own ? 0 : NCCL_SPLIT_NOCOLOR,
                             own ? own->position : 0,
                             own ? &own->handle : &none, &config),
               "ncclCommSplit");
  if (answer.ok())
    answer = settleOne(whole, patience);
  if (!own || !answer.ok())
    return answer;
  own->device = whole.device;
  return own->handle ? settleOne(*own, patience)
                     : Answer{"ncclCommSplit: no communicator came"};
}

Status Communicators::join(const std::string &token, int count, int device,
                           const Patience &patience) {
  askForOrder();
  whole.device = device;
  Answer answer = meet(token, count, patience);
  for (Clique &clique : cliques) {
    if (answer.ok())
      answer = split(clique, patience);
    if (answer.ok())
      answer = touch(clique, patience);
  }
  connected = answer.ok();
  return connected
             ? Status()
             : Status::environment("cannot connect the ranks: " + answer.fault);
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
  if (whole.handle && !whole.gone.load()) // after what was split from it
    left.push_back(&whole);
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
