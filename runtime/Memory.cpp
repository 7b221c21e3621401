//===- runtime/Memory.cpp ------------------------------------------------===//
#include "runtime/Memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace sluice::runtime {

static constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

/// MemAvailable: what is free and what the kernel can give back.
static Bytes leftOnMachine() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (Bytes kibibytes = 0; file >> key >> kibibytes;) {
    if (key == "MemAvailable:")
      return kibibytes * 1024;
    std::getline(file, unit);
  }
  return kUnlimited;
}

/// A number in a file of a control group; "max" and a missing file are no
/// limit.
static Bytes limitIn(const std::string &path) {
  std::ifstream file(path);
  Bytes limit = 0;
  return file >> limit ? limit : kUnlimited;
}

static Bytes leftInGroup() {
  const std::string root = "/sys/fs/cgroup";
  Bytes limit = std::min(limitIn(root + "/memory.max"),
                         limitIn(root + "/memory/memory.limit_in_bytes"));
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::/"))
      limit = std::min(limit, limitIn(root + line.substr(3) + "/memory.max"));
  return limit;
}

/// What `ulimit -v` leaves.
static Bytes leftInAddressSpace() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return kUnlimited;
  std::ifstream file("/proc/self/statm");
  Bytes pages = 0;
  file >> pages;
  const Bytes used = pages * static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

Bytes availableMemory() {
  return std::min({leftOnMachine(), leftInGroup(), leftInAddressSpace()});
}

Status admitArenas(std::span<const Bytes> arenas) {
  Bytes total = 0;
  for (const Bytes arena : arenas)
    total = arena > kUnlimited - total ? kUnlimited : total + arena;
  const Bytes available = availableMemory();
  if (total <= available)
    return {};
  return Status::environment(
      "out of memory: the arenas of " + std::to_string(arenas.size()) +
      (arenas.size() == 1 ? " rank take " : " ranks together take ") +
      formatBytes(total) + ", and " + formatBytes(available) +
      " are available here");
}

} // namespace sluice::runtime
