//===- runtime/mpi/Request.h - One message under way ---------------------===//
#ifndef SLUICE_RUNTIME_MPI_REQUEST_H
#define SLUICE_RUNTIME_MPI_REQUEST_H

#include "runtime/mpi/MpiWorld.h"

#include <string>

namespace sluice::runtime::mpi {

/// A non-blocking send or receive. Its buffer must stay until it has ended; a
/// receive that has not is taken back with the request.
class Request {
public:
  Request() = default;
  Request(Request &&other) noexcept : request(other.request) {
    other.request = MPI_REQUEST_NULL;
  }
  Request(const Request &) = delete;
  Request &operator=(const Request &) = delete;
  ~Request() {
    if (!active())
      return;
    if (receives) {
      MPI_Cancel(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      MPI_Request_free(&request);
    }
  }

  bool active() const { return request != MPI_REQUEST_NULL; }

  /// Each of these: false, `error` tells of a failing call.
  bool send(const MpiWorld &world, MpiWorld::Path path, const void *from,
            Bytes bytes, std::string &error) {
    receives = false;
    return isOk("MPI_Isend", error,
                MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, path.process,
                          path.tag, world.communicator(), &request));
  }
  bool receive(const MpiWorld &world, MpiWorld::Path path, void *to,
               Bytes bytes, std::string &error) {
    receives = true;
    return isOk("MPI_Irecv", error,
                MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, path.process,
                          path.tag, world.communicator(), &request));
  }
  /// Looks whether it has ended: it is then no longer active.
  bool test(std::string &error) {
    int ended = 0;
    return !active() || isOk("MPI_Test", error,
                             MPI_Test(&request, &ended, MPI_STATUS_IGNORE));
  }

private:
  static bool isOk(const char *call, std::string &error, int code) {
    if (code == MPI_SUCCESS)
      return true;
    error = describe(call, code);
    return false;
  }

  MPI_Request request = MPI_REQUEST_NULL;
  bool receives = false;
};

} // namespace sluice::runtime::mpi

#endif // SLUICE_RUNTIME_MPI_REQUEST_H
