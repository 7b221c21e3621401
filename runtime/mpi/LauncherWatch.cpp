//===- runtime/mpi/LauncherWatch.cpp -------------------------------------===//
#include "runtime/mpi/LauncherWatch.h"

#include "runtime/Launch.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace sluice::runtime::mpi {

static constexpr int64_t kPeriod = 100'000'000; // nanoseconds

/// The parent of a process, 0 where it cannot be found; proc(5), "stat".
static pid_t parentOf(pid_t process) {
  if (process == ::getpid())
    return ::getppid();
  const std::string path = "/proc/" + std::to_string(process) + "/stat";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  char text[512];
  const ssize_t got = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  text[got < 0 ? 0 : got] = 0;
  // A name may hold blanks and brackets: what follows its last bracket counts.
  const char *end = std::strrchr(text, ')');
  int parent = 0;
  return end && std::sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

LauncherWatch::LauncherWatch() {
  Launch launch;
  if (detectLaunch(launch).ok() && launch.launcher != Launcher::None)
    launcher = parentOf(::getpgrp());
}

void LauncherWatch::look(int64_t nanoseconds) {
  if (launcher == 0 || nanoseconds < next)
    return;
  next = nanoseconds + kPeriod;
  const pid_t parent = parentOf(::getpgrp());
  if (parent == launcher)
    return;
  launcher = 0;
  if (parent != 0)
    ::kill(::getpid(), SIGTERM);
}

} // namespace sluice::runtime::mpi
