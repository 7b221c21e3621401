//===- runtime/mpi/LauncherWatch.h - Whether the launcher still lives -----===//
#ifndef SLUICE_RUNTIME_MPI_LAUNCHERWATCH_H
#define SLUICE_RUNTIME_MPI_LAUNCHERWATCH_H

#include <cstdint>
#include <sys/types.h>

namespace sluice::runtime::mpi {

/// Raises SIGTERM, once, when the launcher of this process has gone, which can
/// then no longer send one. The daemons of Open MPI and MPICH start each
/// process of a job in a process group of its own, that of Slurm all of a
/// machine in one; so the leader of this group is their child, whatever shells
/// there are between it and this process, and gets another parent when they
/// end. A group whose leader has gone is not watched. Made before MPI_Init,
/// which fails where the launcher has gone before.
class LauncherWatch {
public:
  LauncherWatch();
  /// Looks some ten times a second at most.
  void look(int64_t nanoseconds);

private:
  pid_t launcher = 0; ///< 0: none to watch
  int64_t next = 0;   ///< when to look again
};

} // namespace sluice::runtime::mpi

#endif // SLUICE_RUNTIME_MPI_LAUNCHERWATCH_H
