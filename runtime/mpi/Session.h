//===- runtime/mpi/Session.h - This process in MPI -----------------------===//
#ifndef SLUICE_RUNTIME_MPI_SESSION_H
#define SLUICE_RUNTIME_MPI_SESSION_H

#include "ir/Status.h"

#include <mpi.h>

#include <cstdint>
#include <string>

namespace sluice::runtime::mpi {

/// "MPI_Isend: MPI_ERR_COUNT: invalid count argument".
std::string describe(const char *call, int code);

/// MPI of this process: initialized at the first use for calls from several
/// threads, finalized by Peers. Its two communicators hold all processes and
/// return errors instead of ending the process.
struct Session {
  int rank = 0;
  int size = 1;
  int localSize = 1;             ///< processes of the job on this machine
  MPI_Comm data = MPI_COMM_NULL; ///< for the plan's messages
  MPI_Comm letters = MPI_COMM_NULL;
  int maxTag = 0;
};

/// The session; all processes of the job must ask for it. From one thread.
Status session(const Session *&found);

} // namespace sluice::runtime::mpi

#endif // SLUICE_RUNTIME_MPI_SESSION_H
