//===- runtime/mpi/MpiPeers.h - Letters by MPI ---------------------------===//
//
// A thread of its own carries letters over a communicator of their own. It
// looks for some a few microseconds after the last came or went, then more and
// more seldom, down to some hundred times a second; what is posted here wakes
// it. By that it also drives what MPI has under way while the rank's thread
// computes. While nobody listens yet, since the program still reads
// or compiles, it posts empty letters, which say that the process is there.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MPI_MPIPEERS_H
#define SLUICE_RUNTIME_MPI_MPIPEERS_H

#include "runtime/Peers.h"
#include "runtime/mpi/LauncherWatch.h"
#include "runtime/mpi/Session.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace sluice::runtime::mpi {

class MpiPeers final : public Peers {
public:
  /// Meets the other processes and measures how their clocks differ.
  static Status connect(std::unique_ptr<Peers> &peers);
  /// Waits until all letters have gone, then for all processes (MPI_Finalize).
  ~MpiPeers() override;

  Id self() const override { return static_cast<Id>(session.rank); }
  uint32_t count() const override {
    return static_cast<uint32_t>(session.size);
  }
  std::string share(std::string text) override;
  void post(Id to, std::string text) override;
  void flush(double seconds) override;
  void listen(Listener *next) override;
  int64_t clockOffset() const override { return offset; }

private:
  MpiPeers(const Session &opened, const LauncherWatch &watch);

  /// What goes to one process: letters that wait, and those under way.
  struct Outgoing {
    std::string waiting; ///< framed; guarded by `mutex`
    std::string moving;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Incoming {
    Id from;
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
    bool ended = false;
  };

  Status measureClocks();
  void run();
  bool look();
  bool send();
  bool receive();
  bool takeNew();
  bool deliver();
  void split(Id from, std::string_view frames);
  void tick();
  void tellPresence();
  bool isSent();

  const Session &session;
  int64_t offset = 0;
  std::deque<Incoming> incoming; ///< of the thread alone, as is:
  std::deque<std::pair<Id, std::string>> unheard;
  int64_t nextPresence = 0;
  LauncherWatch watch;

  std::mutex mutex; ///< guards `waiting` of all, and what follows
  std::condition_variable posted;
  std::vector<Outgoing> outgoing;
  bool news = false; ///< something was posted
  bool allLeft = true;
  std::condition_variable left;
  bool stop = false;

  /// Held during a call of the listener; it may call `listen`.
  std::recursive_mutex listening;
  Listener *listener = nullptr;
  bool listened = false; ///< somebody ever did
  std::thread thread;    ///< last: it uses all of the above
};

} // namespace sluice::runtime::mpi

#endif // SLUICE_RUNTIME_MPI_MPIPEERS_H
