//===- runtime/cuda/Communicators.h - NCCL between ranks ------------------===//
#ifndef SLUICE_RUNTIME_CUDA_COMMUNICATORS_H
#define SLUICE_RUNTIME_CUDA_COMMUNICATORS_H

#include "ir/Plan.h"
#include "runtime/cuda/Codes.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <span>
#include <vector>

namespace sluice::runtime::cuda {

/// A rank's part of a communicator.
struct Member {
  Id rank = kNone;
  int position = 0; ///< its rank in NCCL's words
  int device = 0;
  ncclComm_t handle = nullptr;
  std::atomic<bool> gone{false}; ///< aborted or destroyed
};

/// All communicators of a job: for each of the plan's numbers one for every set
/// of ranks that paths of that number join, so that replicas do not share any.
/// They never block: whoever calls NCCL polls until the call is over.
class Communicators {
public:
  using Deadline = std::chrono::steady_clock::time_point;
  /// How long to wait for others.
  struct Patience {
    Deadline deadline;
    std::function<bool()> stopped = {}; ///< empty: never before
    bool isOver() const {
      return (stopped && stopped()) ||
             std::chrono::steady_clock::now() > deadline;
    }
  };

  /// `own`: the only rank of this process, which `join` connects; kNone: all
  /// are here. Linear in paths and their members, but for a sort.
  Communicators(std::span<const Channel> channels,
                std::span<const Collective> collectives, Id own = kNone);
  ~Communicators();
  Communicators(const Communicators &) = delete;
  Communicators &operator=(const Communicators &) = delete;

  /// Makes all of them, one after the other, each for all its ranks at once,
  /// and sends a byte over each of their paths: NCCL connects two ranks at
  /// their first message, and that may block a host. `devices` is per rank.
  Status connect(std::span<const int> devices, Deadline deadline);

  /// What the process of rank 0 makes for `join` of all others; empty where
  /// NCCL cannot.
  static std::string makeToken();
  /// The same as `connect` where each process has one rank; all must call it.
  /// One communicator of all ranks is made by the token, and every other is
  /// split from it, in one order.
  /// `count` is the number of ranks.
  Status join(const std::string &token, int count, int device,
              const Patience &patience);

  /// The part of `rank` in the communicator of a path; it is one of its ends.
  Member &ofChannel(Id channel, Id rank);
  Member &ofCollective(Id collective, Id rank);
  /// All parts of `rank`.
  std::vector<Member *> ofRank(Id rank);

  /// Aborts what of `members` is still there. From the one thread that uses
  /// them.
  static void abort(std::span<Member *const> members);

  /// Polls until no call on `member` is in progress, or `isOver()`.
  template <typename IsOver>
  static Answer settle(const Member &member, IsOver isOver);

private:
  class Spot;
  struct Clique {
    std::deque<Member> members;              ///< ascending by rank; never moved
    std::vector<std::pair<Id, Id>> messages; ///< paths, by rank
  };
  static Member &find(Clique &clique, Id rank);
  void arrange(std::span<const Channel> channels,
               std::span<const Collective> collectives);
  bool isHere(Id rank) const { return self == kNone || rank == self; }
  Answer make(Clique &clique, const Patience &patience);
  Answer meet(const std::string &token, int count, const Patience &patience);
  Answer split(Clique &clique, const Patience &patience);
  Answer touch(Clique &clique, const Patience &patience);
  Answer exchange(Clique &clique, std::deque<Spot> &spots);

  std::deque<Clique> cliques;
  const Id self;             ///< the only rank here; kNone: all are
  Member whole;              ///< of all ranks; only where one is here
  ncclComm_t none = nullptr; ///< what a split gives to who is not in it
  bool connected = false;
  std::vector<uint32_t> cliqueOfChannel, cliqueOfCollective;
};

template <typename IsOver>
Answer Communicators::settle(const Member &member, IsOver isOver) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && !isOver())
    if (Answer answer = answerOf(ncclCommGetAsyncError(member.handle, &state),
                                 "ncclCommGetAsyncError");
        !answer.ok())
      return answer;
  return answerOf(state, "a call of NCCL");
}

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_COMMUNICATORS_H
