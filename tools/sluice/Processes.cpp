#include "tools/sluice/Processes.h"

#include "ir/AsideFile.h"
#include "ir/Diagnostics.h"
#include "runtime/Backend.h"
#include "runtime/Launch.h"
#include "runtime/Liaison.h"
#include "tools/sluice/Files.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Errno.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <limits>
#include <sys/mman.h>
#include <unistd.h>

namespace sluice {

void endProcess(int code) {
  dropAsideFiles();
  llvm::outs().flush();
  llvm::errs().flush();
  std::_Exit(code);
}

static std::atomic<int> signalNoted{0};
static_assert(std::atomic<int>::is_always_lock_free);

/// The first is noted, a second ends the process as a failed run does.
static void noteSignal(int number) {
  if (signalNoted.exchange(number) != 0)
    ::_exit(3);
}

const std::atomic<int> &Processes::signal() const { return signalNoted; }

void Processes::noteSignals() {
  std::signal(SIGTERM, noteSignal);
  std::signal(SIGPIPE, SIG_IGN); // the launcher may go, and its pipes with it
  for (int number : {SIGINT, SIGHUP})
    if (std::signal(number, noteSignal) == SIG_IGN) // as by nohup
      std::signal(number, SIG_IGN);
}

double Processes::signalGrace(double timeoutSeconds) const {
  runtime::Launch launch;
  std::optional<double> given;
  if (others && runtime::detectLaunch(launch).ok())
    given = runtime::secondsAfterSignal(launch.launcher);
  // Without a timeout nothing but a second signal ends it.
  double limit = timeoutSeconds > 0 ? timeoutSeconds
                                    : std::numeric_limits<double>::infinity();
  return std::min(given.value_or(limit), limit);
}

static Status unknownBackend(llvm::StringRef name) {
  std::string shown = "--backend=" + escaped(name);
  std::vector<std::string_view> names;
  for (const runtime::BackendInfo &backend : runtime::backends())
    names.push_back(backend.text);
  return Status::usage(shown + " is not one of " + llvm::join(names, ", "));
}

static Status unknownToMpi(const std::string &flag) {
  return Status::usage("torchrun starts processes that MPI does not know: "
                       "start them with mpirun or srun, or run all ranks in "
                       "one process with " +
                       flag);
}

/// By --backend, else by the launcher.
Status Processes::choose(const Arguments &arguments) {
  name = arguments.backend;
  if (!name.empty())
    return runtime::findBackend(name) ? Status() : unknownBackend(name);
  runtime::Launch launch;
  if (Status s = runtime::detectLaunch(launch); !s.ok())
    return s;
  switch (launch.launcher) {
  case runtime::Launcher::None:
    name = "host";
    return Status();
  case runtime::Launcher::OpenMpi:
  case runtime::Launcher::Pmi:
  case runtime::Launcher::Slurm:
    name = "mpi";
    return Status();
  case runtime::Launcher::Torchrun:
    break;
  }
  return unknownToMpi("--backend=host");
}

/// A launcher whose processes MPI does not know starts each for itself.
static Status checkCount(const runtime::Launch &launch,
                         const runtime::Peers &peers) {
  if (launch.launcher == runtime::Launcher::None ||
      launch.launcher == runtime::Launcher::Torchrun ||
      launch.size == peers.count())
    return Status();
  return Status::environment(
      std::string(runtime::nameOf(launch.launcher)) + " started " +
      std::to_string(launch.size) + " processes, but MPI has " +
      std::to_string(peers.count()) +
      ": this MPI does not understand the launcher (with Slurm, try srun "
      "--mpi=pmix)");
}

Status Processes::meet(const Arguments &arguments) {
  if (Status s = choose(arguments); !s.ok())
    return s;
  const runtime::BackendFunctions *functions = nullptr;
  if (Status s = runtime::findBackend(name)->functions(functions); !s.ok())
    return s;
  runtime::Launch launch; // a backend of one process asks for none
  if (functions->token || functions->connect)
    if (Status s = runtime::detectLaunch(launch); !s.ok())
      return s;
  const runtime::BackendFunctions *meeting = functions;
  if (functions->token && launch.size != 1) {
    if (launch.launcher == runtime::Launcher::Torchrun)
      return unknownToMpi("--backend=" + name);
    if (Status s = runtime::findBackend("mpi")->functions(meeting); !s.ok())
      return s;
  }
  if (meeting->connect) {
    if (Status s = meeting->connect(others); !s.ok())
      return s;
    noteSignals();
    if (Status s = checkCount(launch, *others); !s.ok())
      return s;
  }
  if (others && functions->token)
    common = others->share(isFirst() ? functions->token() : "");
  if (!others && !arguments.logDir.empty() && !arguments.quiet)
    llvm::errs() << "warning: --log-dir has no effect in one process\n";
  return isFirst() ? Status() : talkAside(arguments.logDir);
}

//===----------------------------------------------------------------------===//
// Who talks
//===----------------------------------------------------------------------===//

Status Processes::talkAside(const std::string &logDir) {
  std::string path =
      logDir + "/rank-" + std::to_string(others->self()) + ".log";
  if (logDir.empty()) {
    aside = ::memfd_create("log", MFD_CLOEXEC);
  } else {
    (void)llvm::sys::fs::create_directories(logDir);
    aside = ::open(path.c_str(),
                   O_CREAT | O_TRUNC | O_RDWR | O_APPEND | O_CLOEXEC, 0644);
  }
  if (aside < 0)
    return Status::environment("cannot write " +
                               (logDir.empty() ? "to memory" : escaped(path)) +
                               ": " + llvm::sys::StrError());
  realError = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  ::dup2(aside, STDOUT_FILENO);
  ::dup2(aside, STDERR_FILENO);
  if (!logDir.empty())
    llvm::errs() << "rank " << others->self() << " of " << others->count()
                 << ", process " << ::getpid() << '\n';
  return Status();
}

void Processes::speak() {
  if (realError < 0)
    return;
  ::dup2(realError, STDERR_FILENO);
  ::close(realError);
  realError = -1;
  char buffer[4096];
  off_t offset = 0;
  for (ssize_t got; (got = ::pread(aside, buffer, sizeof buffer, offset)) > 0;
       offset += got)
    llvm::errs() << llvm::StringRef(buffer, static_cast<size_t>(got));
}

void Processes::dismissOthers() {
  if (others)
    runtime::dismiss(*others);
}

int Processes::leave(int code, double timeoutSeconds) {
  if (!others)
    return code;
  const std::string message =
      "process " + std::to_string(others->self()) + " could not start";
  Status own = code == 1   ? Status::input(message)
               : code == 2 ? Status::usage(message)
                           : Status::environment(message);
  runtime::Departure departure =
      runtime::leave(*others, own, timeoutSeconds, &signalNoted);
  if (departure.speaks)
    speak();
  if (!departure.orderly)
    endProcess(static_cast<int>(departure.status.fault()));
  part();
  return static_cast<int>(departure.status.fault());
}

} // namespace sluice
