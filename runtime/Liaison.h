//===- runtime/Liaison.h - A job of several processes --------------------===//
//
// What the processes of a job tell each other (Peers.h), each with one rank:
// whether they could load, and what; some ten times a second, where they stand;
// that a step has ended, and what they leave behind at the end, to process 0;
// and why they end early. There is no one whom all depend on: each process
// hears of all others, so whoever is left can tell of those who are not.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_LIAISON_H
#define SLUICE_RUNTIME_LIAISON_H

#include "ir/Status.h"
#include "ir/Timeline.h"
#include "runtime/Executor.h"
#include "runtime/Peers.h"
#include "runtime/Standing.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice::runtime {

/// A rank has ended a step.
struct StepEnd {
  uint64_t step = 0;
  int64_t end = 0; ///< nanoseconds of the clock of process 0
  double loss = 0;
  bool hasLoss = false;
};

/// What a rank leaves behind, beside its weights.
struct RankReport {
  Bytes arenaBytes = 0;
  Bytes hostArenaBytes = 0;
  std::vector<Id> stages;
  std::vector<StageCostSums> costs; ///< of each of these
  std::vector<OpTime> times;        ///< of the last step, by process 0's clock
  std::vector<TimelineSpan> flight; ///< by the same clock, if asked for
};

/// A tensor that some rank holds.
struct HeldTensor {
  std::string name;
  uint64_t position = 0;
  Bytes bytes = 0;
  Id rank = 0;                ///< of all replicas
  uint32_t index = 0;         ///< among the rank's own
  const void *data = nullptr; ///< null: in another process
};

/// Why a rank ends before its time.
struct EarlyEnd {
  enum class Reason : uint8_t {
    Asked, ///< another rank ends
    Failed,
    Stuck,  ///< no progress for the timeout
    Silent, ///< some other process is not heard of
    Signal
  };
  Reason reason = Reason::Asked;
  std::string message; ///< of Failed and Signal: the whole sentence
  StandingRow row;
};

/// When a process can stop because of a signal.
struct StopProposal {
  uint64_t after = 0; ///< the least number of steps that its ranks then have
  int cause = 0;      ///< the signal
};

class Liaison final : private Peers::Listener {
public:
  /// What the job does on hearing something. Called from the Peers' thread.
  struct Hooks {
    std::function<void()> changed; ///< something that can be waited for
    std::function<StandingRow()> standing;
    std::function<void(Id rank, const StepEnd &end)> stepEnded;
    std::function<void(Id rank, RankReport &&report)> reported;
  };

  /// A process that is not heard of for `timeoutSeconds` ends the job; not
  /// positive: never. While a number other than 0 is in `signal`, which may be
  /// null, `changed` is called again and again.
  Liaison(Peers &others, double timeoutSeconds, const std::atomic<int> *signal,
          Hooks whatToDo);
  ~Liaison() override;
  /// From here on no hook is called.
  void stopHearing() { peers.listen(nullptr); }

  Id self() const { return peers.self(); }
  bool isFirst() const { return peers.self() == 0; }
  int64_t clockOffset() const { return peers.clockOffset(); }

  /// Whether this rank could load, and which job: lines that must be the same
  /// everywhere.
  void tellLoaded(const Status &status, const std::string &job);
  bool allLoaded() const;
  /// After that: the fault of the first rank that could not load, else that of
  /// the first with another job than rank 0; `whose` is that rank.
  Status loadVerdict(Id &whose) const;

  void tellStepEnd(const StepEnd &end);
  void tellReport(const RankReport &report, Id to = 0);
  /// Offers the tensors of this rank, which must stay until the job is over.
  void offer(std::vector<HeldTensor> tensors);
  /// Of process 0: whether all reports have come, and all offers if `weights`.
  bool allReported(bool weights) const;
  /// After that: the tensors of all other ranks.
  std::vector<HeldTensor> offered() const;
  /// Gets the bytes of an offered tensor. Waits; fails if the job ends early.
  Status fetch(const HeldTensor &tensor, std::string &bytes);

  /// Process 0 tells all others that the job is over, and how.
  void tellOver(const Status &status);
  bool isOver() const;
  Status over() const;

  /// Tells all, also itself, when this process can stop.
  void proposeStop(const StopProposal &proposal);
  /// The signal for which somebody proposed to stop; 0: nobody did.
  int stopCause() const;
  /// The latest of what all proposed; none before all have.
  std::optional<uint64_t> agreedStop() const;

  /// Whether another rank or somebody's silence ends the job.
  bool endsEarly() const;

  /// How a job ended early, as one table and one sentence.
  struct Verdict {
    bool speaks = false; ///< no process before this one tells it
    EarlyEnd::Reason reason = EarlyEnd::Reason::Asked;
    Id rank = 0;    ///< whom it is about
    Id speaker = 0; ///< the process that speaks, as far as is known here
    std::string message;
    std::vector<StandingRow> rows;
  };
  /// Tells all others that this rank ends, and waits for what they say, for
  /// half a second at most: some may be gone.
  Verdict end(EarlyEnd own);
  /// After that, of the process that speaks: waits for the reports of all
  /// others that end, for a part of a second at most.
  void awaitReports();
  /// After `end`, where this process does not speak: waits until the one that
  /// does has spoken (`dismiss`), for some seconds at most, or after a signal
  /// less than one. Launchers end all processes soon after the first.
  void awaitDismissal();

private:
  void letter(Id from, std::string_view text) override;
  void tick() override;
  void beat(int64_t now);
  void listenForSilence(int64_t now);
  void broadcast(const std::string &text);
  bool read(Id from, std::string_view text);
  void sendPiece(Id to, uint32_t index, Bytes offset) const;
  StandingRow rowOf(Id rank, int64_t now) const;
  void judge(Verdict &verdict) const;

  /// One of the processes.
  struct Peer {
    int64_t lastHeard = 0;
    bool loaded = false;
    Status load;
    std::string job;
    bool reported = false;
    std::optional<StopProposal> stop;
    bool offered = false;
    std::vector<HeldTensor> tensors;
    StandingRow row;
    bool ends = false;
    EarlyEnd early;
  };

  Peers &peers;
  const double timeout;
  const std::atomic<int> *const signalled;
  const Hooks hooks;
  int64_t lastTick;
  int64_t nextBeat = 0;

  mutable std::mutex mutex; ///< guards what follows
  std::condition_variable changed;
  std::vector<Peer> all;
  std::vector<HeldTensor> own;
  bool overCame = false;
  Status overStatus;
  bool somebodyEnds = false;
  bool dismissed = false;
  int64_t leaveAt = 0;     ///< by this process's clock
  bool wasStopped = false; ///< this process itself, for a second or more
  bool silence = false;
  std::string piece; ///< the last that was fetched
  bool pieceCame = false;
};

/// Lets all others go, who wait until this process has told how the job ended.
/// Returns at the time at which they go too, and this process should end at
/// once: the launcher kills who is left.
void dismiss(Peers &peers);

/// How a process leaves a job that it could not start.
struct Departure {
  Status status;        ///< what all agree on
  bool speaks = false;  ///< it is this process's to tell
  bool orderly = false; ///< all know, so that the Peers may be destroyed
};

/// For a process that cannot even start its rank: tells so, and hears of the
/// others.
Departure leave(Peers &peers, const Status &own, double timeoutSeconds,
                const std::atomic<int> *signal);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_LIAISON_H
