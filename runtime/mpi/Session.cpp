//===- runtime/mpi/Session.cpp -------------------------------------------===//
#include "runtime/mpi/Session.h"

#include "runtime/Launch.h"

#include <cstdlib>
#include <utility>

namespace sluice::runtime::mpi {

std::string describe(const char *call, int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    length = 0;
  return std::string(call) + ": " +
         (length != 0 ? std::string(text, static_cast<size_t>(length))
                      : "error " + std::to_string(code));
}

/// Calls in order; keeps the first that fails.
namespace {
class Calls {
public:
  template <typename Call> Calls &then(const char *name, Call &&call) {
    if (status.ok())
      if (const int code = call(); code != MPI_SUCCESS)
        status =
            Status::environment("MPI does not start: " + describe(name, code));
    return *this;
  }
  Status status;
};
} // namespace

/// A process that no launcher started needs no daemon of Open MPI beside it.
static void stayAlone() {
  Launch launch;
  if (detectLaunch(launch).ok() && launch.launcher == Launcher::None)
    ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
}

static Status open(Session &opened) {
  stayAlone();
  int provided = MPI_THREAD_SINGLE;
  MPI_Comm machine = MPI_COMM_NULL;
  Calls calls;
  calls
      .then("MPI_Init_thread",
            [&] {
              return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE,
                                     &provided);
            })
      .then("MPI_Comm_set_errhandler",
            [] {
              return MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
            })
      .then("MPI_Comm_rank",
            [&] { return MPI_Comm_rank(MPI_COMM_WORLD, &opened.rank); })
      .then("MPI_Comm_size",
            [&] { return MPI_Comm_size(MPI_COMM_WORLD, &opened.size); })
      .then("MPI_Comm_dup",
            [&] { return MPI_Comm_dup(MPI_COMM_WORLD, &opened.data); })
      .then("MPI_Comm_dup",
            [&] { return MPI_Comm_dup(MPI_COMM_WORLD, &opened.letters); })
      .then("MPI_Comm_split_type",
            [&] {
              return MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED,
                                         0, MPI_INFO_NULL, &machine);
            })
      .then("MPI_Comm_size",
            [&] { return MPI_Comm_size(machine, &opened.localSize); })
      .then("MPI_Comm_free", [&] { return MPI_Comm_free(&machine); });
  if (!calls.status.ok())
    return calls.status;
  if (provided < MPI_THREAD_MULTIPLE)
    return Status::environment("this MPI cannot be called from several threads "
                               "(MPI_THREAD_MULTIPLE)");
  void *bound = nullptr;
  int given = 0;
  if (MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &given) ==
          MPI_SUCCESS &&
      given)
    opened.maxTag = *static_cast<int *>(bound);
  return {};
}

Status session(const Session *&found) {
  static Session opened;
  static const Status status = open(opened);
  found = &opened;
  return status;
}

} // namespace sluice::runtime::mpi
