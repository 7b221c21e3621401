//===- runtime/Launch.cpp ------------------------------------------------===//
#include "runtime/Launch.h"

#include "ir/Diagnostics.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>

namespace sluice::runtime {

namespace {
/// What a launcher sets. Null: it has no such variable.
struct Row {
  Launcher launcher;
  std::string_view name;
  const char *rank;
  const char *size;
  /// Whether `size` is also set where nothing was launched: Slurm sets it in
  /// every allocation.
  bool sizeMeansNothing;
  const char *localRank;
  bool localRankOptional;
  const char *localSize; ///< always optional
  const char *address;
  const char *port;
};
} // namespace

/// The innermost launcher first.
static constexpr Row kRows[] = {
    {Launcher::Torchrun, "torchrun", "RANK", "WORLD_SIZE", false, "LOCAL_RANK",
     false, "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
    {Launcher::OpenMpi, "Open MPI", "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE", false, "OMPI_COMM_WORLD_LOCAL_RANK", false,
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr},
    // Slurm's own PMI sets no local rank.
    {Launcher::Pmi, "PMI", "PMI_RANK", "PMI_SIZE", false, "MPI_LOCALRANKID",
     true, "MPI_LOCALNRANKS", nullptr, nullptr},
    {Launcher::Slurm, "Slurm", "SLURM_PROCID", "SLURM_NTASKS", true,
     "SLURM_LOCALID", false, nullptr, "SLURM_JOB_NODELIST", nullptr},
};

std::string_view nameOf(Launcher launcher) {
  for (const Row &row : kRows)
    if (row.launcher == launcher)
      return row.name;
  return {};
}

namespace {
/// Reads the variables of one launcher; keeps the first fault.
class Reader {
public:
  Reader(const Environment &variables, const Row &ofLauncher)
      : environment(variables), row(ofLauncher) {}

  const char *text(const char *name) const {
    return name ? environment(name) : nullptr;
  }

  /// The value of `name`, from `least` to `most`; `missing` where it is not
  /// set and need not be.
  uint32_t number(const char *name, uint32_t least, uint32_t most,
                  bool optional = false, uint32_t missing = 0) {
    const char *value = text(name);
    if (!value) {
      if (!optional)
        refuse(std::string(name) + " is not set, but " + witness() + " is");
      return missing;
    }
    uint32_t result = 0;
    const char *end = value + std::strlen(value);
    const auto [stop, error] = std::from_chars(value, end, result);
    if (error != std::errc() || stop != end || stop == value ||
        result < least || result > most)
      refuse(std::string(name) + " is '" + escaped(value) +
             "', not a number from " + std::to_string(least) + " to " +
             std::to_string(most));
    return result;
  }

  /// A variable that must be set, to something.
  std::string word(const char *name) {
    const char *value = text(name);
    if (!value)
      refuse(std::string(name) + " is not set, but " + witness() + " is");
    else if (!*value)
      refuse(std::string(name) + " is empty");
    return value ? value : "";
  }

  void below(const char *name, uint32_t value, const char *limitName,
             uint32_t limit) {
    if (value >= limit)
      refuse(std::string(name) + " is " + std::to_string(value) + ", but " +
             limitName + " is " + std::to_string(limit));
  }

  Status status;

private:
  /// The variable that shows that the launcher was there.
  std::string witness() const { return text(row.rank) ? row.rank : row.size; }

  void refuse(const std::string &what) {
    if (status.ok())
      status = Status::environment(
          "the environment of " + std::string(row.name) +
          " is broken: " + what +
          "; start with a launcher, or unset its variables to run in one "
          "process");
  }

  const Environment &environment;
  const Row &row;
};
} // namespace

/// "node003" of "node[003-005,7],other".
static std::string firstHost(std::string_view list) {
  const size_t end = list.find_first_of(",[");
  std::string host(list.substr(0, end));
  if (end == std::string_view::npos || list[end] == ',')
    return host;
  const std::string_view inside = list.substr(end + 1);
  host += inside.substr(0, inside.find_first_of("-,]"));
  const size_t close = inside.find(']');
  if (close != std::string_view::npos) {
    const std::string_view rest = inside.substr(close + 1);
    host += rest.substr(0, rest.find(','));
  }
  return host;
}

static Status read(const Environment &environment, const Row &row,
                   Launch &launch) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  Reader reader(environment, row);
  Launch found;
  found.launcher = row.launcher;
  found.rank = reader.number(row.rank, 0, kMost);
  found.size = reader.number(row.size, 1, kMost);
  found.localRank =
      reader.number(row.localRank, 0, kMost, row.localRankOptional, found.rank);
  found.localSize =
      row.localSize ? reader.number(row.localSize, 1, kMost, true) : 0;
  reader.below(row.rank, found.rank, row.size, found.size);
  if (found.localSize != 0)
    reader.below(row.localRank, found.localRank, row.localSize,
                 found.localSize);
  if (row.address)
    found.address = firstHost(reader.word(row.address));
  if (row.port)
    found.port = static_cast<uint16_t>(reader.number(row.port, 1, 65535));
  if (reader.status.ok())
    launch = std::move(found);
  return reader.status;
}

Status detectLaunch(const Environment &environment, Launch &launch) {
  for (const Row &row : kRows)
    if (environment(row.rank) ||
        (!row.sizeMeansNothing && environment(row.size)))
      return read(environment, row, launch);
  launch = Launch();
  return {};
}

/// Open MPI kills all a second after its signal, or as long after it as its
/// parameter says, which it hands on to the processes.
std::optional<double> secondsAfterSignal(const Environment &environment,
                                         Launcher launcher) {
  if (launcher != Launcher::OpenMpi)
    return std::nullopt;
  constexpr double kToTell = 0.6;
  double seconds = 1;
  if (const char *text = environment("OMPI_MCA_odls_base_sigkill_timeout")) {
    const std::string_view value = text;
    (void)std::from_chars(value.data(), value.data() + value.size(), seconds);
  }
  return std::max(seconds - kToTell, 0.0);
}

static const char *ownEnvironment(const char *name) {
  return std::getenv(name);
}

Status detectLaunch(Launch &launch) {
  return detectLaunch(ownEnvironment, launch);
}

std::optional<double> secondsAfterSignal(Launcher launcher) {
  return secondsAfterSignal(ownEnvironment, launcher);
}

} // namespace sluice::runtime
