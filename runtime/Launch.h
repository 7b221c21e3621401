//===- runtime/Launch.h - Who this process is, by its launcher -----------===//
//
// Launchers of parallel programs tell every process its number in variables of
// the environment. The innermost launcher counts: torchrun before Open MPI's
// mpirun, before a PMI (MPICH, Intel MPI), before Slurm's srun, whose variables
// the others leave in place.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_LAUNCH_H
#define SLUICE_RUNTIME_LAUNCH_H

#include "ir/Status.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::runtime {

enum class Launcher : uint8_t { None, Torchrun, OpenMpi, Pmi, Slurm };

/// "torchrun"; empty of None.
std::string_view nameOf(Launcher launcher);

/// One process of a job.
struct Launch {
  Launcher launcher = Launcher::None;
  uint32_t rank = 0; ///< number of the process in the job
  uint32_t size = 1; ///< processes of the job
  /// Number of the process on its machine, from 0.
  uint32_t localRank = 0;
  /// Processes of the job on this machine; 0 where the launcher does not say.
  uint32_t localSize = 0;
  /// Where process 0 can be met: a host, empty where MPI knows the way; and a
  /// port, 0 where the launcher names none.
  std::string address;
  uint16_t port = 0;
};

/// The value of a variable, null where it is not set.
using Environment = std::function<const char *(const char *name)>;

/// Finds the launcher in `environment`; Launcher::None where nothing of one is
/// set. A launcher of which only a part is set, and values that are no numbers
/// or out of range, are Fault::Environment that names the variable. `launch` is
/// as it was if that fails.
Status detectLaunch(const Environment &environment, Launch &launch);

/// How many seconds `launcher` lets a process live that it has sent a SIGTERM,
/// less what it needs to tell how it ended; none where it is not known.
std::optional<double> secondsAfterSignal(const Environment &environment,
                                         Launcher launcher);

/// The same of the environment of this process.
Status detectLaunch(Launch &launch);
std::optional<double> secondsAfterSignal(Launcher launcher);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_LAUNCH_H
